"""How a demonstration stands, from nothing but what the API server tells: gangs with their stage, nodes, GPUs in use, events."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from muster.kube.read import names
from muster.kube.read.object_references import NODE, POD
from muster.kube.watch.api_resources import ApiResource, resource_of
from muster.kube.watch.client import Client
from muster.kube.watch.reflector import Reflector, UpdateType, WatchUpdate
from muster.lab.demo_timeline import GANG_LABEL, GANGS, GPU, GPUS_PER_NODE

EVENTS: Final = ApiResource("", "Event", "events", ("v1",), namespaced=True, optional=False)
POD_GROUPS: Final = resource_of(names.VOLCANO_GROUP, "PodGroup")
MAX_EVENTS: Final = 200
_FAILED_SCHEDULING: Final = "FailedScheduling"
_SHOWN_REASONS: Final = frozenset({"Preempting", "Preempted", "Nominated", "Released"})
_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})

OnMessage = Callable[[str], None]


@dataclass(slots=True)
class DemoGangStatus:
    """A gang as the objects show it."""

    name: str
    members: int = 0
    on_nodes: tuple[str, ...] = ()
    stage: str = "not yet submitted"
    why: str = ""


@dataclass(slots=True)
class DemoGangHistory:
    """What became of a gang so far, for the summary. Times are seconds since the beginning."""

    submitted_s: float | None = None
    first_running_s: float | None = None
    evicted: int = 0
    lost: int = 0
    finished_s: float | None = None


@dataclass(slots=True)
class _Member:
    gang: str
    node: str
    phase: str
    nominated_node: str
    terminating: bool
    gpus: int


@dataclass(slots=True)
class DemoState:
    """`on_message` is told each time that a gang changes its stage and of each event worth reading. `now` counts from the
    beginning."""

    now: Callable[[], float]
    on_message: OnMessage
    histories: dict[str, DemoGangHistory] = field(default_factory=lambda: {gang.name: DemoGangHistory() for gang in GANGS})
    events: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    binds: int = 0
    down: set[str] = field(default_factory=set)
    samples: list[tuple[float, float]] = field(default_factory=list)
    """When, and which share of the GPUs was in use."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    _condition_messages: dict[str, str] = field(default_factory=dict)
    _stages: dict[str, str] = field(default_factory=dict)

    async def watch(self, client: Client) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (resource_of(*NODE), resource_of(*POD), POD_GROUPS, EVENTS):
                tasks.create_task(Reflector(client, resource, resource.versions[0], self._on_notices).run())

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def gang_statuses(self) -> list[DemoGangStatus]:
        return [self._gang_status(gang.name) for gang in GANGS]

    def node_of(self, gang: str) -> str:
        """A node on which the gang runs, the first by name; empty where it runs nowhere."""
        return min((one.node for one in self._members_of(gang) if one.node), default="")

    def gpus_per_node(self) -> Counter[str]:
        """GPUs in use on each node."""
        used: Counter[str] = Counter(dict.fromkeys(sorted(self._nodes), 0))
        for one in self._members.values():
            if one.node and one.phase not in _ENDED_PHASES:
                used[one.node] += one.gpus
        return used

    def gpus_in_use(self) -> tuple[int, int]:
        """GPUs in use, and GPUs on nodes that answer."""
        used = self.gpus_per_node()
        return sum(used[node] for node in used if node not in self.down), GPUS_PER_NODE * len(self._nodes - self.down)

    def _gang_status(self, name: str) -> DemoGangStatus:
        members = self._members_of(name)
        seats = tuple(sorted({one.node for one in members if one.node and one.phase not in _ENDED_PHASES}))
        return DemoGangStatus(name, len(members), seats, _stage(members), self._condition_messages.get(name, ""))

    def _members_of(self, gang: str) -> list[_Member]:
        return [one for one in self._members.values() if one.gang == gang]

    # -- hearing ---------------------------------------------------------------------------------------------------------------

    def _on_notices(self, updates: list[WatchUpdate]) -> None:
        for kind, what, raw in updates:
            if what is not UpdateType.SYNCED:
                self._on_object(kind, msgspec.json.decode(raw), gone=what is UpdateType.DELETE)
        used, total = self.gpus_in_use()
        self.samples.append((self.now(), used / total if total else 0.0))
        self._report_stage_changes()

    def _on_object(self, kind: tuple[str, str], found: dict[str, Any], *, gone: bool) -> None:
        if kind == POD:
            self._on_pod(found, gone=gone)
        elif kind == NODE:
            self._on_node(found, gone=gone)
        elif kind == POD_GROUPS.key and not gone:
            self._condition_messages[found["metadata"]["name"]] = _unschedulable_message(found)
        elif kind == EVENTS.key and not gone:
            self._on_event(found)

    def _on_event(self, event: dict[str, Any]) -> None:
        said = f"{event['involvedObject']['name']}: {event['message']}"
        if event["reason"] in _SHOWN_REASONS:
            self.events.append(f"{event['reason']} {said}")
        if event["reason"] == _FAILED_SCHEDULING:
            self.on_message(said)

    def _on_pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        metadata = pod["metadata"]
        known = self._members.pop(metadata["uid"], None)
        if gone:
            if known is not None and known.phase not in _ENDED_PHASES and known.node:
                life = self.histories[known.gang]
                life.lost, life.evicted = life.lost + (known.node in self.down), life.evicted + (known.node not in self.down)
            return
        spec, status = pod["spec"], pod.get("status") or {}
        member = _Member(
            gang=metadata["labels"][GANG_LABEL],
            node=spec.get("nodeName", ""),
            phase=status.get("phase", ""),
            nominated_node=status.get("nominatedNodeName", ""),
            terminating="deletionTimestamp" in metadata,
            gpus=int(spec["containers"][0]["resources"]["limits"][GPU]),
        )
        self.binds += bool(member.node) and (known is None or not known.node)
        self._members[metadata["uid"]] = member

    def _on_node(self, node: dict[str, Any], *, gone: bool) -> None:
        name = node["metadata"]["name"]
        ready = {one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or []}.get("Ready") == "True"
        self._nodes.discard(name) if gone else self._nodes.add(name)
        self.down.discard(name) if ready else self.down.add(name)

    def _report_stage_changes(self) -> None:
        for standing in self.gang_statuses():
            before = self._stages.get(standing.name, "not yet submitted")
            if standing.stage != before:
                self._stages[standing.name] = standing.stage
                self._record_stage(standing)

    def _record_stage(self, standing: DemoGangStatus) -> None:
        life, now = self.histories[standing.name], self.now()
        if life.submitted_s is None:
            life.submitted_s = now
        if standing.stage == "running" and life.first_running_s is None:
            life.first_running_s = now
        if standing.stage == "finished":
            life.finished_s = now
        where = f" on {', '.join(standing.on_nodes)}" if standing.on_nodes and standing.stage == "running" else ""
        self.on_message(f"{standing.name} is {standing.stage}{where}")


def _stage(members: list[_Member]) -> str:
    if not members:
        return "not yet submitted"
    if all(one.phase == "Succeeded" for one in members):
        return "finished"
    if any(one.terminating for one in members):
        return "leaving"
    if all(one.phase in ("Running", "Succeeded") for one in members):
        return "running"
    if all(one.node for one in members):
        return "starting"
    return "promised" if any(one.nominated_node and not one.node for one in members) else "waiting"


def _unschedulable_message(group: dict[str, Any]) -> str:
    """What the scheduler wrote onto the PodGroup, while it is not well."""
    entries = (group.get("status") or {}).get("conditions") or []
    return next(
        (one.get("message", "") for one in entries if one.get("type") == "Unschedulable" and one.get("status") == "True"), ""
    )
