"""What it costs to evict for one pod, on all nodes: kept from one ask to the next that looks like it, and brought up to date only
for nodes on which something changed. So equal pods share one search.

Of the nodes that come next in the order it is also known what they will cost once their best plan is made: many at once are little
more work than one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from muster.engine.evict.node_keys import NodeEntries, NodeKeys, no_keys
from muster.engine.evict.plan_order import PlanKey, PlanOrder
from muster.engine.evict.unit_membership import WHOLE
from muster.state.node_table import BoolColumn, IntColumn, NodeTable, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.world import World

# Of so many nodes it is worked out what comes after their best plan.
_NEXT_NODES = 64


@dataclass(frozen=True, slots=True)
class Need:
    """What one pod requests, and what is lacking in queues, of which every unit frees `freed_in_queue`. `bounded`: amounts decide
    where it fits."""

    request: Amounts
    queue_lacks: Amounts
    freed_in_queue: Amounts
    bounded: bool


@dataclass(slots=True)
class NodeCosts:
    order: PlanOrder
    match: BoolColumn
    requested: RowIndex
    """The columns of the table that count."""
    row: RowIndex
    """Entries: what one unit has on one node, nodes one after the other, and on each its units in order."""
    unit: IntColumn
    freed: Amounts
    simple: BoolColumn
    """Nodes whose units can be evicted in any combination: single pods and whole gangs, without budgets."""
    now: NodeKeys
    after: NodeKeys
    """What is known of nodes with their best plan made and the pod nominated to them."""
    expected: dict[int, tuple[Amounts, list[int]]] = field(default_factory=dict)
    """Of these nodes: what they lack then, and the units that are evicted for that."""
    evicted: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    need: Need | None = None
    lacking: Amounts = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """What the pod lacks on every node."""
    position: int = -1
    _ranked: RankedNodes | None = None
    """From the second ask on."""

    def units_on(self, row: int) -> list[int]:
        return [unit for unit in self.unit[self._entries_on(row)].tolist() if not self.order.units.evicted[unit]]

    def _entries_on(self, row: int) -> slice:
        begin, end = np.searchsorted(self.row, (row, row + 1))
        return slice(int(begin), int(end))

    # -- up to date --------------------------------------------------------------------------------------------------------------

    def update(self, need: Need, world: World) -> None:
        """Bring the keys up to date."""
        b, before = self.order.units, self.need
        changed = world.changes.rows.since(self.position)
        is_next = before is not None and changed is not None and _is_alike(before, need)
        if is_next:
            stale = self._stale_rows(changed or (), need, world.table)
        else:
            self.lacking = need.request - (world.table.allocatable - world.table.planned)[:, self.requested]
            stale = np.arange(len(self.match))
        self.evicted, self.position, self.need = b.evicted.copy(), world.changes.rows.position, need
        if len(stale):
            self._find(self.now, stale, need, self.lacking, ~b.evicted[self.unit])
        if not is_next:
            self._ranked, self.expected = None, {}
        elif len(stale):
            self._rank(stale.tolist())
            if not len(need.queue_lacks):
                self._look_ahead(need, stale.tolist())

    def _stale_rows(self, changed: Iterable[int], need: Need, table: NodeTable) -> RowIndex:
        """Nodes on which something changed, other than as it was expected."""
        gone: dict[int, list[int]] = {}
        for unit in np.flatnonzero(self.order.units.evicted & ~self.evicted).tolist():
            for row in self._rows_of(unit):
                gone.setdefault(row, []).append(unit)
        stale: list[int] = []
        for row in sorted({*changed, *gone}):
            lacking = need.request - (table.allocatable[row] - table.planned[row])[self.requested]
            if row not in gone and np.array_equal(lacking, self.lacking[row]):
                continue
            self.lacking[row] = lacking
            expected, units = self.expected.pop(row, (None, []))
            if expected is not None and gone.get(row) == units and np.array_equal(lacking, expected):
                self.now.copy_row(self.after, row)
                self._rank([row])
            else:
                stale.append(row)
        return np.array(stale, dtype=np.intp)

    def _rows_of(self, unit: int) -> list[int]:
        b = self.order.units
        rows = dict.fromkeys(b.row[b.entries_of(unit)].tolist())
        return [row for row in rows if row >= 0 and self.match[row]]

    def _find(self, keys: NodeKeys, rows: RowIndex, need: Need, lacking: Amounts, usable: BoolColumn) -> None:
        """Find the keys of these nodes. `usable`: entries of units that are still there."""
        stale = np.zeros(len(self.match), dtype=np.bool_)
        stale[rows] = True
        here = np.flatnonzero(stale[self.row] & usable)
        freed = np.hstack([self.freed[here], need.freed_in_queue[self.unit[here]]])
        needed = np.hstack([lacking, np.broadcast_to(need.queue_lacks, (len(lacking), len(need.queue_lacks)))])
        keys.find(stale & self.match, NodeEntries(self.row[here], self.unit[here], freed, needed), self.simple & need.bounded)

    def _look_ahead(self, need: Need, stale: list[int]) -> None:
        """What follows after the best plans of the nodes that come next, where these are known."""
        assert self._ranked is not None
        soon = [row for _, row in self._ranked.in_order[:_NEXT_NODES]]
        rows = [row for row in dict.fromkeys((*soon, *stale)) if self.now.settled[row] and row not in self.expected]
        if not rows:
            return
        lacking, usable = self.lacking.copy(), ~self.order.units.evicted[self.unit]
        for row in rows:
            units, here = self.best_units(row), self._entries_on(row)
            taken = np.array([unit in units for unit in self.unit[here].tolist()], dtype=np.bool_)
            usable[here] &= ~taken
            lacking[row] += need.request - self.freed[here][taken].sum(axis=0)
            self.expected[row] = (lacking[row], sorted(units))
        self._find(self.after, np.array(rows, dtype=np.intp), need, lacking, usable)

    # -- the order of nodes --------------------------------------------------------------------------------------------------------

    def _rank(self, changed: list[int]) -> None:
        if self._ranked is None or len(changed) > _NEXT_NODES:
            self._ranked = RankedNodes(self.now)
            return
        for row in changed:
            self._ranked.put(row, self.now.sort_key(row) if self.now.feasible[row] else None)

    def rows_in_order(self) -> Iterable[tuple[PlanKey, int]]:
        """Nodes that could take the pod after evictions, with their keys, the best first, ties by name."""
        if self._ranked is not None:
            return self._ranked.in_order
        rows, keys = np.flatnonzero(self.now.feasible), self.now.keys
        return ((self.now.sort_key(row), row) for row in rows[np.lexsort((rows, *keys[::-1, rows]))].tolist())

    def best_units(self, row: int) -> list[int]:
        """The units of the estimate on one node."""
        if self.now.single[row] >= 0:
            return [int(self.now.single[row])]
        assert self.need is not None
        on_row = self._entries_on(row)
        here = np.arange(on_row.start, on_row.stop)[~self.order.units.evicted[self.unit[on_row]]]
        freed = np.hstack([self.freed[here], self.need.freed_in_queue[self.unit[here]]])
        needed = np.concatenate([self.lacking[row], self.need.queue_lacks])
        chosen: list[int] = []
        total = np.zeros(len(needed), dtype=np.int64)
        for at in range(len(here)):
            if (total >= needed).all():
                break
            chosen.append(at)
            total = total + freed[at]
        for at in reversed(chosen.copy()):
            if (total - freed[at] >= needed).all():
                total = total - freed[at]
                chosen.remove(at)
        return [int(self.unit[here[at]]) for at in chosen]


class RankedNodes:
    """Feasible nodes with their keys, in order."""

    def __init__(self, keys: NodeKeys) -> None:
        rows = np.flatnonzero(keys.feasible).tolist()
        self.in_order: list[tuple[PlanKey, int]] = sorted(zip(map(tuple, keys.keys[:, rows].T.tolist()), rows, strict=True))
        self._keys = {row: key for key, row in self.in_order}

    def put(self, row: int, key: PlanKey | None) -> None:
        """The node has another key now; None: it is not feasible any more."""
        before = self._keys.pop(row, None)
        if before is not None:
            del self.in_order[bisect_left(self.in_order, (before, row))]
        if key is not None:
            self._keys[row] = key
            insort(self.in_order, (key, row))


def build_node_costs(order: PlanOrder, match: BoolColumn, requested: RowIndex) -> NodeCosts:
    """The entries for these units on these nodes; no node has a cost yet."""
    b = order.units
    here = np.flatnonzero(b.in_domain & match[b.row])
    here = here[np.lexsort((b.unit[here], b.row[here]))]
    row, unit, freed = _by_row_and_unit(b.row[here], b.unit[here], b.request[here][:, requested])
    simple = np.ones(len(match), dtype=np.bool_)
    simple[row[(b.kind[unit] != WHOLE) | b.divides[unit]]] = False
    if b.budgets is not None:
        simple[:] = False
    now, after = no_keys(order, len(match)), no_keys(order, len(match))
    return NodeCosts(order, match, requested, row, unit, freed, simple, now=now, after=after)


def _by_row_and_unit(row: RowIndex, unit: IntColumn, request: Amounts) -> tuple[RowIndex, IntColumn, Amounts]:
    """Pods of one unit on one node as one entry. They are next to each other already."""
    if not len(row):
        return row, unit, request
    at = np.flatnonzero(np.concatenate([[True], (row[1:] != row[:-1]) | (unit[1:] != unit[:-1])]))
    return row[at], unit[at], np.add.reduceat(request, at, axis=0)


def _is_alike(a: Need, b: Need) -> bool:
    """Is the same lacking in queues, and do amounts decide for both?"""
    return np.array_equal(a.queue_lacks, b.queue_lacks) and a.bounded == b.bounded
