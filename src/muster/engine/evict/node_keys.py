"""What it costs to evict for one pod on each node, by the amounts: the key of its best plan, or a lower bound.

On a node whose units are single pods or whole gangs the estimate evicts units in order until the amounts are enough and puts back
what is not needed. Where that costs no more than any choice could, it is the best plan of the node, and only the best of these
nodes is simulated. Of all other nodes a lower bound is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.plan_order import PlanOrder, violates_budget
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

_EPSILON = 1e-9


@dataclass(slots=True)
class NodeKeys:
    """Columns over nodes."""

    order: PlanOrder
    keys: FloatColumn
    """By column of the order of plans, of each node: the key of its best plan, or a lower bound."""
    feasible: BoolColumn
    settled: BoolColumn
    """Nodes whose key is that of their best plan."""
    single: IntColumn
    """Of each node, the one unit whose eviction is the best plan; -1 where there is none such."""

    def copy_row(self, other: NodeKeys, row: int) -> None:
        """Take over what is known of one node."""
        self.keys[:, row] = other.keys[:, row]
        self.feasible[row], self.settled[row], self.single[row] = other.feasible[row], other.settled[row], other.single[row]

    def sort_key(self, row: int) -> tuple[float, ...]:
        key: list[float] = self.keys[:, row].tolist()
        return tuple(key)

    def find(self, stale: BoolColumn, entries: NodeEntries, bounded: BoolColumn) -> None:
        """Find the keys of these nodes. `bounded`: nodes where amounts decide, so that more than a lower bound can be known."""
        self.feasible[stale] = False
        self.settled[stale] = False
        self._bound(stale, entries)
        if len(entries.row):
            self._settle(entries, bounded)

    def _bound(self, stale: BoolColumn, entries: NodeEntries) -> None:
        """Lower bounds: nothing where nothing is lacking; else the class of the units that are needed at least."""
        row, unit, freed, needed = entries.row, entries.unit, entries.freed, entries.needed
        enough = stale & _all_at_least(np.zeros_like(needed), needed)
        self.feasible[enough] = True
        self.keys[:, enough] = -np.inf
        begin = _row_starts(row)
        sums = _running_sums(freed, begin)
        end = _first_of_row(row, _all_at_least(sums, needed[row]) & ~enough[row])
        rows, b = row[end], self.order.units
        self.feasible[rows] = True
        self.keys[:, rows] = -np.inf
        worst = unit[end]
        violates = violates_budget(b.budgets, worst)
        first = b.rank if self.order.queues_first else b.priority
        leading = (first, b.kind) if self.order.priority_first else (b.kind, first)
        for at, column in enumerate((violates, *(each[worst] for each in leading))):
            self.keys[at, rows] = column
        usable = b.unit_class[unit] <= _by_row(rows, b.unit_class[worst], len(stale))[row]
        usable &= ~enough[row]
        self._bound_sums(rows, NodeEntries(row[usable], unit[usable], freed[usable], needed))

    def _bound_sums(self, rows: RowIndex, entries: NodeEntries) -> None:
        """Where one unit is enough, the best of these; unless several together could be cheaper than that."""
        order, b, nodes = self.order, self.order.units, len(self.feasible)
        values = order.summed_values(entries.unit), b.cost[entries.unit]
        several = [entries.cheapest_sum(value, nodes) for value in values]
        alone = entries.alone_enough()
        single = np.full((2, nodes), np.inf)
        self.single[rows] = -1
        if len(alone):
            keys = (values[1], values[0]) if order.queues_first else (values[0], values[1])
            unit, row = entries.unit[alone], entries.row[alone]
            best = alone[np.lexsort((unit, *(key[alone] for key in reversed(keys)), row))]
            first = best[np.concatenate([[True], entries.row[best][1:] != entries.row[best][:-1]])]
            self.single[entries.row[first]] = entries.unit[first]
            single[:, entries.row[first]] = [value[first] for value in values]
        for at, column in enumerate((order.summed_column, order.cost_column)):
            self.keys[column, rows] = np.round(np.minimum(single[at], several[at])[rows], 9)
        leading = (1, 0) if order.queues_first else (0, 1)
        better = np.zeros(nodes, dtype=np.bool_)
        better |= single[leading[0]] < several[leading[0]] - _EPSILON
        better |= (single[leading[0]] <= several[leading[0]] + _EPSILON) & (single[leading[1]] <= several[leading[1]] + _EPSILON)
        self.single[rows[~better[rows]]] = -1

    def _settle(self, entries: NodeEntries, bounded: BoolColumn) -> None:
        """Evict in order and put back what is not needed, or the one unit that is enough: where that reaches the lower bound, it is
        the best plan."""
        row, unit, freed, needed = entries.row, entries.unit, entries.freed, entries.needed
        begin = _row_starts(row)
        lacks = ~_all_at_least(np.zeros_like(needed), needed)[row]
        enough = _all_at_least(_running_sums(freed, begin), needed[row])
        end = _first_of_row(row, enough & bounded[row] & lacks)
        if not len(end):
            return
        kept = _still_needed(freed, begin[end], end, needed[row[end]])
        alone = self.single[row] >= 0
        # One unit instead: it may come later in the order than those that were evicted until the amounts were enough.
        kept = np.where(alone, unit == self.single[row], kept)
        end = np.where(self.single[row[end]] >= 0, _row_ends(row)[end], end)
        self._record_settled(row[end], unit, kept, (begin[end], end))

    def _record_settled(self, rows: RowIndex, unit: IntColumn, kept: BoolColumn, span: tuple[RowIndex, RowIndex]) -> None:
        b, order = self.order.units, self.order

        def total(values: FloatColumn | IntColumn) -> FloatColumn:
            return _reduce(np.add, np.where(kept, values.astype(np.float64), 0.0), *span)

        def worst(values: FloatColumn | IntColumn) -> FloatColumn:
            return _reduce(np.maximum, np.where(kept, values.astype(np.float64), -np.inf), *span)

        summed, cost = total(order.summed_values(unit)), np.round(total(b.cost[unit]), 9)
        reached = (cost <= self.keys[order.cost_column, rows] + _EPSILON) & (
            summed <= self.keys[order.summed_column, rows] + _EPSILON
        )
        reached |= self.single[rows] >= 0
        first = worst((b.rank if order.queues_first else b.priority)[unit])
        none = np.zeros(len(rows))
        columns = order.arrange(
            none,
            worst(b.kind[unit]),
            first,
            summed,
            none,
            cost,
            worst(b.priority[unit]),
            total(b.pods[unit]),
            worst(-b.created[unit]),
            total(unit),
        )
        good = rows[reached]
        for at, column in enumerate(columns):
            self.keys[at, good] = column[reached]
        self.settled[good] = True


def no_keys(order: PlanOrder, nodes: int) -> NodeKeys:
    """No node has a key yet."""
    keys, single = np.full((order.column_count, nodes), -np.inf), np.full(nodes, -1, dtype=np.int64)
    return NodeKeys(order, keys, np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_), single)


@dataclass(frozen=True, slots=True)
class NodeEntries:
    """What units free on nodes that lack something, nodes one after the other."""

    row: RowIndex
    unit: IntColumn
    freed: Amounts
    needed: Amounts
    """By node."""

    def alone_enough(self) -> RowIndex:
        """Entries that free all that their node lacks."""
        return np.flatnonzero(_all_at_least(self.freed, self.needed[self.row]))

    def cheapest_sum(self, value: FloatColumn, nodes: int) -> FloatColumn:
        """No choice of two or more units has a lower sum of these values, one for each entry: neither than the cheapest of as many
        as are needed at least, nor than what is lacking at the lowest price for which it can be freed."""
        least = np.full(nodes, 2, dtype=np.int64)
        bound = np.zeros(nodes)
        for column in range(self.freed.shape[1]):
            lacks = np.flatnonzero(self.needed[self.row, column] > 0)
            if len(lacks):
                least = np.maximum(least, self._least_units(lacks, column, nodes))
                bound = np.maximum(bound, self._at_lowest_price(lacks, column, value, nodes))
        by_value = np.lexsort((value, self.row))
        row = self.row[by_value]
        begin = _row_starts(row)
        nth = np.arange(len(row)) - begin
        counted = np.where(nth < least[row], value[by_value], 0.0)
        return np.maximum(bound, np.bincount(row, weights=counted, minlength=nodes))

    def _least_units(self, lacks: RowIndex, column: int, nodes: int) -> IntColumn:
        order = lacks[np.lexsort((-self.freed[lacks, column], self.row[lacks]))]
        row = self.row[order]
        begin = _row_starts(row)
        sums = _running_sums(self.freed[order, column], begin)
        short = sums < self.needed[row, column]
        count: IntColumn = np.bincount(row[short], minlength=nodes) + 1
        return count

    def _at_lowest_price(self, lacks: RowIndex, column: int, value: FloatColumn, nodes: int) -> FloatColumn:
        frees = lacks[self.freed[lacks, column] > 0]
        price = value[frees] / self.freed[frees, column]
        order = np.lexsort((price, self.row[frees]))
        row, amounts = self.row[frees][order], self.freed[frees, column][order].astype(np.float64)
        before = np.cumsum(amounts) - amounts
        used = np.clip(self.needed[row, column] - (before - before[_row_starts(row)]), 0.0, amounts)
        return np.asarray(np.bincount(row, weights=used * price[order], minlength=nodes), dtype=np.float64)


def _by_row(row: RowIndex, values: IntColumn, nodes: int) -> IntColumn:
    found = np.full(nodes, -1, dtype=np.int64)
    found[row] = values
    return found


def _row_starts(row: RowIndex) -> RowIndex:
    """For each entry, where the entries of its node begin."""
    if not len(row):
        return np.zeros(0, dtype=np.intp)
    starts = np.concatenate([[True], row[1:] != row[:-1]])
    begins: RowIndex = np.maximum.accumulate(np.where(starts, np.arange(len(row)), 0))
    return begins


def _row_ends(row: RowIndex) -> RowIndex:
    """For each entry, where the entries of its node end."""
    ends: RowIndex = len(row) - 1 - _row_starts(row[::-1])[::-1]
    return ends


def _still_needed(freed: Amounts, begin: RowIndex, end: RowIndex, lacking: Amounts) -> BoolColumn:
    """Which entries stay evicted on each node: from the last in the order on, what is not needed is put back."""
    kept = np.zeros(len(freed), dtype=np.bool_)
    sums = np.cumsum(freed, axis=0)
    total = sums[end] - sums[begin] + freed[begin]
    for step in range(int((end - begin).max()) + 1):
        live = np.flatnonzero(end - step >= begin)
        at = end[live] - step
        without = total[live] - freed[at]
        back = _all_at_least(without, lacking[live])
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
    running: Amounts = summed - summed[begin] + request[begin] if len(request) else summed
    return running


def _first_of_row(row: RowIndex, where: BoolColumn) -> RowIndex:
    found = np.flatnonzero(where)
    return found[np.flatnonzero(np.diff(row[found], prepend=-1))]


def _all_at_least(amounts: Amounts, needed: Amounts) -> BoolColumn:
    """Rows with enough of everything. Column by column: many rows of few columns are slow to combine row by row."""
    found = np.ones(len(amounts), dtype=np.bool_)
    for column in range(amounts.shape[1]):
        found &= amounts[:, column] >= needed[:, column]
    return found
