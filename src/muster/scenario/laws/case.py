"""One cycle as the laws look at it, and the sums that they share. Nothing here is taken from the code that they watch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Hold, Nominate, Outcome
from muster.model.pod import Phase, Pod
from muster.state.world import World

Sums = dict[str, int]

# Written anew on purpose: a law that shares these with the code it watches would believe whatever that says.
FILLS_NODE = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.LEAVING, Phase.OVERDUE})
WILL_FILL_NODE = frozenset({Phase.NOMINATED, Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.OVERDUE})
SEATS = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND})
STAYS_IN_QUEUE = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND})
LIVES = frozenset(Phase)
LEAVES = frozenset({Phase.LEAVING})
PROMISED = frozenset({Phase.NOMINATED})


@dataclass(frozen=True, slots=True)
class Breach:
    law: str
    cycle: int
    now: float
    text: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.law}: {self.text}"


@dataclass(slots=True)
class Past:
    """What a judge remembers from cycle to cycle."""

    claims: dict[str, dict[str, str]] = field(default_factory=dict)
    """Nominations after the cycle before: gang to pod to node."""
    binding: dict[str, str] = field(default_factory=dict)
    """Pods that were told to bind, and where, until that fails or they are gone."""
    going: dict[str, None] = field(default_factory=dict)
    """Pods that were told to go, until they are gone."""
    evictions: int = 0
    """Since something new happened outside."""


@dataclass(frozen=True, slots=True)
class Case:
    """One cycle, as the laws look at it."""

    world: World
    outcome: Outcome
    policy: Policy
    past: Past

    def phase(self, uid: str) -> Phase:
        placement = self.world.placements.by_uid.get(uid)
        return Phase.PENDING if placement is None else placement.phase

    def placed(self) -> Iterator[Bind | Hold | Nominate]:
        for effect in self.outcome.effects:
            if isinstance(effect, Bind | Hold | Nominate):
                yield effect

    def gang_key(self, uid: str) -> str:
        member = self.world.facts.members.get(uid)
        return "" if member is None else member.gang


def add(sums: Sums, pod: Pod) -> None:
    for name, amount in pod.kind.request.items:
        sums[name] = sums.get(name, 0) + amount


def total_of(parts: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def unequal(where: str, names: Sequence[str], said: Sequence[int], sums: Mapping[str, int]) -> Iterator[str]:
    """Amounts by column that are not what the pods add up to. What no column has a name for is missing."""
    for name, value in zip(names, said, strict=True):
        if value != sums.get(name, 0):
            yield f"{where} {name} is {value}, and the pods add up to {sums.get(name, 0)}"
    for name in sums.keys() - set(names) if len(sums) > len(names) else ():
        yield f"{where} {name} has no column"
