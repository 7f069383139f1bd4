"""How a demonstration stands, from nothing but what the API server tells: gangs with their stage, nodes, GPUs in use, events."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from muster.adapters.kube import names
from muster.adapters.kube.client import Client
from muster.adapters.kube.reflector import Notice, Reflector, What
from muster.adapters.kube.refs import NODE, POD
from muster.adapters.kube.resources import Resource, resource_of
from muster.lab.story import GANG_LABEL, GANGS, GPU, GPUS_A_NODE

EVENTS: Final = Resource("", "Event", "events", ("v1",), namespaced=True, optional=False)
GROUPS: Final = resource_of(names.VOLCANO_GROUP, "PodGroup")
MOST_EVENTS: Final = 200
_REFUSED: Final = "FailedScheduling"
_WORTH_TELLING: Final = frozenset({"Preempting", "Preempted", "Nominated", "Released"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})

News = Callable[[str], None]


@dataclass(slots=True)
class Standing:
    """A gang as the objects show it."""

    name: str
    members: int = 0
    on_nodes: tuple[str, ...] = ()
    stage: str = "not yet submitted"
    why: str = ""


@dataclass(slots=True)
class Life:
    """What became of a gang so far, for the summary. Times are seconds since the beginning."""

    submitted_s: float | None = None
    first_whole_s: float | None = None
    evicted: int = 0
    lost: int = 0
    finished_s: float | None = None


@dataclass(slots=True)
class _Member:
    gang: str
    node: str
    phase: str
    nominated: str
    leaving: bool
    gpus: int


@dataclass(slots=True)
class Picture:
    """`news` is told each time that a gang changes its stage and of each event worth reading. `now` counts from the beginning."""

    now: Callable[[], float]
    news: News
    lives: dict[str, Life] = field(default_factory=lambda: {gang.name: Life() for gang in GANGS})
    events: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    binds: int = 0
    down: set[str] = field(default_factory=set)
    samples: list[tuple[float, float]] = field(default_factory=list)
    """When, and which share of the GPUs was in use."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    _whys: dict[str, str] = field(default_factory=dict)
    _stages: dict[str, str] = field(default_factory=dict)

    async def watch(self, client: Client) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (resource_of(*NODE), resource_of(*POD), GROUPS, EVENTS):
                tasks.create_task(Reflector(client, resource, resource.versions[0], self._take).run())

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        return [self._standing(gang.name) for gang in GANGS]

    def node_of(self, gang: str) -> str:
        """A node on which the gang runs, the first by name; empty where it runs nowhere."""
        return min((one.node for one in self._of(gang) if one.node), default="")

    def per_node(self) -> Counter[str]:
        """GPUs in use on each node."""
        used: Counter[str] = Counter(dict.fromkeys(sorted(self._nodes), 0))
        for one in self._members.values():
            if one.node and one.phase not in _ENDED:
                used[one.node] += one.gpus
        return used

    def in_use(self) -> tuple[int, int]:
        """GPUs in use, and GPUs on nodes that answer."""
        used = self.per_node()
        return sum(used[node] for node in used if node not in self.down), GPUS_A_NODE * len(self._nodes - self.down)

    def _standing(self, name: str) -> Standing:
        members = self._of(name)
        seats = tuple(sorted({one.node for one in members if one.node and one.phase not in _ENDED}))
        return Standing(name, len(members), seats, _stage(members), self._whys.get(name, ""))

    def _of(self, gang: str) -> list[_Member]:
        return [one for one in self._members.values() if one.gang == gang]

    # -- hearing ---------------------------------------------------------------------------------------------------------------

    def _take(self, notices: list[Notice]) -> None:
        for kind, what, raw in notices:
            if what is not What.SYNCED:
                self._hear(kind, msgspec.json.decode(raw), gone=what is What.GONE)
        used, total = self.in_use()
        self.samples.append((self.now(), used / total if total else 0.0))
        self._compare()

    def _hear(self, kind: tuple[str, str], found: dict[str, Any], *, gone: bool) -> None:
        if kind == POD:
            self._hear_pod(found, gone=gone)
        elif kind == NODE:
            self._hear_node(found, gone=gone)
        elif kind == GROUPS.key and not gone:
            self._whys[found["metadata"]["name"]] = _reason(found)
        elif kind == EVENTS.key and not gone:
            self._hear_event(found)

    def _hear_event(self, event: dict[str, Any]) -> None:
        said = f"{event['involvedObject']['name']}: {event['message']}"
        if event["reason"] in _WORTH_TELLING:
            self.events.append(f"{event['reason']} {said}")
        if event["reason"] == _REFUSED:
            self.news(said)

    def _hear_pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        metadata = pod["metadata"]
        known = self._members.pop(metadata["uid"], None)
        if gone:
            if known is not None and known.phase not in _ENDED and known.node:
                life = self.lives[known.gang]
                life.lost, life.evicted = life.lost + (known.node in self.down), life.evicted + (known.node not in self.down)
            return
        spec, status = pod["spec"], pod.get("status") or {}
        member = _Member(
            gang=metadata["labels"][GANG_LABEL],
            node=spec.get("nodeName", ""),
            phase=status.get("phase", ""),
            nominated=status.get("nominatedNodeName", ""),
            leaving="deletionTimestamp" in metadata,
            gpus=int(spec["containers"][0]["resources"]["limits"][GPU]),
        )
        self.binds += bool(member.node) and (known is None or not known.node)
        self._members[metadata["uid"]] = member

    def _hear_node(self, node: dict[str, Any], *, gone: bool) -> None:
        name = node["metadata"]["name"]
        ready = {one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or []}.get("Ready") == "True"
        self._nodes.discard(name) if gone else self._nodes.add(name)
        self.down.discard(name) if ready else self.down.add(name)

    def _compare(self) -> None:
        for standing in self.standings():
            before = self._stages.get(standing.name, "not yet submitted")
            if standing.stage != before:
                self._stages[standing.name] = standing.stage
                self._note(standing)

    def _note(self, standing: Standing) -> None:
        life, now = self.lives[standing.name], self.now()
        if life.submitted_s is None:
            life.submitted_s = now
        if standing.stage == "running" and life.first_whole_s is None:
            life.first_whole_s = now
        if standing.stage == "finished":
            life.finished_s = now
        where = f" on {', '.join(standing.on_nodes)}" if standing.on_nodes and standing.stage == "running" else ""
        self.news(f"{standing.name} is {standing.stage}{where}")


def _stage(members: list[_Member]) -> str:
    if not members:
        return "not yet submitted"
    if all(one.phase == "Succeeded" for one in members):
        return "finished"
    if any(one.leaving for one in members):
        return "leaving"
    if all(one.phase in ("Running", "Succeeded") for one in members):
        return "running"
    if all(one.node for one in members):
        return "starting"
    return "promised" if any(one.nominated and not one.node for one in members) else "waiting"


def _reason(group: dict[str, Any]) -> str:
    """What the scheduler wrote onto the PodGroup, while it is not well."""
    entries = (group.get("status") or {}).get("conditions") or []
    return next(
        (one.get("message", "") for one in entries if one.get("type") == "Unschedulable" and one.get("status") == "True"), ""
    )
