"""Ways to make members fit: units that free enough by themselves, and the first few units of a node together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.member_demand import MemberDemand, fits_in_rows
from muster.engine.evict.victims import mask_of
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

Candidate = tuple[tuple[float, ...], list[int], list[int], int]
"""A way to make members fit: its price, the units to evict, the nodes that they are on, and how many members fit then."""


@dataclass(frozen=True, slots=True)
class _VictimsByNode:
    """Placed pods on nodes that match the demand, node by node, and on each in the order in which their units are evicted."""

    b: EvictionUnits
    demand: MemberDemand
    free: Amounts
    fits: IntColumn
    """How many members each node takes as it is."""
    row: RowIndex
    unit: IntColumn
    request: Amounts
    first_of_row: BoolColumn
    first_of_unit: BoolColumn


def find_candidates(
    b: EvictionUnits, request: Amounts, excluded: BoolColumn, demand: MemberDemand, free: Amounts, slots: IntColumn, missing: int
) -> list[tuple[list[int], list[int], int]]:
    """The cheapest per member first: units, nodes, and how many members fit then. `excluded`: units that are not evictable."""
    here = b.by_row()
    here = here[~excluded[b.unit[here]]]
    here = here[mask_of(demand.rows, len(slots))[b.row[here]]]
    if not len(here):
        return []
    row, unit = b.row[here], b.unit[here]
    first_of_row = np.concatenate([[True], row[1:] != row[:-1]])
    first_of_unit = first_of_row | np.concatenate([[True], unit[1:] != unit[:-1]])
    victims = _VictimsByNode(b, demand, free, slots, row, unit, request[here], first_of_row, first_of_unit)
    at = np.flatnonzero(first_of_unit)
    gained = fits_in_rows(free[row[at]] + np.add.reduceat(victims.request, at, axis=0), demand, row[at]) - slots[row[at]]
    found_so_far = _single_units(b, missing, row[at], unit[at], gained)
    # Where every unit makes a member fit on every node by itself, several together make none fit more cheaply.
    if not (gained > 0).all():
        found_so_far += _unit_prefixes(victims)
    found_so_far.sort(key=lambda candidate: candidate[0])
    return [candidate[1:] for candidate in found_so_far]


def _single_units(b: EvictionUnits, missing: int, row: RowIndex, unit: IntColumn, gained: IntColumn) -> list[Candidate]:
    """Units that make members fit by themselves, over all their nodes."""
    total = np.bincount(unit, weights=gained, minlength=len(b)).astype(np.int64)
    found = np.flatnonzero(total > 0)
    useful = np.minimum(total[found], missing)
    ratio = b.cost[found] / useful
    best = found[np.lexsort((found, b.cost[found], ratio, b.unit_class[found]))[: 4 * missing + 16]]
    few = np.flatnonzero(mask_of(best, len(b))[unit])
    rows: dict[int, list[int]] = {}
    for each, where in zip(unit[few].tolist(), row[few].tolist(), strict=True):
        rows.setdefault(each, []).append(where)
    found_so_far: list[Candidate] = []
    for each in best.tolist():
        price, gain = float(b.cost[each]), int(total[each])
        found_so_far.append(((float(b.unit_class[each]), price / min(gain, missing), price, float(each)), [each], rows[each], gain))
    return found_so_far


def _unit_prefixes(victims: _VictimsByNode) -> list[Candidate]:
    """On each node the first few units, in order, that make a member fit together."""
    b, row, unit, request = victims.b, victims.row, victims.unit, victims.request
    begin = np.maximum.accumulate(np.where(victims.first_of_row, np.arange(len(row)), 0))
    summed = np.cumsum(request, axis=0)
    freed = summed - summed[begin] + request[begin]
    gained = fits_in_rows(victims.free[row] + freed, victims.demand, row) - victims.fits[row]
    spent = np.cumsum(np.where(victims.first_of_unit, b.cost[unit], 0.0))
    cost = spent - spent[begin] + b.cost[unit[begin]]
    enough = np.flatnonzero(gained > 0)
    at = enough[np.flatnonzero(np.diff(row[enough], prepend=-1))]
    at = at[unit[at] != unit[begin[at]]]
    found_so_far: list[Candidate] = []
    for i in at[np.lexsort((row[at], cost[at] / gained[at], b.unit_class[unit[at]]))][:64].tolist():
        units = _needed_units(victims, slice(int(begin[i]), i + 1))
        worst = float(b.unit_class[max(units)])
        price = float(b.cost[units].sum())
        found_so_far.append(((worst, price, price, float(row[i])), units, [int(row[i])], 1))
    return found_so_far


def _needed_units(victims: _VictimsByNode, stretch: slice) -> list[int]:
    """Of the first few units on a node, those that are needed for one more member: the costliest are left out first."""
    b, unit, request, node = victims.b, victims.unit[stretch], victims.request[stretch], victims.row[stretch][:1]
    kept = sorted(set(unit.tolist()))
    for each in sorted(kept, key=lambda u: (-b.unit_class[u], -b.cost[u], -u)):
        rest = [u for u in kept if u != each]
        freed = request[np.isin(unit, rest)].sum(axis=0)
        if rest and fits_in_rows(victims.free[node] + freed, victims.demand, node)[0] > victims.fits[node[0]]:
            kept = rest
    return kept
