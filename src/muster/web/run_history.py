"""What happened since the scheduler started: who lost what for whom, what was decided about each gang, how full the cluster was.

Everything is bounded. The thread that runs cycles writes here between them; a reader takes copies under the same lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from muster.cycle_log import CycleLogEntry
from muster.json_values import to_json
from muster.model.effects import Bind, Evict, Outcome
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.queue import ROOT_QUEUE
from muster.model.resource_amounts import GPU
from muster.queue_report import QueueRow
from muster.state.world import World

MAX_EVICTIONS: Final = 5000
MAX_ENTRIES: Final = 20
MAX_GANGS: Final = 20_000
MAX_SAMPLES: Final = 3000


@dataclass(frozen=True, slots=True)
class EvictedWork:
    """Pods of one gang that were evicted in one cycle for one gang. `lost_gpu_hours`: work since the last checkpoint and time to
    restart, of their GPUs; `lost_pod_hours`: the same of the pods."""

    time: float
    gang: str
    queue: str
    for_gang: str
    for_queue: str
    cause: str
    why: str
    pods: int
    gpus: int
    lost_gpu_hours: float
    lost_pod_hours: float


class RunHistory:
    def __init__(self) -> None:
        self.evictions: deque[dict[str, Any]] = deque(maxlen=MAX_EVICTIONS)
        self.samples: deque[dict[str, Any]] = deque(maxlen=MAX_SAMPLES)
        self._entries: dict[str, deque[dict[str, Any]]] = {}

    def record_evictions(self, world: World, outcome: Outcome) -> list[EvictedWork]:
        """Before their pods are gone."""
        groups: dict[tuple[str, str, str], list[Evict]] = {}
        for effect in outcome.effects:
            if isinstance(effect, Evict):
                groups.setdefault((effect.gang, effect.for_gang, effect.cause), []).append(effect)
        if not groups:
            return []
        queues = {gang.full_name: gang.queue for gang in world.facts.gangs.values()}
        found = [_lost_work(world, group, queues, outcome.now) for group in groups.values()]
        self.evictions.extend(map(to_json, found))
        return found

    def record_entries(self, outcome: Outcome, entries: Iterable[CycleLogEntry]) -> None:
        """The lines that the log has about each gang."""
        for event, fields in entries:
            gang = str(fields["gang"])
            entry = {"time": outcome.now, "event": event, **{key: fields[key] for key in fields if key != "gang"}}
            self._gang(gang).append(entry)
            if event == "evict" and fields["for_gang"]:
                self._gang(str(fields["for_gang"])).append({**entry, "event": "evicts", "victim": gang})

    def record_sample(self, time: float, rows: Iterable[QueueRow], *, resource: str, waiting: int) -> None:
        root = next((row for row in rows if row.queue == ROOT_QUEUE), None)
        if root is not None:
            used, total = dict(root.used).get(resource, 0), dict(root.deserved).get(resource, 0)
            self.samples.append({"time": time, "used": used, "allocatable": total, "waiting": waiting})

    def of_gang(self, gang: str) -> list[dict[str, Any]]:
        return list(self._entries.get(gang, ()))

    def _gang(self, gang: str) -> deque[dict[str, Any]]:
        found = self._entries.pop(gang, None)
        if found is None:
            found = deque(maxlen=MAX_ENTRIES)
            if len(self._entries) >= MAX_GANGS:
                # The one about which nothing was said for the longest time.
                del self._entries[next(iter(self._entries))]
        self._entries[gang] = found
        return found


def first_bound(world: World, outcome: Outcome) -> list[Gang]:
    """The gangs of which this cycle binds members, and none was bound before."""
    members = world.facts.members
    bound = [effect.uid for effect in outcome.effects if isinstance(effect, Bind) and effect.uid in members]
    keys = dict.fromkeys(members[uid].gang for uid in bound)
    gangs = [world.facts.gangs[key] for key in keys if key in world.facts.gangs]
    return [gang for gang in gangs if not any(world.phase(pod) is Phase.BOUND for pod in gang.pods())]


def _lost_work(world: World, group: list[Evict], queues: dict[str, str], now: float) -> EvictedWork:
    first = group[0]
    pods = [pod for effect in group if (pod := world.facts.pods.get(effect.uid)) is not None]
    hours = [pod.hours_lost(since=now, now=now) for pod in pods]
    return EvictedWork(
        time=now,
        gang=first.gang,
        queue=queues.get(first.gang, ""),
        for_gang=first.for_gang,
        for_queue=queues.get(first.for_gang, ""),
        cause=first.cause,
        why=first.why,
        pods=len(group),
        gpus=sum(pod.signature.request[GPU] for pod in pods),
        lost_gpu_hours=sum(each * pod.signature.request[GPU] for each, pod in zip(hours, pods, strict=True)),
        lost_pod_hours=sum(hours),
    )
