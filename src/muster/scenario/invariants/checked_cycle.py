"""One cycle as the invariants see it, and the sums that they share. Nothing here comes from the code that they check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Nominate, Outcome, Reserve
from muster.model.pod import Phase, Pod
from muster.state.reserve_pods import ReservePod
from muster.state.world import World

ResourceSums = dict[str, int]

# Defined again on purpose: an invariant that shares these with the code that it checks would share its mistakes.
USED_ON_NODE = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING, Phase.OVERDUE})
PLANNED_ON_NODE = frozenset({Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.OVERDUE, Phase.MOVING})
PLACED = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND})
ALL_PHASES = frozenset(Phase)
TERMINATING = frozenset({Phase.TERMINATING})
NOMINATED = frozenset({Phase.NOMINATED, Phase.MOVING})


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    cycle: int
    now: float
    text: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.invariant}: {self.text}"


@dataclass(slots=True)
class InvariantHistory:
    """What the checker keeps from cycle to cycle."""

    nominations: dict[str, dict[str, str]] = field(default_factory=dict)
    """Nominations after the cycle before: gang to pod to node."""
    binding: dict[str, str] = field(default_factory=dict)
    """Pods with a Bind effect and their node, until the bind fails or the pod is deleted."""
    evicting: dict[str, None] = field(default_factory=dict)
    """Pods with an Evict effect, until it fails or the pod is deleted."""
    evictions: int = 0
    """Since the last external change."""
    moved: dict[tuple[str, str], float] = field(default_factory=dict)
    """When pods were moved last, by namespace and controller."""
    kept_nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes that were kept after the cycle before for gangs that start nobody knows when."""
    placed_gangs: frozenset[str] = frozenset()
    """Gangs that had a node then, while any are kept."""


@dataclass(frozen=True, slots=True)
class CheckedCycle:
    """One cycle, as the invariants see it."""

    world: World
    outcome: Outcome
    policy: Policy
    history: InvariantHistory

    def phase(self, uid: str) -> Phase:
        placement = self.world.placements.by_uid.get(uid)
        return Phase.PENDING if placement is None else placement.phase

    def placed(self) -> Iterator[Bind | Reserve | Nominate]:
        for effect in self.outcome.effects:
            if isinstance(effect, Bind | Reserve | Nominate):
                yield effect

    def gang_key(self, uid: str) -> str:
        member = self.world.facts.members.get(uid)
        return "" if member is None else member.gang


def touched_resources(
    case: CheckedCycle, places: Callable[[Bind | Reserve | Nominate], Iterable[str]]
) -> dict[str, dict[str, bool]]:
    """By node or queue: the resources that newly placed pods request there, and whether one of these pods uses them now.

    A nomination counts on terminating pods: what is used now may be more than there is.
    """
    touched: dict[str, dict[str, bool]] = {}
    for effect in case.placed():
        pod = case.world.facts.pods.get(effect.uid)
        requested = [name for name, amount in pod.signature.request.items if amount] if pod is not None else []
        for place in places(effect) if requested else ():
            here = touched.setdefault(place, {})
            for name in requested:
                here[name] = here.get(name, False) or not isinstance(effect, Nominate)
    return touched


def reserve_pods(world: World) -> dict[str, ReservePod]:
    """What keeps capacity for pods that were moved and not created anew yet."""
    return {uid: move.reserve for uid, move in world.memory.moves.items() if not move.successor}


def add_requests(sums: ResourceSums, pod: Pod) -> None:
    for name, amount in pod.signature.request.items:
        sums[name] = sums.get(name, 0) + amount


def sum_of(parts: Iterable[Iterable[tuple[str, int]]]) -> ResourceSums:
    total: ResourceSums = {}
    for part in parts:
        for name, amount in part:
            total[name] = total.get(name, 0) + amount
    return total


def unequal_amounts(where: str, names: Sequence[str], recorded: Sequence[int], sums: Mapping[str, int]) -> Iterator[str]:
    """Amounts that differ from the sum over the pods, and resources without a column."""
    for name, value in zip(names, recorded, strict=True):
        if value != sums.get(name, 0):
            yield f"{where} {name} is {value}, and the pods add up to {sums.get(name, 0)}"
    for name in sums.keys() - set(names) if len(sums) > len(names) else ():
        yield f"{where} {name} has no column"
