"""Which units are evicted next in a domain, until the sums allow to place equal members of the ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from muster.engine.evict.candidates import find_candidates
from muster.engine.evict.freed_amounts import FreedAmounts
from muster.engine.evict.member_demand import MemberDemand
from muster.engine.evict.victim_search import VictimSelection
from muster.engine.evict.victims import mask_of
from muster.state.node_table import BoolColumn, IntColumn
from muster.state.resource_columns import Amounts

_FIRST_PREFIX = 32


def by_node_cost(amounts: FreedAmounts, selection: VictimSelection, demand: MemberDemand) -> bool:
    """Again and again the cheapest way to fit one more member: a unit that is enough, or the first few units of a node together."""
    while True:
        free = amounts.free()
        counts = demand.fit_counts(free)
        missing = len(demand.pods) - int(counts.sum())
        if missing <= 0:
            return True
        if not _evict_cheapest(amounts, selection, demand, free=free, counts=counts, missing=missing):
            return False


def _evict_cheapest(
    amounts: FreedAmounts, selection: VictimSelection, demand: MemberDemand, *, free: Amounts, counts: IntColumn, missing: int
) -> bool:
    evicted = False
    touched: set[int] = set()
    excluded = selection.excluded
    for units, rows, gain in find_candidates(amounts.units, amounts.of_victims, excluded, demand, free, counts, missing):
        if touched.intersection(rows) or any(excluded[unit] for unit in units):
            continue
        if evicted and gain > missing:
            # It was ranked by members that are no longer missing: find what is cheapest for the rest.
            break
        allowed = [unit for unit in units if selection.evict(unit)]
        if len(allowed) == len(units):
            missing -= gain
        evicted = True
        touched.update(rows)
        if missing <= 0:
            break
    return evicted


def in_given_order(units: Sequence[int]) -> Callable[[FreedAmounts, VictimSelection, MemberDemand], bool]:
    """These units and no others, in this order."""

    def choose(amounts: FreedAmounts, selection: VictimSelection, demand: MemberDemand) -> bool:
        for unit in units:
            if demand.missing(amounts.free()) <= 0:
                return True
            selection.evict(unit)
        return demand.missing(amounts.free()) <= 0

    return choose


def by_order(amounts: FreedAmounts, selection: VictimSelection, demand: MemberDemand) -> bool:
    """Units in their order, as few as the sums need; of these only the ones on the nodes where members cost least."""
    b, free = amounts.units, amounts.free()
    count = _shortest_prefix(amounts, selection.excluded, demand, free)
    if count is None:
        return False
    use = b.in_domain & (b.unit < count) & ~selection.excluded[b.unit]
    cost_here = np.bincount(b.row[use], weights=b.cost[b.unit[use]], minlength=len(free))
    amounts.add_freed(free, use)
    counts = demand.fit_counts(free)
    useful = np.flatnonzero(counts)
    order = useful[np.lexsort((useful, cost_here[useful] / counts[useful]))]
    enough = int(np.searchsorted(np.cumsum(counts[order]), len(demand.pods))) + 1
    serving = np.zeros(len(free), dtype=np.bool_)
    serving[order[:enough]] = True
    for unit in np.flatnonzero(mask_of(b.unit[use & serving[b.row]], len(b))).tolist():
        selection.evict(unit)
    return True


def _shortest_prefix(amounts: FreedAmounts, excluded: BoolColumn, demand: MemberDemand, free: Amounts) -> int | None:
    """How many units, in order, must be evicted before the sums allow a placement at all."""
    b = amounts.units
    use = b.in_domain & ~excluded[b.unit]

    def enough(count: int) -> bool:
        after = free.copy()
        amounts.add_freed(after, use & (b.unit < count))
        return demand.missing(after) <= 0

    low, high = 0, min(_FIRST_PREFIX, len(b))
    # A short prefix first, then ever longer ones: few units are enough most of the time, and few are quick to sum.
    while not enough(high):
        if high == len(b):
            return None
        low, high = high + 1, min(4 * high, len(b))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
