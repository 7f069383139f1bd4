"""A gang whose queue borrows takes what siblings borrow, of lower priority, while their parent stays within its share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.oracles.giving import Giving, freed_by_queue
from tests.oracles.plan_units import Unit
from tests.oracles.queue_amounts import below_common_ancestor, charge, configured, is_over, is_within
from tests.oracles.snapshot import Snapshot


def takes_within_parent(s: Snapshot, queue: str) -> bool:
    """As the queue says itself, else as the policy does."""
    own = s.queues[queue].preempt_within_parent if queue in s.queues else ""
    return own == "LowerPriority" if own else s.rules.within_parent


def is_taken_within_parent(giving: Giving, foreign: Sequence[Unit]) -> bool:
    """Is all of this taken so, in some order, by the one queue that asks?"""
    if len(giving.takers) != 1 or not takes_within_parent(giving.s, giving.takers[0].queue):
        return False
    taker = giving.takers[0]
    parent = giving.s.parents.get(taker.queue, "")
    if not all(is_within(giving.tables, giving.finished, parent, name) for name in taker.ask):
        return False
    taken: list[Unit] = []
    left = [unit for unit in foreign if unit.priority < giving.priority]
    while left and (able := next((unit for unit in left if _gives(giving, unit, taken)), None)) is not None:
        taken.append(able)
        left.remove(able)
    return len(taken) == len(foreign)


def _gives(giving: Giving, unit: Unit, taken: Iterable[Unit]) -> bool:
    """It frees something contested that each level only borrows, and takes none below its share or guarantee."""
    taker = giving.takers[0]
    before = charge(giving.s, giving.start, [uid for other in taken for uid in other.pods], sign=-1)
    after = charge(giving.s, before, unit.pods, sign=-1)
    for queue, freed in freed_by_queue(giving.s, unit).items():
        theirs, ours = below_common_ancestor(giving.s, queue, taker.queue)
        if queue == taker.queue:
            continue
        if ours != [taker.queue] or not set(freed) & taker.contested:
            return False
        for level in theirs:
            if giving.why_protected(level, after, freed) or giving.crossed(level, after):
                return False
            judged = configured(giving.tables, level) & taker.contested
            if judged and not any(freed.get(name) and is_over(giving.tables, before, level, name) for name in judged):
                return False
    return True
