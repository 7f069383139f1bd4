"""The gangs and nodes of a cluster as rows of numbers, and what there is to say about one gang. No decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from muster.engine.session import Session
from muster.forecast.dry_run import DryRun, Forecast
from muster.model.effects import Evict
from muster.model.events import ClusterObject
from muster.model.gang import Gang, Stage, Subgroup
from muster.model.pod import PLACED, UNPLACED, Phase, Pod
from muster.model.resource_amounts import NOTHING
from muster.plugins.pdb import budgets_covering
from muster.queue_report import QueueRow, ResourceAmounts, queue_rows
from muster.state.gangs.gang_stage import stage
from muster.state.gangs.subgroups import in_phases, is_complete
from muster.state.world import World

_CLAIMED = (Phase.RESERVED, Phase.NOMINATED)


@dataclass(frozen=True, slots=True)
class ObservedGang:
    """One gang as it is now. `placed` members have a node; `requested` is what those without one ask for."""

    gang: str
    queue: str
    priority: int
    stage: str
    placed: int
    min: int
    size: int
    nodes: tuple[str, ...]
    age_s: float
    requested: ResourceAmounts
    subgroups: tuple[ObservedSubgroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedSubgroup:
    """A part of a gang as it is now; `complete` with `min` members and `min_subgroups` complete parts of its own."""

    name: str
    placed: int
    min: int
    size: int
    complete: bool
    complete_subgroups: int
    min_subgroups: int
    subgroups: tuple[ObservedSubgroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedNode:
    node: str
    pods: int
    used: ResourceAmounts
    allocatable: ResourceAmounts
    state: str
    """ready, or why nothing is placed there."""


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """Why a gang waits or runs. `ahead` are the gangs before it in its queue that wait, too, and `position` counts from 1."""

    gang: ObservedGang
    since_s: float
    position: int
    waiting_in_queue: int
    ahead: tuple[ObservedGang, ...]
    queue: QueueRow | None
    forecast: Forecast | None
    reservations: tuple[tuple[str, str], ...]
    """Nodes that are reserved or nominated: the phase, and the node."""
    loses: tuple[str, ...]
    """How many of its pods the next cycle evicts, and why."""
    budgets: tuple[str, ...]
    work_hours: float
    """The work of its pod that would lose most."""
    other_schedulers: tuple[tuple[str, int], ...] = ()
    """Schedulers that are not looked through here, and how many of its pods they serve: of those is known only what they use."""


def other_schedulers(objects: Iterable[ClusterObject], is_meant: Callable[[Pod], bool]) -> tuple[tuple[str, int], ...]:
    """Of the pods that are meant, how many which other schedulers serve."""
    others = (obj for obj in objects if isinstance(obj, Pod) and not obj.ours and obj.scheduler and not obj.finished)
    return tuple(sorted(Counter(pod.scheduler for pod in others if is_meant(pod)).items()))


def observed_gangs(world: World) -> list[ObservedGang]:
    return [observed_gang(world, world.facts.gangs[key]) for key in sorted(world.facts.gangs)]


def observed_gang(world: World, gang: Gang) -> ObservedGang:
    placements = world.placements.by_uid
    requested, placed, nodes = NOTHING, 0, set[str]()
    for pod in gang.pods():
        placement = placements.get(pod.uid)
        if placement is None:
            requested = requested.plus(pod.signature.request)
        elif placement.phase in PLACED:
            placed += 1
            nodes.add(placement.node or "")
    return ObservedGang(
        gang=gang.full_name,
        queue=gang.queue,
        priority=gang.priority,
        stage=stage(world, gang).value,
        placed=placed,
        min=gang.min,
        size=gang.size,
        nodes=tuple(sorted(nodes)),
        age_s=max(0.0, world.now - gang.created),
        requested=requested.items,
        subgroups=tuple(_observed_subgroup(world, each) for each in gang.subgroups),
    )


def _observed_subgroup(world: World, subgroup: Subgroup) -> ObservedSubgroup:
    placed = in_phases(world, PLACED)
    return ObservedSubgroup(
        name=subgroup.title,
        placed=subgroup.succeeded + sum(map(placed, subgroup.members)),
        min=subgroup.min,
        size=subgroup.succeeded + len(subgroup.members),
        complete=is_complete(subgroup, placed),
        complete_subgroups=sum(is_complete(each, placed) for each in subgroup.subgroups),
        min_subgroups=subgroup.min_subgroups,
        subgroups=tuple(_observed_subgroup(world, each) for each in subgroup.subgroups),
    )


def observed_nodes(world: World) -> Iterator[ObservedNode]:
    names = world.columns.names
    pods: dict[str, int] = {}
    for placement in world.placements.by_uid.values():
        if placement.node is not None:
            pods[placement.node] = pods.get(placement.node, 0) + 1
    for name in sorted(world.facts.nodes):
        node, row = world.facts.nodes[name], world.table.row[name]
        used, total = world.table.used[row].tolist(), world.table.allocatable[row].tolist()
        taints = sorted({f"{taint.key}:{taint.effect.value}" for taint in node.taints})
        yield ObservedNode(
            node=name,
            pods=pods.get(name, 0),
            used=tuple((resource, amount) for resource, amount in zip(names, used, strict=True) if amount),
            allocatable=tuple((resource, amount) for resource, amount in zip(names, total, strict=True) if amount),
            state=", ".join([*(["cordoned"] if node.unschedulable else []), *taints]) or "ready",
        )


def find_gang(world: World, name: str) -> list[Gang]:
    """The gangs with this name, with or without the namespace, or with a pod of this name."""
    gangs = world.facts.gangs.values()
    for matches in (
        lambda gang: gang.full_name == name,
        lambda gang: gang.full_name.rpartition("/")[2] == name,
        lambda gang: any(name in (pod.full_name, pod.name) for pod in gang.pods()),
    ):
        if found := [gang for gang in gangs if matches(gang)]:
            return found
    return []


@dataclass(frozen=True, slots=True)
class BeforeCycle:
    """A cluster before a cycle decides, kept until afterwards. `waiting` are the gangs of each queue in their order."""

    world: World
    waiting: dict[str, list[Gang]]
    queues: dict[str, QueueRow]


def before_cycle(s: Session) -> BeforeCycle:
    waiting: dict[str, list[Gang]] = {}
    for gang in sorted((s.world.facts.gangs[key] for key in s.world.placements.unplaced_members), key=s.gang_key):
        waiting.setdefault(gang.queue, []).append(gang)
    return BeforeCycle(s.world.copied(), waiting, {row.queue: row for row in queue_rows(s.world, s.policy)})


def described(before: BeforeCycle, gang: Gang) -> GangAnswer:
    """All that is known before a cycle."""
    world = before.world
    in_queue = before.waiting.get(gang.queue, [])
    position = next((number for number, each in enumerate(in_queue) if each.key == gang.key), -1)
    row = observed_gang(world, gang)
    return GangAnswer(
        gang=row,
        since_s=_since(gang, world, runs=row.stage == Stage.RUNNING.value),
        position=position + 1,
        waiting_in_queue=len(in_queue),
        ahead=tuple(observed_gang(world, each) for each in in_queue[: max(0, position)]),
        queue=before.queues.get(gang.queue),
        forecast=None,
        reservations=tuple(sorted(_reservations(gang, world))),
        loses=(),
        budgets=tuple(dict.fromkeys(key for pod in gang.pods() for key in budgets_covering(world, pod))),
        work_hours=_work_hours(gang, world),
    )


def with_cycle(answer: GangAnswer, run: DryRun, gang: Gang) -> GangAnswer:
    """And what the cycle decides."""
    return replace(answer, forecast=run.forecast(gang), loses=tuple(_losses(run, gang)))


def _reservations(gang: Gang, world: World) -> Iterator[tuple[str, str]]:
    for pod in gang.pods():
        placement = world.placements.by_uid.get(pod.uid, UNPLACED)
        if placement.phase in _CLAIMED:
            yield placement.phase.name.lower(), placement.node or ""


def _work_hours(gang: Gang, world: World) -> float:
    starts = [pod.checkpoint if pod.checkpoint is not None else pod.started for pod in gang.pods()]
    return max(((world.now - at) / 3600 for at in starts if at is not None), default=0.0)


def _losses(run: DryRun, gang: Gang) -> Iterator[str]:
    evictions = [effect for effect in run.outcome.effects if isinstance(effect, Evict) and effect.gang == gang.full_name]
    for why, number in Counter(effect.why for effect in evictions).items():
        yield f"{number} of {gang.size} pods in the next cycle: {why}"


def _since(gang: Gang, world: World, *, runs: bool) -> float:
    starts = [pod.started for pod in gang.pods() if pod.started is not None] if runs else []
    return max(0.0, world.now - min(starts, default=gang.created))
