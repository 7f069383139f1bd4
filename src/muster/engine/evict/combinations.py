"""All combinations of few units, the best first: how a plan is found whenever there is one.

Units that are alike count as one with a number, so that many equal pods make few combinations. Those whose freed amounts fall short
are left out before anything is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.plan_order import PlanOrder
from muster.engine.evict.unit_membership import SURPLUS, WHOLE, SurplusPart
from muster.engine.evict.victims import VictimTable
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

MAX_COMBINATIONS = 4096
"""As many as twelve units have that are all different."""

Enough = Callable[[RowIndex, IntColumn], BoolColumn]
"""Of these units, as many of each as a row says: which rows free enough?"""


def combinations(
    order: PlanOrder, victim_table: VictimTable, units: Sequence[int], freed: Amounts, enough: Enough, *, by_amounts: bool
) -> Iterator[list[int]] | None:
    """Combinations of these units that free enough, the best first; None where there are too many. `freed`: by entry.
    `by_amounts`: only amounts decide where the ask fits, so that units that free the same are alike."""
    b = order.units
    groups = _equal_units(b, victim_table, units, freed) if by_amounts else [[unit] for unit in units]
    sizes = [len(group) + 1 for group in groups]
    if np.prod(np.array(sizes, dtype=np.float64)) > MAX_COMBINATIONS:
        return None
    counts = np.indices(sizes, dtype=np.int64).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), dtype=np.int64)
    unit = np.array([group[0] for group in groups], dtype=np.intp)
    possible = _possible(b, victim_table, unit, counts)
    possible[possible] = enough(unit, counts[possible])
    counts = counts[possible]
    columns = order.columns(unit, counts)
    columns[order.below_column] = _of_any_part(columns[order.below_column], possible, sizes)
    best_first = np.lexsort(columns[::-1])
    rows = counts[best_first].tolist()
    return ([each for group, count in zip(groups, row, strict=True) for each in group[:count]] for row in rows)


def _of_any_part(values: FloatColumn, possible: BoolColumn, sizes: Sequence[int]) -> FloatColumn:
    """The largest value of each combination and of all that are parts of it: nobody is evicted only so that fewer gangs are left
    running below their minimum."""
    largest = np.full(len(possible), -np.inf)
    largest[possible] = values
    # Combinations are numbered as in `np.indices`.
    lattice = largest.reshape(sizes) if sizes else largest
    for axis in range(len(sizes)):
        lattice = np.maximum.accumulate(lattice, axis=axis)
    return np.asarray(lattice.reshape(-1)[possible], dtype=np.float64)


def _equal_units(b: EvictionUnits, victim_table: VictimTable, units: Sequence[int], freed: Amounts) -> list[list[int]]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for unit in units:
        entries, gang = b.entries_of(unit), int(b.gang[unit])
        of_gang = gang if b.kind[unit] != WHOLE or b.divides[unit] or gang in victim_table.multi_queue or gang in b.surplus else -1
        pods = [victim_table.pods[at] for at in b.victim[entries].tolist()] if gang in b.surplus else []
        parts = [*b.surplus[gang].used_by(pods).items()] if pods and b.kind[unit] == SURPLUS else []
        budget = b.budgets.evicted[unit].tobytes() if b.budgets is not None else b""
        where = (b.row[entries].tobytes(), b.in_domain[entries].tobytes(), freed[entries].tobytes())
        key = (
            of_gang, *parts, int(victim_table.gang_queue[gang]), int(b.unit_class[unit]), int(b.priority[unit]),
            float(b.cost[unit]), int(b.pods[unit]), budget, *where,
        )  # fmt: skip
        groups.setdefault(key, []).append(unit)
    return list(groups.values())


def _possible(b: EvictionUnits, victim_table: VictimTable, unit: RowIndex, counts: IntColumn) -> BoolColumn:
    """No gang loses more than its surplus by surplus members; none loses those beside all that it has, or beside their subgroup."""
    possible = np.ones(len(counts), dtype=np.bool_)
    parts: dict[tuple[int, SurplusPart], dict[int, int]] = {}
    subgroups: list[tuple[int, set[int]]] = []
    for at, each in enumerate(unit.tolist()):
        gang = int(b.gang[each])
        if b.kind[each] == SURPLUS and gang in b.surplus:
            victims = b.victims_of(each)
            for part, used in b.surplus[gang].used_by([victim_table.pods[victim] for victim in victims]).items():
                parts.setdefault((gang, part), {})[at] = used
            subgroups.append((at, set(victims)))
        elif b.kind[each] == WHOLE and not b.divides[each]:
            others = (b.gang[unit] == gang) & (b.kind[unit] != WHOLE)
            possible &= (counts[:, at] == 0) | (counts[:, others].sum(axis=1) == 0)
    for (gang, part), uses in parts.items():
        possible &= counts[:, list(uses)] @ np.array(list(uses.values()), dtype=np.int64) <= b.surplus[gang].left[part]
    for at, whole in subgroups:
        for other, some in subgroups if len(whole) > 1 else ():
            if other != at and not whole.isdisjoint(some):
                possible &= (counts[:, at] == 0) | (counts[:, other] == 0)
    return possible
