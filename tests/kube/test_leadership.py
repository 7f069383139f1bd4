"""Several schedulers of one real cluster: one writes at a time, and what it began the next one ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kube.gate import Asked
from tests.kube.ground import Ground, until
from tests.kube.nursery import Child, Nursery

from muster.lab.servers import Servers

DURATION_S, DEADLINE_S, RETRY_S = 5.0, 3.0, 0.4
LEASE = ("--lease-duration", str(DURATION_S), "--renew-deadline", str(DEADLINE_S), "--retry-period", str(RETRY_S))
LONG_LEASE = ("--lease-duration", "60", "--renew-deadline", "50", "--retry-period", "0.4")
SLACK_S = 4.0
"""For a machine that has other things to do."""
LEAVE = "sim.muster.dev/leave-seconds"


@pytest.fixture
def ground(servers: Servers, nursery: Nursery, tmp_path: Path) -> Iterator[Ground]:
    with Ground(servers, nursery, tmp_path) as made:
        yield made


def test_the_next_one_goes_on_where_a_leader_that_was_killed_had_to_stop(ground: Ground) -> None:
    _full_nodes(ground, leave_s=12)
    first, second = _leader_and_standby(ground, LEASE)
    for number in range(2):
        ground.user.apply(_pod(f"hi-{number}", cpu="4", priority=9, gang="hi"))
    until(lambda: len(ground.gate.done("evict")) == 2)
    first.kill()
    killed_at = time.monotonic()
    until(lambda: len(ground.gate.done("bind")) == 2)
    assert ground.gate.times("evict") == {"low-0": 1, "low-1": 1}
    assert ground.gate.times("bind") == {"hi-0": 1, "hi-1": 1}
    led_at = min(lease.at for lease in ground.gate.leases if lease.door == "second" and lease.is_done)
    assert DEADLINE_S < led_at - killed_at < DURATION_S + 2 * RETRY_S + SLACK_S
    assert {write.door for write in ground.gate.writes if write.verb == "evict"} == {"first"}
    assert {write.door for write in ground.gate.writes if write.verb == "bind"} == {"second"}
    assert not [write for write in ground.gate.writes if write.door == "second" and write.at < led_at]
    assert second.is_alive


def test_a_leader_that_cannot_renew_stops_to_write_before_another_begins(ground: Ground) -> None:
    _nodes(ground, "n1", "n2", cpu="100")
    first, _ = _leader_and_standby(ground, LEASE)
    with _stream_of_pods(ground):
        until(lambda: len(ground.gate.done("bind")) > 3)
        is_cut = threading.Event()

        async def before(asked: Asked) -> bool:
            return not (asked.is_lease and asked.door == "first" and is_cut.is_set())

        ground.gate.before = before
        is_cut.set()
        until(lambda: not first.is_alive)
        until(lambda: sum(write.door == "second" for write in ground.gate.done("bind")) > 3)
    assert first.said("stopping")[0]["code"] == 3
    renewed_at = max(lease.at for lease in ground.gate.leases if lease.door == "first" and lease.is_done)
    by_first = [write.at for write in ground.gate.writes if write.door == "first"]
    by_second = [write.at for write in ground.gate.writes if write.door == "second"]
    # It worked on while it could believe in its lease, and not a moment longer.
    assert any(at > renewed_at for at in by_first)
    assert max(by_first) < renewed_at + DEADLINE_S + 0.5
    assert max(by_first) < min(by_second)
    assert set(ground.gate.times("bind").values()) == {1}


def test_who_is_asked_to_stop_ends_its_writes_and_hands_over_at_once(ground: Ground) -> None:
    _nodes(ground, "n1", "n2", cpu="100")
    first, second = _leader_and_standby(ground, LONG_LEASE)
    with _stream_of_pods(ground):
        until(lambda: len(ground.gate.done("bind")) > 3)
        first.signal(signal.SIGTERM)
        asked_at = time.monotonic()
        until(lambda: not first.is_alive)
        until(lambda: any(write.door == "second" for write in ground.gate.done("bind")))
    assert first.said("stopping")[0]["code"] == 0
    assert first.said("ended")
    begun_at = min(write.at for write in ground.gate.writes if write.door == "second")
    assert begun_at - asked_at < 2 * RETRY_S + SLACK_S
    assert max(write.at for write in ground.gate.writes if write.door == "first") < begun_at
    until(lambda: all(pod["spec"].get("nodeName") for pod in ground.user.listed("Pod")))
    assert set(ground.gate.times("bind").values()) == {1}
    assert second.is_alive


# -- what is there -----------------------------------------------------------------------------------------------------------------


def _leader_and_standby(ground: Ground, lease: tuple[str, ...]) -> tuple[Child, Child]:
    first = ground.scheduler("first", *lease)
    until(lambda: first.is_ready)
    second = ground.scheduler("second", *lease)
    until(lambda: second.said("serving"))
    return first, second


def _full_nodes(ground: Ground, *, leave_s: int) -> None:
    """Two of them, with pods that take their time to go."""
    _nodes(ground, "n1", "n2", cpu="4")
    for number in range(2):
        low = _pod(f"low-{number}", cpu="4", priority=1, annotations={LEAVE: str(leave_s)})
        low["spec"]["nodeName"] = f"n{number + 1}"
        ground.user.apply({**low, "status": {"phase": "Running"}})
    ground.settle()


def _nodes(ground: Ground, *names: str, cpu: str) -> None:
    room = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    for name in names:
        status = {"allocatable": room, "capacity": room}
        ground.user.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status})
    ground.settle()


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
def _stream_of_pods(ground: Ground, *, every_s: float = 0.1) -> Iterator[None]:
    """Somebody makes one small pod after the other, so that there is always something to write."""
    over = threading.Event()

    def make() -> None:
        number = 0
        while not over.wait(every_s):
            ground.user.apply(_pod(f"small-{number}", cpu="10m", priority=0))
            number += 1

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
