"""Pods that come, run and end, in virtual time, with one scheduler: its memory must not grow, nor its cycles become longer."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from statistics import median

from tests.harness.scheduling_turn import step

from muster.config import default_policy
from muster.kube.read.object_references import Manifest
from muster.scheduler import Scheduler
from muster.sim.cluster import SimCluster
from tools.reliability.measured import Measured

_NODES, _GANG, _GANGS_A_TURN = 50, 10, 20
_RUN_S, _TURN_S = 20, 10.0
_PARTS = 10
_MOST_GROWTH_PER_HOUR = 1.0
_MOST_SLOWDOWN = 1.25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def soak(pods: int) -> Measured:
    """The first of ten parts warms up; what grows is measured between the others."""
    cluster = SimCluster()
    for number in range(_NODES):
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}, "status": {"allocatable": allocatable}}
        )
    scheduler = Scheduler(default_policy())
    scheduler.feed(cluster.relist())
    names, parts, began = _gang_names(), [], cluster.now
    turns = max(1, pods // (_PARTS * _GANG * _GANGS_A_TURN))
    bound = 0
    for _ in range(_PARTS):
        cycles: list[float] = []
        for _ in range(turns):
            bound += _turn(cluster, scheduler, list(islice(names, _GANGS_A_TURN)), cycles)
        gc.collect()
        parts.append((_resident_mb(), 1000 * median(cycles)))
    hours = (cluster.now - began) * (_PARTS - 2) / _PARTS / 3600
    return _measured(bound, parts, hours=hours, expected=_PARTS * turns * _GANG * _GANGS_A_TURN)


def _gang_names() -> Iterator[str]:
    return (f"gang-{number}" for number in count())


def _turn(cluster: SimCluster, scheduler: Scheduler, names: list[str], cycles: list[float]) -> int:
    for name in names:
        for number in range(_GANG):
            cluster.apply(_pod(f"{name}-{number}", gang=name))
    began = time.process_time()
    step(scheduler, cluster, cluster.now)
    cycles.append(time.process_time() - began)
    bound = sum(write.verb == "bind" for write in cluster.writes)
    # The simulator remembers them for its users.
    cluster.writes.clear()
    cluster.advance(_TURN_S)
    for pod in cluster.listed("Pod"):
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            cluster.delete("Pod", "default", pod["metadata"]["name"], permanently=True)
    return bound


def _pod(name: str, *, gang: str) -> Manifest:
    annotations = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": str(_GANG),
        "sim.muster.dev/run-seconds": str(_RUN_S),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"schedulerName": "muster", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
    }


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def _measured(bound: int, parts: list[tuple[float, float]], *, hours: float, expected: int) -> Measured:
    (first_mb, first_ms), (last_mb, last_ms) = parts[1], parts[-1]
    growth = 100 * (last_mb / first_mb - 1)
    faults = []
    if growth > _MOST_GROWTH_PER_HOUR * max(hours, 1.0):
        faults.append(f"the memory grew by {growth:.1f} %")
    if last_ms > _MOST_SLOWDOWN * first_ms:
        faults.append(f"a cycle took {first_ms:.1f} ms and takes {last_ms:.1f} ms")
    if bound != expected:
        faults.append(f"{bound} of {expected} pods were bound")
    reached = (
        f"{bound:,} pods in {hours * _PARTS / (_PARTS - 2):.1f} virtual hours; "
        f"{first_mb:.0f} MB, then {last_mb:.0f} MB; {first_ms:.1f} ms a cycle, then {last_ms:.1f} ms"
    )
    return Measured(reached, tuple(faults))
