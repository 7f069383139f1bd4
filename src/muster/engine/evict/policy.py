"""What tells the evicting actions apart: whom an ask may look at, and in which order. Everything else they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.engine.evict.seats import Ints, SeatTable, among
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Pod
from muster.state.table import BoolColumn


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """`eligible` is a column over gangs: whom the ask may evict in principle. `queue_rank` orders victims' queues, where that
    goes before their priority; None where priority alone decides."""

    name: str
    eligible: Callable[[Session, Ask, SeatTable], BoolColumn]
    queue_rank: Callable[[Session, Ask, SeatTable], Ints] | None = None
    may_take: Callable[[Session, Ask, Sequence[Pod]], Verdict] | None = None
    """Asked before each unit is taken, with all that was taken before already gone."""
    firm_seats: bool = False
    """Pods that are not preemptible in their quota are barred too."""
    important_first: bool = False
    """Victims are put back by their importance, not by what they cost."""
    nobody: str = ""
    """The sentence for an ask that may evict nobody at all."""


def may_take(s: Session, ask: Ask, policy: EvictionPolicy, pods: Sequence[Pod]) -> Verdict:
    """May this unit go too? The policy and every plugin with a limit must agree."""
    if policy.may_take is not None:
        verdict = policy.may_take(s, ask, pods)
        if not verdict.ok:
            return verdict
    for plugin in s.policy.limits:
        verdict = plugin.may_take(s, ask, pods)
        if not verdict.ok:
            return verdict
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
    eligible=lower_in_same_queue,
    nobody="nobody of lower priority in its queue has a seat",
)

PREEMPT = EvictionPolicy(
    name="preempt",
    eligible=lower_in_same_queue,
    nobody=GANG_PREEMPT.nobody,
)
