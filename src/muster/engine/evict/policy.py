"""What tells the evicting actions apart: whom an ask may look at, and in which order. Everything else they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.engine.evict.seats import Ints, SeatTable, among
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Pod
from muster.state.table import BoolColumn


class EvictionRules(Protocol):
    """Whom one ask may evict. Made for the ask before anybody is taken, so that what it is compared with stays the same."""

    @property
    def eligible(self) -> BoolColumn:
        """A column over gangs: whom the ask may evict in principle."""
        ...

    def queue_rank(self) -> Ints | None:
        """A rank over gangs by their queues, where that goes before their priority; None where priority alone decides."""
        ...

    def may_take(self, pods: Sequence[Pod]) -> Verdict:
        """Asked before each unit is taken, with all that was taken before already gone."""
        ...


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """What tells the evicting actions apart."""

    name: str
    rules: Callable[[Session, Ask, SeatTable], EvictionRules]
    firm_seats: bool = False
    """Pods that are not preemptible in their quota are barred too."""
    important_first: bool = False
    """Victims are put back by their importance, not by what they cost."""
    nobody: str = ""
    """The sentence for an ask that may evict nobody at all."""


def may_take(s: Session, ask: Ask, rules: EvictionRules, pods: Sequence[Pod]) -> Verdict:
    """May this unit go too? The action's rules and every plugin with a limit must agree."""
    verdict = rules.may_take(pods)
    if not verdict.ok:
        return verdict
    for plugin in s.policy.limits:
        verdict = plugin.may_take(s, ask, pods)
        if not verdict.ok:
            return verdict
    return YES


class PreemptRules:
    """Strictly lower priority, in the asker's own queue."""

    def __init__(self, s: Session, ask: Ask, seats: SeatTable) -> None:
        self.eligible: BoolColumn = lower_in_same_queue(s, ask, seats)

    def queue_rank(self) -> Ints | None:
        return None

    def may_take(self, pods: Sequence[Pod]) -> Verdict:  # noqa: ARG002
        return YES


def lower_in_same_queue(s: Session, ask: Ask, seats: SeatTable) -> BoolColumn:  # noqa: ARG001
    """Gangs of strictly lower priority that share a queue with the asker."""
    count = len(seats.gangs)
    lower: BoolColumn = seats.gang_priority[:count] < ask.gang.priority
    if not lower.any():
        return lower
    queues = {role.queue for role in ask.gang.roles}
    numbers = [seats.queue_number[queue] for queue in sorted(queues) if queue in seats.queue_number]
    same = among(numbers, len(seats.queue_number))[seats.gang_queue[:count]]
    for number, theirs in seats.mixed.items():
        same[number] = bool(queues & theirs)
    return without_self(ask, seats, same & lower)


def without_self(ask: Ask, seats: SeatTable, eligible: BoolColumn) -> BoolColumn:
    own = seats.gang_number.get(ask.gang.key)
    if own is not None:
        eligible[own] = False
    return eligible


GANG_PREEMPT = EvictionPolicy(
    name="gang-preempt",
    rules=PreemptRules,
    nobody="nobody of lower priority in its queue has a seat",
)

PREEMPT = EvictionPolicy(
    name="preempt",
    rules=PreemptRules,
    nobody=GANG_PREEMPT.nobody,
)
