"""The estimate of what it costs to evict for one pod, on all nodes at once. It picks the node that is then simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.victims import VictimTable
from muster.engine.session import Session
from muster.model.pod import Phase
from muster.state.changes import ChangeLog
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts


@dataclass(slots=True)
class NodeCosts:
    """Shared by the asks of an action that look alike: only nodes on which something changed since the last ask are costed anew."""

    units: EvictionUnits
    match: BoolColumn
    rank: IntColumn
    """Position of each unit in the order of eviction on a node: the lowest priority first."""
    ends_gang: BoolColumn
    """Units that are gangs of several members."""
    overlapping_rows: RowIndex
    """Nodes with a gang and a unit that ends with it: the costs of the gang contain those of the unit, which would count twice."""
    row: RowIndex
    """Entries: what one unit has on one node, nodes one after the other, and on each its units in order."""
    unit: IntColumn
    freed: Amounts
    freed_in_queue: Amounts
    """Of each unit: what it frees in its queue, on all nodes together."""
    cost_terms: tuple[tuple[np.ufunc, FloatColumn], ...]
    """Of each unit, what its victims add to the cost of a node, and how; in the order in which costs are compared."""
    cost: FloatColumn
    feasible: BoolColumn
    in_bulk: BoolColumn
    evicted: BoolColumn
    position: int = -1
    queue_shortfall: list[int] | None = field(default=None)

    def units_on(self, row: int) -> list[int]:
        begin, end = np.searchsorted(self.row, (row, row + 1))
        return [unit for unit in self.unit[begin:end].tolist() if not self.units.evicted[unit]]

    def candidate_rows(self, among: BoolColumn) -> list[int]:
        """Of these nodes, those with an evictable unit."""
        rows: RowIndex = self.row[~self.units.evicted[self.unit]]
        found: list[int] = np.unique(rows[among[rows]]).tolist()
        return found

    def update(self, lacking: Amounts, full: Amounts | None, *, in_bulk: BoolColumn, changes: ChangeLog[int]) -> None:
        """Bring the costs up to date. `full`: what the queue lacks, which every node must free as well."""
        b, changed = self.units, changes.since(self.position)
        queue_shortfall = None if full is None else full.tolist()
        stale = self.in_bulk != in_bulk
        if self.position < 0 or changed is None or queue_shortfall != self.queue_shortfall:
            stale[:] = True
        else:
            stale[changed] = True
            stale[b.row[b.evicted[b.unit] & ~self.evicted[b.unit]]] = True
        self.in_bulk, self.evicted = in_bulk, b.evicted.copy()
        self.position, self.queue_shortfall = changes.position, queue_shortfall
        self.feasible[stale] = False
        here = np.flatnonzero((stale & in_bulk)[self.row] & ~b.evicted[self.unit])
        if len(here):
            self._update_rows(here, lacking, full)

    def _update_rows(self, here: RowIndex, lacking: Amounts, full: Amounts | None) -> None:
        row, unit, freed = self.row[here], self.unit[here], self.freed[here]
        lacking = lacking[row]
        if full is not None:
            freed = np.hstack([freed, self.freed_in_queue[unit]])
            lacking = np.hstack([lacking, np.broadcast_to(full, (len(row), len(full)))])
        begin = _row_starts(row)
        enough = np.asarray((_running_sums(freed, begin) >= lacking).all(axis=1), dtype=np.bool_)
        end = _first_of_row(row, enough)
        if not len(end):
            return
        kept = _still_needed(freed, begin[end], end, lacking[end])
        rows = row[end]
        self.feasible[rows] = True
        for at, (combine, term) in enumerate(self.cost_terms):
            neutral = 0.0 if combine is np.add else -np.inf
            self.cost[at, rows] = np.round(_reduce(combine, np.where(kept, term[unit], neutral), begin[end], end), 9)
        self.cost[-1, rows] *= -1.0

    def cheapest_row(self) -> int | None:
        """The cheapest node, ties by name."""
        rows = np.flatnonzero(self.feasible)
        for term in self.cost if len(rows) else ():
            mine = term[rows]
            rows = rows[mine == mine.min()]
        return int(rows[0]) if len(rows) else None


def build_node_costs(s: Session, b: EvictionUnits, victim_table: VictimTable, match: BoolColumn, requested: RowIndex) -> NodeCosts:
    """The entries for these units on these nodes; no node has a cost yet."""
    rank = np.empty(len(b), dtype=np.int64)
    rank[np.lexsort((np.arange(len(b)), ~b.unit_surplus, victim_table.gang_priority[b.unit_gang]))] = np.arange(len(b))
    here = np.flatnonzero(b.in_domain & match[b.row])
    here = here[np.lexsort((rank[b.unit[here]], b.row[here]))]
    row, unit, freed = _by_row_and_unit(b.row[here], b.unit[here], b.request[here][:, requested])
    freed_in_queue = np.zeros((len(b), len(requested)), dtype=np.int64)
    np.add.at(freed_in_queue, b.unit, b.request[:, requested])
    ends_gang = ~b.unit_surplus & (np.bincount(b.unit, minlength=len(b)) > 1)
    ends_gang[list(b.surplus_units)] = True
    cost_terms = _cost_terms(s, b, victim_table, ends_gang)
    nodes = len(match)
    nothing = np.zeros(nodes, dtype=np.bool_)
    return NodeCosts(
        b, match, rank, ends_gang, _overlapping_rows(row, unit, b.whole_unit), row, unit, freed, freed_in_queue, cost_terms,
        cost=np.zeros((len(cost_terms), nodes)), feasible=nothing.copy(), in_bulk=nothing, evicted=b.evicted.copy(),
    )  # fmt: skip


def _overlapping_rows(row: RowIndex, unit: IntColumn, whole_unit: IntColumn) -> RowIndex:
    """Nodes with a gang and a unit that ends with it."""
    follows = np.flatnonzero(whole_unit[unit] != unit)
    there = set(zip(row.tolist(), unit.tolist(), strict=True)) if len(follows) else set()
    pairs = zip(row[follows].tolist(), whole_unit[unit[follows]].tolist(), strict=True)
    return np.array(sorted({at for at, first in pairs if (at, first) in there}), dtype=np.intp)


def _cost_terms(
    s: Session, b: EvictionUnits, victim_table: VictimTable, ends_gang: BoolColumn
) -> tuple[tuple[np.ufunc, FloatColumn], ...]:
    units = len(b)
    bound = victim_table.phase[b.victim] == Phase.BOUND
    pods = np.bincount(b.unit[bound], minlength=units).astype(np.float64)
    hours = np.zeros(len(b.victim))
    for plugin in s.policy.counts_lost_hours:
        hours += plugin.lost_hours(s, victim_table, b.victim)
    youngest = np.full(units, -np.inf)
    np.maximum.at(youngest, b.unit[bound], victim_table.started[b.victim[bound]])
    lost = np.asarray(np.bincount(b.unit[bound], weights=hours[bound], minlength=units), dtype=np.float64)
    for unit, others in b.surplus_units.items():
        pods[unit] += pods[others].sum()
        lost[unit] += lost[others].sum()
        youngest[unit] = max(youngest[unit], youngest[others].max())
    priority = victim_table.gang_priority[b.unit_gang].astype(np.float64)
    return (
        (np.add, ends_gang.astype(np.float64)),
        (np.maximum, np.where(pods > 0, priority, -np.inf)),
        (np.add, priority * pods),
        (np.add, pods),
        (np.add, lost),
        (np.maximum, youngest),
    )


def _by_row_and_unit(row: RowIndex, unit: IntColumn, request: Amounts) -> tuple[RowIndex, IntColumn, Amounts]:
    """Pods of one unit on one node as one entry. They are next to each other already."""
    if not len(row):
        return row, unit, request
    at = np.flatnonzero(np.concatenate([[True], (row[1:] != row[:-1]) | (unit[1:] != unit[:-1])]))
    return row[at], unit[at], np.add.reduceat(request, at, axis=0)


def _row_starts(row: RowIndex) -> RowIndex:
    """For each entry, where the entries of its node begin."""
    starts = np.concatenate([[True], row[1:] != row[:-1]])
    begins: RowIndex = np.maximum.accumulate(np.where(starts, np.arange(len(row)), 0))
    return begins


def _still_needed(freed: Amounts, begin: RowIndex, end: RowIndex, lacking: Amounts) -> BoolColumn:
    """Which entries stay evicted on each node: from the highest priority on, what is not needed is put back."""
    kept = np.zeros(len(freed), dtype=np.bool_)
    sums = np.cumsum(freed, axis=0)
    total = sums[end] - sums[begin] + freed[begin]
    for step in range(int((end - begin).max()) + 1):
        live = np.flatnonzero(end - step >= begin)
        at = end[live] - step
        without = total[live] - freed[at]
        back = (without >= lacking[live]).all(axis=1)
        total[live[back]] = without[back]
        kept[at[~back]] = True
    return kept


def _reduce(combine: np.ufunc, values: FloatColumn, begin: RowIndex, end: RowIndex) -> FloatColumn:
    """Combine the values from `begin` to `end`, both included, of each node."""
    padded = np.concatenate([values, [0.0]])
    bounds = np.column_stack([begin, end + 1]).ravel()
    reduced: FloatColumn = combine.reduceat(padded, bounds)[::2]
    return reduced


def _running_sums(request: Amounts, begin: RowIndex) -> Amounts:
    """Per node, the sum of all entries up to each one."""
    summed = np.cumsum(request, axis=0)
    running: Amounts = summed - summed[begin] + request[begin]
    return running


def _first_of_row(row: RowIndex, where: BoolColumn) -> RowIndex:
    found = np.flatnonzero(where)
    _, first = np.unique(row[found], return_index=True)
    return found[first]
