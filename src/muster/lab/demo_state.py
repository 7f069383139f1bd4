"""The state of the demo, from watches of the API server alone: gangs and their stages, nodes, GPUs in use, events."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from muster.kube.read import names
from muster.kube.read.api_resources import ApiResource, resource_of
from muster.kube.read.object_references import NODE, POD
from muster.kube.watch.client import Client
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.watch.reflector import Reflector
from muster.lab.demo_timeline import GANG_LABEL, GANGS, GPU, GPUS_PER_NODE, DemoGang

EVENTS: Final = ApiResource("", "Event", "events", ("v1",), namespaced=True, optional=False)
POD_GROUPS: Final = resource_of(names.VOLCANO_GROUP, "PodGroup")
_POD_EVENT_REASONS: Final = frozenset({"Preempting", "Preempted", "Nominated", "Released"})
_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_NOT_SUBMITTED: Final = "not submitted"


@dataclass(slots=True)
class DemoGangStatus:
    """The current state of a gang and its history. Times are seconds since the start of the demo."""

    gang: DemoGang
    stage: str = _NOT_SUBMITTED
    on_nodes: tuple[str, ...] = ()
    why: str = ""
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
    on_message: Callable[[str], None]
    gangs: dict[str, DemoGangStatus] = field(default_factory=lambda: {gang.name: DemoGangStatus(gang) for gang in GANGS})
    pod_events: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    """The last events of pods."""
    binds: int = 0
    down: set[str] = field(default_factory=set)
    utilisation: list[float] = field(default_factory=list)
    """The share of the GPUs in use, after each batch of updates."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)

    async def watch(self, client: Client) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (resource_of(*NODE), resource_of(*POD), POD_GROUPS, EVENTS):
                tasks.create_task(Reflector(client, resource, self._on_notices).run())

    # -- reading ---------------------------------------------------------------------------------------------------------------

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

    # -- watching --------------------------------------------------------------------------------------------------------------

    def _on_notices(self, updates: list[WatchUpdate]) -> None:
        for update in updates:
            if update.update_type is not UpdateType.SYNCED:
                self._on_object(update.kind, msgspec.json.decode(update.raw), gone=update.update_type is UpdateType.DELETE)
        used, total = self.gpus_in_use()
        self.utilisation.append(used / total if total else 0.0)
        for status in self.gangs.values():
            self._update_gang(status)

    def _on_object(self, kind: tuple[str, str], manifest: dict[str, Any], *, gone: bool) -> None:
        if kind == POD:
            self._on_pod(manifest, gone=gone)
        elif kind == NODE:
            self._on_node(manifest, gone=gone)
        elif kind == POD_GROUPS.key and not gone:
            self.gangs[manifest["metadata"]["name"]].why = _unschedulable_message(manifest)
        elif kind == EVENTS.key and not gone:
            self._on_event(manifest)

    def _on_event(self, event: dict[str, Any]) -> None:
        message = f"{event['involvedObject']['name']}: {event['message']}"
        if event["reason"] in _POD_EVENT_REASONS:
            self.pod_events.append(f"{event['reason']} {message}")
        elif event["reason"] == "FailedScheduling":
            self.on_message(message)

    def _on_pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        metadata = pod["metadata"]
        known = self._members.pop(metadata["uid"], None)
        if gone:
            if known is not None and known.phase not in _ENDED_PHASES and known.node:
                status = self.gangs[known.gang]
                status.lost += known.node in self.down
                status.evicted += known.node not in self.down
            return
        spec, pod_status = pod["spec"], pod.get("status") or {}
        member = _Member(
            gang=metadata["labels"][GANG_LABEL],
            node=spec.get("nodeName", ""),
            phase=pod_status.get("phase", ""),
            nominated_node=pod_status.get("nominatedNodeName", ""),
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

    def _update_gang(self, status: DemoGangStatus) -> None:
        members = [member for member in self._members.values() if member.gang == status.gang.name]
        status.on_nodes = tuple(sorted({member.node for member in members if member.node and member.phase not in _ENDED_PHASES}))
        before, status.stage = status.stage, _stage(members)
        if status.stage == before:
            return
        if status.submitted_s is None:
            status.submitted_s = self.now()
        is_running = status.stage == "running"
        if is_running and status.first_running_s is None:
            status.first_running_s = self.now()
        where = f" on {', '.join(status.on_nodes)}" if is_running else ""
        self.on_message(f"{status.gang.name} is {status.stage}{where}")


def _stage(members: list[_Member]) -> str:
    if not members:
        return _NOT_SUBMITTED
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
