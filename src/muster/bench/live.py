"""`muster run` on a real API server: a real process against a bare loop that only binds, and on a cluster of some size.

It needs the servers of the lab, and minutes: it is measured when somebody asks for it by name.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from muster.adapters.kube.access import Access
from muster.adapters.kube.client import Client
from muster.adapters.kube.live import LiveCluster
from muster.adapters.kube.refs import NODE, POD
from muster.adapters.kube.resources import resource_of
from muster.bench import live_town
from muster.bench.live_town import Batches, Town, town_at
from muster.bench.workload import Measured, Workload
from muster.config import default_policy
from muster.lab.running import Running
from muster.lab.servers import Servers
from muster.runtime import Scheduler

GROUP: Final = "live"

_NODES, _PODS = 1000, 3000
_ROUNDS = 9
_MANY_NODES, _MANY_PODS = 5000, 50_000
_SETTLE_S, _IDLE_S = 5.0, 20.0
_PATIENCE_S = 120.0
_ALONE = "--no-leader-election"
_NOBODY = "nobody"
_MB = 1e6


# --- Binds, against a bare loop -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rates:
    """Binds per second, round by round, and what the watches said meanwhile."""

    bare: list[float]
    live: list[float]
    said: Mapping[str, Batches]


@cache
def _rates() -> _Rates:
    with Servers(native_gangs=False) as servers:
        return asyncio.run(_measure_rates(servers.kubeconfig()))


async def _measure_rates(kubeconfig: Path) -> _Rates:
    """In turn, now one first and now the other, so that both have the same machine. The first round warms the server up, and is
    recorded."""
    async with town_at(kubeconfig) as town:
        await town.make_nodes(_NODES)
        async with town.watched(live_town.NODES) as nodes, town.watched(live_town.ALL_PODS) as pods:
            await _bare(town, kubeconfig)
            said = {live_town.NODES: nodes.said, live_town.ALL_PODS: pods.said}
        bare: list[float] = []
        live: list[float] = []
        for number in range(_ROUNDS):
            for measure, rates in ((_bare, bare), (_live, live))[:: -1 if number % 2 else 1]:
                rates.append(await measure(town, kubeconfig))
    return _Rates(bare, live, said)


async def _bare(town: Town, kubeconfig: Path) -> float:
    async with town.watched(live_town.ALL_PODS) as watch:
        pods = await town.make_pods(_PODS, scheduler=_NOBODY)
        seats = [(f"default/{name}", uid, live_town.node_name(i % _NODES)) for i, (name, uid) in enumerate(pods)]
        program = [sys.executable, "-m", "muster.bench.bare_loop", str(kubeconfig)]
        process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.PIPE)
        await process.communicate(msgspec.json.encode(seats))
        if process.returncode:
            raise AssertionError(f"the bare loop ended with code {process.returncode}")
        await watch.until_bound(_PODS, timeout_s=_PATIENCE_S)
    await town.remove_pods()
    return watch.binds_per_second()


async def _live(town: Town, kubeconfig: Path) -> float:
    async with town.watched(live_town.ALL_PODS) as watch:
        await town.make_pods(_PODS, scheduler="muster")
        with Running(kubeconfig, _ALONE) as running:
            await watch.until_bound(_PODS, timeout_s=_PATIENCE_S, check=running.check)
            await asyncio.to_thread(running.stop)
    await town.remove_pods()
    return watch.binds_per_second()


def _binds() -> Measured:
    """The median over the rounds of what one was of the other: neighbours in time had the same machine."""
    rates = _rates()
    share = median(live / bare for live, bare in zip(rates.live, rates.bare, strict=True))
    return Measured(100 * share, (("live binds/s", median(rates.live)), ("bare binds/s", median(rates.bare)), ("rounds", _ROUNDS)))


# --- A watch, from its bytes to what the scheduler knows ----------------------------------------------------------------------


class _Tape(Client):
    """A server that says once more what it said before."""

    def __init__(self, said: Mapping[str, Batches]) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        self._said = said
        self.playing = len(said)

    async def batches(self, path: str, **_: object) -> AsyncGenerator[list[bytes], None]:
        for lines in self._said[path]:
            yield lines
            # What came in together is taken together, as by the scheduler's thread.
            await asyncio.sleep(0)
        self.playing -= 1
        await asyncio.Event().wait()


async def _play(said: Mapping[str, Batches]) -> float:
    """Seconds of processor time for all of it."""
    tape, scheduler = _Tape(said), Scheduler(default_policy())
    cluster = LiveCluster(tape, may_write=lambda: False, resources=[resource_of(*kind) for kind in (NODE, POD)])
    gc.collect()
    began = time.process_time()
    running = asyncio.create_task(cluster.run())
    while tape.playing or cluster.backlog:
        await asyncio.sleep(0)
        scheduler.feed(cluster.events())
    took = time.process_time() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if not cluster.synced:
        raise AssertionError("the watch was not taken for a whole one")
    return took


def _watch_events() -> Measured:
    said = _rates().said
    events = sum(len(lines) for batches in said.values() for lines in batches)
    took = median(asyncio.run(_play(said)) for _ in range(5))
    return Measured(events / took, (("events", events), ("us each", 1e6 * took / events)))


# --- A cluster of some size ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Weight:
    ready_s: float
    resident_mb: float
    idle_percent: float


@cache
def _weight() -> _Weight:
    with Servers(native_gangs=False) as servers:
        kubeconfig = servers.kubeconfig()
        asyncio.run(_populate(kubeconfig))
        with Running(kubeconfig, _ALONE) as running:
            running.until_said("ready", timeout_s=_PATIENCE_S)
            ready_s = running.age_s()
            time.sleep(_SETTLE_S)
            before_s = running.cpu_s()
            time.sleep(_IDLE_S)
            idle = (running.cpu_s() - before_s) / _IDLE_S
            resident = running.resident_bytes()
            running.stop()
        said = next(line for line in running.lines if line["event"] == "ready")
        if (said["nodes"], said["pods"]) != (_MANY_NODES, _MANY_PODS):
            raise AssertionError(f"{said['nodes']} nodes and {said['pods']} pods were seen")
        return _Weight(ready_s, resident / _MB, 100 * idle)


async def _populate(kubeconfig: Path) -> None:
    async with town_at(kubeconfig) as town:
        await town.make_nodes(_MANY_NODES)
        await town.make_pods(_MANY_PODS, scheduler="muster", bound_to=_MANY_NODES)


def _ready() -> Measured:
    return Measured(_weight().ready_s)


def _resident() -> Measured:
    return Measured(_weight().resident_mb)


def _idle() -> Measured:
    return Measured(_weight().idle_percent)


_SMALL = f"{_NODES:,} nodes, {_PODS:,} pods"
_LARGE = f"{_MANY_NODES:,} nodes, {_MANY_PODS:,} pods"
WORKLOADS = (
    Workload(GROUP, f"binds, {_SMALL}, of those of a bare loop", "%", _binds, bar=90),
    Workload(GROUP, "a recorded watch, from bytes to what is known", "events/s", _watch_events, bar=20_000),
    Workload(GROUP, f"{_LARGE}: from start to ready", "s", _ready, bar=30, at_least=False),
    Workload(GROUP, f"{_LARGE}: resident", "MB", _resident, bar=2000, at_least=False),
    Workload(GROUP, f"{_LARGE}: at rest, of one core", "%", _idle, bar=5, at_least=False),
)
