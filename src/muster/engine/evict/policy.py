"""What tells the evicting actions apart: whom an ask may look at, and in which order. Everything else they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.seats import Ints, SeatTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.state.table import BoolColumn


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """`eligible` is a column over gangs: whom the ask may evict in principle. `queue_rank` orders victims' queues, where that
    goes before their priority; None where priority alone decides."""

    name: str
    eligible: Callable[[Session, Ask, SeatTable], BoolColumn]
    queue_rank: Callable[[Session, Ask, SeatTable], Ints] | None = None
    nobody: str = ""
    """The sentence for an ask that may evict nobody at all."""


def lower_in_same_queue(s: Session, ask: Ask, seats: SeatTable) -> BoolColumn:  # noqa: ARG001
    """Gangs of strictly lower priority that share a queue with the asker."""
    count = len(seats.gangs)
    queues = {role.queue for role in ask.gang.roles}
    numbers = [seats.queue_number[queue] for queue in sorted(queues) if queue in seats.queue_number]
    same = np.isin(seats.gang_queue[:count], numbers)
    for number, theirs in seats.mixed.items():
        same[number] = bool(queues & theirs)
    eligible: BoolColumn = same & (seats.gang_priority[:count] < ask.gang.priority)
    return without_self(ask, seats, eligible)


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
