"""`muster run` on a real API server: its bind rate relative to a baseline that only binds, and its footprint on a large cluster.

It needs the servers of the lab and takes minutes, so it runs only when named.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from benchmarks import bind_baseline, live_fixture
from benchmarks.live_fixture import Batches, LiveFixture, open_fixture
from muster.bench.workload import Measurement, Workload
from muster.config import default_policy
from muster.kube.live_cluster import LiveCluster
from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import NODE, POD
from muster.kube.watch.access import Access
from muster.kube.watch.client import Client
from muster.kube.write.effect_writer import DEFAULT_WRITE_LIMITS
from muster.lab.scheduler_process import SchedulerProcess
from muster.lab.servers import Servers
from muster.scheduler import Scheduler

GROUP: Final = "live"

_NODES, _PODS = 1000, 3000
_ROUNDS = 5
_REACTIONS = 20
_MANY_NODES, _MANY_PODS = 5000, 50_000
_SETTLE_S, _IDLE_S = 5.0, 20.0
_TIMEOUT_S = 120.0
_PLAIN_CONNECTIONS = 48
_NO_LEADER_ELECTION = "--no-leader-election"
_OTHER_SCHEDULER = "nobody"
_MB = 1e6
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


# --- bind rate ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _BindRates:
    """Binds per second of each round, and the recorded watches."""

    baseline: list[float]
    plain: list[float]
    live: list[_LiveRound]
    recorded: Mapping[str, Batches]


class _LiveRound(NamedTuple):
    binds_per_s: float
    first_bind_s: float
    """From the start of the process."""


@cache
def _bind_rates() -> _BindRates:
    with Servers(native_pod_groups=False) as servers:
        return asyncio.run(_measure_rates(servers.kubeconfig()))


async def _measure_rates(kubeconfig: Path) -> _BindRates:
    """Alternately, so that both see the same load of the machine. A first round warms the server up, and is recorded."""
    async with open_fixture(kubeconfig) as fixture:
        await fixture.make_nodes(_NODES)
        async with fixture.recording(live_fixture.NODES) as nodes, fixture.recording(live_fixture.ALL_PODS) as pods:
            await _baseline_rate(fixture, kubeconfig)
            recorded = {live_fixture.NODES: nodes.recorded, live_fixture.ALL_PODS: pods.recorded}
        rates = _BindRates([], [], [], recorded)
        for number in range(_ROUNDS):
            for at in range(3):
                await _measure_one(rates, fixture, kubeconfig, which=(number + at) % 3)
    return rates


async def _measure_one(rates: _BindRates, fixture: LiveFixture, kubeconfig: Path, *, which: int) -> None:
    match which:
        case 0:
            rates.baseline.append(await _baseline_rate(fixture, kubeconfig))
        case 1:
            rates.plain.append(await _plain_rate(fixture, kubeconfig))
        case _:
            rates.live.append(await _scheduler_rate(fixture, kubeconfig))


async def _baseline_rate(fixture: LiveFixture, kubeconfig: Path) -> float:
    """As many connections as a scheduler has, beside a watch of all pods."""
    async with fixture.recording(live_fixture.ALL_PODS) as watch:
        await _bind_plainly(fixture, kubeconfig, connections=DEFAULT_WRITE_LIMITS.pod_write_concurrency)
        await watch.wait_until_bound(_PODS, timeout_s=_TIMEOUT_S)
    await fixture.remove_pods()
    return watch.binds_per_second()


async def _plain_rate(fixture: LiveFixture, kubeconfig: Path) -> float:
    """What the server takes where nobody watches."""
    rate = await _bind_plainly(fixture, kubeconfig, connections=_PLAIN_CONNECTIONS)
    await fixture.remove_pods()
    return rate


async def _bind_plainly(fixture: LiveFixture, kubeconfig: Path, *, connections: int) -> float:
    pods = await fixture.make_pods(_PODS, scheduler=_OTHER_SCHEDULER)
    bindings = [(f"default/{name}", uid, live_fixture.node_name(i % _NODES)) for i, (name, uid) in enumerate(pods)]
    program = [sys.executable, bind_baseline.__file__, str(kubeconfig), str(connections)]
    process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate(msgspec.json.encode(bindings))
    if process.returncode:
        raise AssertionError(f"the baseline ended with code {process.returncode}")
    return float(printed)


async def _scheduler_rate(fixture: LiveFixture, kubeconfig: Path, *, native: bool = False) -> _LiveRound:
    async with fixture.recording(live_fixture.ALL_PODS) as watch:
        await fixture.make_pods(_PODS, scheduler="muster", native=native)
        with _MeasuredProcess(kubeconfig, _NO_LEADER_ELECTION) as running:
            await watch.wait_until_bound(_PODS, timeout_s=_TIMEOUT_S, check=running.check)
            await asyncio.to_thread(running.stop)
    await fixture.remove_pods()
    return _LiveRound(watch.binds_per_second(), min(watch.bound_at.values()) - running.started_s)


def _bind_share() -> Measurement:
    """The median over the rounds of the ratio of the two rates."""
    rates = _bind_rates()
    return _share(rates, rates.baseline, "baseline binds/s")


def _plain_share() -> Measurement:
    rates = _bind_rates()
    return _share(rates, rates.plain, "plain binds/s")


def _share(rates: _BindRates, others: list[float], name: str) -> Measurement:
    live = [each.binds_per_s for each in rates.live]
    share = median(mine / other for mine, other in zip(live, others, strict=True))
    return Measurement(100 * share, (("live binds/s", median(live)), (name, median(others)), ("rounds", _ROUNDS)))


def _first_bind() -> Measurement:
    found = [each.first_bind_s for each in _bind_rates().live]
    return Measurement(median(found), (("longest", max(found)), ("rounds", _ROUNDS)))


def _native_gangs() -> Measurement:
    """All pods are in gangs of Kubernetes' own PodGroups, which get their statuses, too."""

    async def measure(kubeconfig: Path) -> list[float]:
        async with open_fixture(kubeconfig) as fixture:
            await fixture.make_nodes(_NODES)
            return [(await _scheduler_rate(fixture, kubeconfig, native=True)).binds_per_s for _ in range(_ROUNDS)]

    with Servers() as servers:
        return Measurement(median(asyncio.run(measure(servers.kubeconfig()))), (("rounds", _ROUNDS),))


def _reaction() -> Measurement:
    """From a pod that comes to its bind, one at a time, with nothing else to do: a write, its watch event, a cycle, a write and its
    watch event. As long does another scheduler not know what this one gave away, and the other way round."""

    async def measure(kubeconfig: Path) -> list[float]:
        async with open_fixture(kubeconfig) as fixture:
            await fixture.make_nodes(_NODES)
            with SchedulerProcess(kubeconfig, _NO_LEADER_ELECTION) as running:
                await asyncio.to_thread(running.wait_for_log, "ready")
                return [await one(fixture) for _ in range(_REACTIONS)]

    async def one(fixture: LiveFixture) -> float:
        async with fixture.recording(live_fixture.ALL_PODS) as watch:
            began = time.monotonic()
            await fixture.make_pods(1, scheduler="muster")
            await watch.wait_until_bound(1, timeout_s=_TIMEOUT_S)
        await fixture.remove_pods()
        return max(watch.bound_at.values()) - began

    with Servers(native_pod_groups=False) as servers:
        found = sorted(asyncio.run(measure(servers.kubeconfig())))
        return Measurement(1000 * median(found), (("longest", 1000 * found[-1]), ("pods", _REACTIONS)))


# --- watch events -------------------------------------------------------------------------------------------------------------


class _ReplayClient(Client):
    """A client that replays recorded watches."""

    def __init__(self, recorded: Mapping[str, Batches]) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        self._recorded = recorded
        self.remaining = len(recorded)

    async def watch_batches(self, path: str, **_: object) -> AsyncGenerator[list[bytes], None]:
        for lines in self._recorded[path]:
            yield lines
            # A batch is processed at once, as by the scheduling loop.
            await asyncio.sleep(0)
        self.remaining -= 1
        await asyncio.Event().wait()


async def _replay_watch(recorded: Mapping[str, Batches]) -> float:
    """CPU seconds for all events."""
    replay, scheduler = _ReplayClient(recorded), Scheduler(default_policy())
    cluster = LiveCluster(replay, may_write=lambda: False, resources=[resource_of(*kind) for kind in (NODE, POD)])
    gc.collect()
    began = time.process_time()
    running = asyncio.create_task(cluster.run())
    while replay.remaining or cluster.backlog:
        await asyncio.sleep(0)
        scheduler.feed(cluster.events())
    took = time.process_time() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if not cluster.synced:
        raise AssertionError("the replayed watch was not complete")
    return took


def _watch_events() -> Measurement:
    recorded = _bind_rates().recorded
    events = sum(len(lines) for batches in recorded.values() for lines in batches)
    took = median(asyncio.run(_replay_watch(recorded)) for _ in range(5))
    return Measurement(events / took, (("events", events), ("us each", 1e6 * took / events)))


# --- footprint ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Footprint:
    ready_s: float
    resident_mb: float
    idle_percent: float


class _MeasuredProcess(SchedulerProcess):
    def __init__(self, kubeconfig: Path, *options: str) -> None:
        self.started_s = time.monotonic()
        super().__init__(kubeconfig, *options)

    def age_s(self) -> float:
        """Seconds since the process was started."""
        return time.monotonic() - self.started_s

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def cpu_s(self) -> float:
        """CPU time used so far by all threads."""
        # The command name in brackets may contain spaces.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@cache
def _footprint() -> _Footprint:
    with Servers(native_pod_groups=False) as servers:
        kubeconfig = servers.kubeconfig()
        asyncio.run(_populate(kubeconfig))
        with _MeasuredProcess(kubeconfig, _NO_LEADER_ELECTION) as running:
            running.wait_for_log("ready", timeout_s=_TIMEOUT_S)
            ready_s = running.age_s()
            time.sleep(_SETTLE_S)
            before_s = running.cpu_s()
            time.sleep(_IDLE_S)
            idle = (running.cpu_s() - before_s) / _IDLE_S
            resident = running.resident_bytes()
            running.stop()
        recorded = next(line for line in running.lines if line["event"] == "ready")
        if (recorded["nodes"], recorded["pods"]) != (_MANY_NODES, _MANY_PODS):
            raise AssertionError(f"{recorded['nodes']} nodes and {recorded['pods']} pods were seen")
        return _Footprint(ready_s, resident / _MB, 100 * idle)


async def _populate(kubeconfig: Path) -> None:
    async with open_fixture(kubeconfig) as fixture:
        await fixture.make_nodes(_MANY_NODES)
        await fixture.make_pods(_MANY_PODS, scheduler="muster", bound_to=_MANY_NODES)


def _time_to_ready() -> Measurement:
    return Measurement(_footprint().ready_s)


def _resident_memory() -> Measurement:
    return Measurement(_footprint().resident_mb)


def _idle_cpu() -> Measurement:
    return Measurement(_footprint().idle_percent)


_SMALL = f"{_NODES:,} nodes, {_PODS:,} pods"
_LARGE = f"{_MANY_NODES:,} nodes, {_MANY_PODS:,} pods"
WORKLOADS = (
    Workload(GROUP, f"binds, {_SMALL}, relative to a bind-only baseline", "%", _bind_share, target=90),
    Workload(
        GROUP,
        f"binds, {_SMALL}, relative to {_PLAIN_CONNECTIONS} connections that only bind, without a watch",
        "%",
        _plain_share,
        target=85,
    ),
    Workload(
        GROUP, f"first bind of {_PODS:,} waiting pods, from the start of the process", "s", _first_bind, target=1.5, at_least=False
    ),
    Workload(
        GROUP, f"binds, {_SMALL} in gangs of {live_fixture.GANG_SIZE} of native PodGroups", "pods/s", _native_gangs, target=1000
    ),
    Workload(GROUP, f"{_NODES:,} nodes: from a pod that comes to its bind", "ms", _reaction, target=50, at_least=False),
    Workload(GROUP, "a recorded watch, from bytes to events", "events/s", _watch_events, target=20_000),
    Workload(GROUP, f"{_LARGE}: from start to ready", "s", _time_to_ready, target=30, at_least=False),
    Workload(GROUP, f"{_LARGE}: resident memory", "MB", _resident_memory, target=2000, at_least=False),
    Workload(GROUP, f"{_LARGE}: idle CPU, of one core", "%", _idle_cpu, target=5, at_least=False),
)
