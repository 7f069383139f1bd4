"""Several schedulers of one real cluster: one writes at a time, and what it began the next one ends.

Times are those at which a scheduler sent a request, by its own clock, and a candidate is judged by what it did at each look at the
lease: so no bound depends on how busy the machine is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.fork_server import ForkServer, SchedulerProcess
from tests.kube.live_backend import ProcessHarness, wait_until
from tests.kube.recording_proxy import ProxiedRequest

DURATION_S, DEADLINE_S, RETRY_S = 5.0, 3.0, 0.4
LEASE = ("--lease-duration", str(DURATION_S), "--renew-deadline", str(DEADLINE_S), "--retry-period", str(RETRY_S))
LONG_LEASE = ("--lease-duration", "60", "--renew-deadline", "50", "--retry-period", "0.4")
LEAVE_SECONDS = "sim.muster.dev/termination-seconds"


@pytest.fixture
def harness(servers: Servers, fork_server: ForkServer, tmp_path: Path) -> Iterator[ProcessHarness]:
    with ProcessHarness(servers, fork_server, tmp_path) as made:
        yield made


def test_the_next_leader_goes_on_where_a_killed_one_stopped(harness: ProcessHarness) -> None:
    _full_nodes(harness, leave_s=12)
    first, second = _leader_and_standby(harness, LEASE)
    for number in range(2):
        harness.user.apply(_pod(f"hi-{number}", cpu="4", priority=9, gang="hi"))
    wait_until(lambda: len(harness.proxy.completed("evict")) == 2)
    first.kill()
    wait_until(lambda: len(harness.proxy.completed("bind")) == 2)
    assert harness.proxy.count_by_object("evict") == {"low-0": 1, "low-1": 1}
    assert harness.proxy.count_by_object("bind") == {"hi-0": 1, "hi-1": 1}
    led_at = _led_at(harness, "second")
    reads = _reads_before(harness, "second", led_at)
    observed = [read for read in reads if read.answer["spec"] == reads[-1].answer["spec"]]
    # It counts from the answer to the first read that shows the last renewal; a retry period later it reads again.
    earliest, latest = observed[0].sent_at + DURATION_S, observed[1].sent_at - RETRY_S + DURATION_S
    assert led_at >= earliest
    assert [read for read in observed if read.sent_at >= latest] in ([], [reads[-1]])
    assert min(then.sent_at - read.sent_at for read, then in pairwise(observed)) < 2 * RETRY_S
    assert {write.listener for write in harness.proxy.writes if write.verb == "evict"} == {"first"}
    assert {write.listener for write in harness.proxy.writes if write.verb == "bind"} == {"second"}
    assert not [write for write in harness.proxy.writes if write.listener == "second" and write.sent_at < led_at]
    assert second.is_alive


def test_a_leader_that_cannot_renew_stops_to_write_before_another_begins(harness: ProcessHarness) -> None:
    _nodes(harness, "n1", "n2", cpu="100")
    first, _ = _leader_and_standby(harness, LEASE)
    with _stream_of_pods(harness):
        wait_until(lambda: len(harness.proxy.completed("bind")) > 3)
        is_cut = threading.Event()

        async def before(proxied: ProxiedRequest) -> bool:
            return not (proxied.is_lease and proxied.listener == "first" and is_cut.is_set())

        harness.proxy.before = before
        is_cut.set()
        wait_until(lambda: not first.is_alive)
        wait_until(lambda: sum(write.listener == "second" for write in harness.proxy.completed("bind")) > 3)
    assert first.log_events("stopping")[0]["code"] == 3
    renewed_at = max(lease.sent_at for lease in harness.proxy.leases if lease.listener == "first" and lease.is_done)
    by_first = [write.sent_at for write in harness.proxy.writes if write.listener == "first"]
    by_second = [write.sent_at for write in harness.proxy.writes if write.listener == "second"]
    # It worked on while it could believe in its lease, and no longer.
    assert any(at > renewed_at for at in by_first)
    assert max(by_first) < renewed_at + DEADLINE_S + 0.5
    assert max(by_first) < min(by_second)
    assert set(harness.proxy.count_by_object("bind").values()) == {1}


def test_who_is_asked_to_stop_ends_its_writes_and_hands_over_at_once(harness: ProcessHarness) -> None:
    _nodes(harness, "n1", "n2", cpu="100")
    first, second = _leader_and_standby(harness, LONG_LEASE)
    with _stream_of_pods(harness):
        wait_until(lambda: len(harness.proxy.completed("bind")) > 3)
        first.signal(signal.SIGTERM)
        wait_until(lambda: not first.is_alive)
        wait_until(lambda: any(write.listener == "second" for write in harness.proxy.completed("bind")))
    assert first.log_events("stopping")[0]["code"] == 0
    assert first.log_events("ended")
    assert not first.log_events("pending writes not drained in time; the next scheduler decides again")
    released = [lease for lease in harness.proxy.leases if lease.listener == "first" and lease.is_done][-1]
    assert released.answer["spec"].get("holderIdentity") is None
    led_at = _led_at(harness, "second")
    # The first read after the release finds the lease free.
    assert len([read for read in _reads_before(harness, "second", led_at) if read.sent_at > released.answered_at]) <= 1
    assert max(write.sent_at for write in harness.proxy.writes if write.listener == "first") < released.sent_at < led_at
    assert led_at < min(write.sent_at for write in harness.proxy.writes if write.listener == "second")
    wait_until(lambda: all(pod["spec"].get("nodeName") for pod in harness.user.listed("Pod")))
    assert set(harness.proxy.count_by_object("bind").values()) == {1}
    assert second.is_alive


# -- the lease ---------------------------------------------------------------------------------------------------------------------


def _led_at(harness: ProcessHarness, name: str) -> float:
    return min(lease.sent_at for lease in harness.proxy.leases if lease.listener == name and lease.is_done)


def _reads_before(harness: ProcessHarness, name: str, at: float) -> list[ProxiedRequest]:
    return [read for read in harness.proxy.lease_reads if read.listener == name and read.is_done and read.sent_at < at]


# -- what is there -----------------------------------------------------------------------------------------------------------------


def _leader_and_standby(harness: ProcessHarness, lease: tuple[str, ...]) -> tuple[SchedulerProcess, SchedulerProcess]:
    first = harness.scheduler("first", *lease)
    wait_until(lambda: first.is_ready)
    second = harness.scheduler("second", *lease)
    wait_until(lambda: second.log_events("serving"))
    return first, second


def _full_nodes(harness: ProcessHarness, *, leave_s: int) -> None:
    """Two of them, with pods that take their time to go."""
    _nodes(harness, "n1", "n2", cpu="4")
    for number in range(2):
        low = _pod(f"low-{number}", cpu="4", priority=1, annotations={LEAVE_SECONDS: str(leave_s)})
        low["spec"]["nodeName"] = f"n{number + 1}"
        harness.user.apply({**low, "status": {"phase": "Running"}})
    harness.settle()


def _nodes(harness: ProcessHarness, *names: str, cpu: str) -> None:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    for name in names:
        status = {"allocatable": allocatable, "capacity": allocatable}
        harness.user.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status})
    harness.settle()


def _pod(name: str, *, cpu: str, priority: int, gang: str = "", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    notes = dict(annotations or {})
    if gang:
        notes |= {"gang.scheduling.koordinator.sh/name": gang, "gang.scheduling.koordinator.sh/min-available": "2"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {
            "schedulerName": "muster",
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


@contextmanager
def _stream_of_pods(harness: ProcessHarness, *, every_s: float = 0.1) -> Iterator[None]:
    """Somebody makes one small pod after the other, so that there is always something to write."""
    over = threading.Event()

    def make() -> None:
        number = 0
        while not over.wait(every_s):
            harness.user.apply(_pod(f"small-{number}", cpu="10m", priority=0))
            number += 1

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
