"""The state of the demo, from watches of the API server alone: gangs and their stages, nodes, GPUs in use, events."""

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
    """The current state of a gang."""

    name: str
    members: int = 0
    on_nodes: tuple[str, ...] = ()
    stage: str = "not submitted"
    why: str = ""


@dataclass(slots=True)
class DemoGangHistory:
    """The history of a gang, for the summary. Times are seconds since the start of the demo."""

    submitted_s: float | None = None
    first_running_s: float | None = None
    evicted: int = 0
    lost: int = 0


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
    """`on_message` gets each change of a gang's stage and each FailedScheduling event. `now`: seconds since the start."""

    now: Callable[[], float]
    on_message: OnMessage
    histories: dict[str, DemoGangHistory] = field(default_factory=lambda: {gang.name: DemoGangHistory() for gang in GANGS})
    events: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    binds: int = 0
    down: set[str] = field(default_factory=set)
    samples: list[tuple[float, float]] = field(default_factory=list)
    """Time, and share of the GPUs in use."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    _condition_messages: dict[str, str] = field(default_factory=dict)
    _stages: dict[str, str] = field(default_factory=dict)

    async def watch(self, client: Client) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (resource_of(*NODE), resource_of(*POD), POD_GROUPS, EVENTS):
                tasks.create_task(Reflector(client, resource, resource.versions[0], self._on_notices).run())

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def gang_statuses(self) -> list[DemoGangStatus]:
        return [self._gang_status(gang.name) for gang in GANGS]

    def node_of(self, gang: str) -> str:
        """The first node by name on which the gang runs; empty where there is none."""
        return min((member.node for member in self._members_of(gang) if member.node), default="")

    def gpus_per_node(self) -> Counter[str]:
        """GPUs in use on each node."""
        used: Counter[str] = Counter(dict.fromkeys(sorted(self._nodes), 0))
        for member in self._members.values():
            if member.node and member.phase not in _ENDED_PHASES:
                used[member.node] += member.gpus
        return used

    def gpus_in_use(self) -> tuple[int, int]:
        """GPUs in use, and GPUs of ready nodes."""
        used = self.gpus_per_node()
        return sum(used[node] for node in used if node not in self.down), GPUS_PER_NODE * len(self._nodes - self.down)

    def _gang_status(self, name: str) -> DemoGangStatus:
        members = self._members_of(name)
        nodes = tuple(sorted({member.node for member in members if member.node and member.phase not in _ENDED_PHASES}))
        return DemoGangStatus(name, len(members), nodes, _stage(members), self._condition_messages.get(name, ""))

    def _members_of(self, gang: str) -> list[_Member]:
        return [member for member in self._members.values() if member.gang == gang]

    # -- watching --------------------------------------------------------------------------------------------------------------

    def _on_notices(self, updates: list[WatchUpdate]) -> None:
        for kind, update_type, raw in updates:
            if update_type is not UpdateType.SYNCED:
                self._on_object(kind, msgspec.json.decode(raw), gone=update_type is UpdateType.DELETE)
        used, total = self.gpus_in_use()
        self.samples.append((self.now(), used / total if total else 0.0))
        self._report_stage_changes()

    def _on_object(self, kind: tuple[str, str], manifest: dict[str, Any], *, gone: bool) -> None:
        if kind == POD:
            self._on_pod(manifest, gone=gone)
        elif kind == NODE:
            self._on_node(manifest, gone=gone)
        elif kind == POD_GROUPS.key and not gone:
            self._condition_messages[manifest["metadata"]["name"]] = _unschedulable_message(manifest)
        elif kind == EVENTS.key and not gone:
            self._on_event(manifest)

    def _on_event(self, event: dict[str, Any]) -> None:
        message = f"{event['involvedObject']['name']}: {event['message']}"
        if event["reason"] in _SHOWN_REASONS:
            self.events.append(f"{event['reason']} {message}")
        if event["reason"] == _FAILED_SCHEDULING:
            self.on_message(message)

    def _on_pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        metadata = pod["metadata"]
        known = self._members.pop(metadata["uid"], None)
        if gone:
            if known is not None and known.phase not in _ENDED_PHASES and known.node:
                history = self.histories[known.gang]
                history.lost += known.node in self.down
                history.evicted += known.node not in self.down
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
        conditions = (node.get("status") or {}).get("conditions") or []
        ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
        self._nodes.discard(name) if gone else self._nodes.add(name)
        self.down.discard(name) if ready else self.down.add(name)

    def _report_stage_changes(self) -> None:
        for status in self.gang_statuses():
            if status.stage != self._stages.get(status.name, "not submitted"):
                self._stages[status.name] = status.stage
                self._record_stage(status)

    def _record_stage(self, status: DemoGangStatus) -> None:
        history, now = self.histories[status.name], self.now()
        if history.submitted_s is None:
            history.submitted_s = now
        if status.stage == "running" and history.first_running_s is None:
            history.first_running_s = now
        where = f" on {', '.join(status.on_nodes)}" if status.on_nodes and status.stage == "running" else ""
        self.on_message(f"{status.name} is {status.stage}{where}")


def _stage(members: list[_Member]) -> str:
    if not members:
        return "not submitted"
    if all(member.phase == "Succeeded" for member in members):
        return "finished"
    if any(member.terminating for member in members):
        return "terminating"
    if all(member.phase in ("Running", "Succeeded") for member in members):
        return "running"
    if all(member.node for member in members):
        return "starting"
    return "nominated" if any(member.nominated_node and not member.node for member in members) else "waiting"


def _unschedulable_message(group: dict[str, Any]) -> str:
    """The message of the PodGroup's Unschedulable condition, while that is true."""
    conditions = (group.get("status") or {}).get("conditions") or []
    active = (each for each in conditions if each.get("type") == "Unschedulable" and each.get("status") == "True")
    return next((each.get("message", "") for each in active), "")
