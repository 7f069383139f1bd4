"""The one order in which units and whole plans are compared, in all evicting actions.

Fewest disruption budgets violated; surplus members before whole gangs; the lowest of the highest priority (where queues come first,
the order of queues); fewest gangs left running below their minimum; the lowest cost; where queues came first, priority; fewest
pods; the youngest gang; the order of units. Of a plan the worst unit counts for surplus, priority and queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex

if TYPE_CHECKING:
    from muster.engine.evict.eviction_units import EvictionUnits

LOWEST_PRIORITY = -(2**31)

T = TypeVar("T", float, FloatColumn)

PlanKey = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What each unit takes of the disruption budgets, and how much each budget has left."""

    evicted: IntColumn
    """One row for each unit, one column for each budget."""
    left: IntColumn


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """How plans made of these units compare. `sums_priorities`: for one pod, where the sum of priorities counts as well."""

    units: EvictionUnits
    queues_first: bool
    priority_first: bool
    sums_priorities: bool
    budgets: BudgetUse | None

    def key(self, chosen: list[int]) -> PlanKey:
        """The key of one plan: the lower is better."""
        b, only = self.units, chosen[0] if len(chosen) == 1 else -1
        if only >= 0 and self.budgets is None and b.evicts[only] and not b.divides[only]:
            pods, priority, cost = int(b.pods[only]), float(b.priority[only]), float(b.cost[only])
            summed = pods * (priority - LOWEST_PRIORITY) if self.sums_priorities else 0.0
            first = float(b.rank[only]) if self.queues_first else priority
            youngest = -float(b.created[only])
            return tuple(
                self.arrange(0.0, float(b.kind[only]), first, summed, 0.0, cost, priority, float(pods), youngest, float(only))
            )
        unit = np.array(chosen, dtype=np.intp)
        columns = self.columns(unit, np.ones((1, len(unit)), dtype=np.int64))
        return tuple(float(column[0]) for column in columns)

    def may_improve(self, key: PlanKey) -> BoolColumn:
        """Units that may be in a plan with a lower key: no other that is evicted has a higher priority, say."""
        b = self.units
        if self.budgets is not None:
            return np.ones(len(b), dtype=np.bool_)
        leading = b.rank if self.queues_first else b.priority
        one, two = (leading, b.kind) if self.priority_first else (b.kind, leading)
        found: BoolColumn = ~b.evicts | (one < key[1]) | ((one == key[1]) & (two <= key[2]))
        return found

    def columns(self, unit: RowIndex, counts: IntColumn) -> list[FloatColumn]:
        """The keys of many plans at once. `counts`: a row for each plan, with how many units like each of these it has."""
        b = self.units
        chosen = counts > 0
        evicts = chosen & b.evicts[unit]
        kind = _worst(evicts, b.kind[unit], 0.0)
        rank = _worst(evicts, b.rank[unit], -np.inf)
        priority = _worst(evicts, b.priority[unit], -np.inf)
        first = rank if self.queues_first else priority
        summed = np.asarray(counts @ self.summed_values(unit), dtype=np.float64)
        below = self._below_min(unit, counts)
        cost = np.asarray(np.round(counts @ b.cost[unit], 9), dtype=np.float64)
        pods = np.asarray(counts @ b.pods[unit], dtype=np.float64)
        youngest = _worst(evicts, -b.created[unit], -np.inf)
        position = np.asarray(counts @ unit, dtype=np.float64)
        return self.arrange(self._violations(unit, counts), kind, first, summed, below, cost, priority, pods, youngest, position)

    def arrange(
        self,
        violations: T,
        kind: T,
        first: T,
        summed: T,
        below: T,
        cost: T,
        priority: T,
        pods: T,
        youngest: T,
        position: T,
    ) -> list[T]:
        """The columns in the order in which they are compared."""
        one, two = (first, kind) if self.priority_first else (kind, first)
        if self.queues_first:
            return [violations, one, two, below, cost, priority, summed, pods, youngest, position]
        return [violations, one, two, summed, below, cost, pods, youngest, position]

    def summed_values(self, unit: RowIndex) -> FloatColumn:
        """What each of these units adds to the sum of priorities, above the lowest possible: more victims never make a plan
        better."""
        b = self.units
        if not self.sums_priorities:
            return np.zeros(len(unit))
        return np.asarray(b.pods[unit] * (b.priority[unit] - LOWEST_PRIORITY), dtype=np.float64)

    @property
    def summed_column(self) -> int:
        return 6 if self.queues_first else 3

    @property
    def below_column(self) -> int:
        return 3 if self.queues_first else 4

    @property
    def cost_column(self) -> int:
        return 4 if self.queues_first else 5

    @property
    def column_count(self) -> int:
        return 10 if self.queues_first else 9

    def _violations(self, unit: RowIndex, counts: IntColumn) -> FloatColumn:
        if self.budgets is None:
            return np.zeros(len(counts))
        over = counts @ self.budgets.evicted[unit] - self.budgets.left
        return np.asarray(np.maximum(over, 0).sum(axis=1), dtype=np.float64)

    def _below_min(self, unit: RowIndex, counts: IntColumn) -> FloatColumn:
        """How many gangs a plan leaves running below their minimum."""
        b = self.units
        below = np.zeros(len(counts))
        if not np.count_nonzero(b.divides[unit]):
            return below
        for gang in np.unique(b.gang[unit][b.divides[unit]]).tolist():
            mine = (b.gang[unit] == gang) & b.divides[unit]
            evicted = counts[:, mine] @ b.pods[unit[mine]]
            left = b.placed[gang] - evicted
            below += (evicted > 0) & (left > 0) & (left < b.min[gang])
        return below


def violates_budget(budgets: BudgetUse | None, unit: RowIndex) -> BoolColumn:
    """Which of these units violate a disruption budget when they alone are evicted."""
    if budgets is None:
        return np.zeros(len(unit), dtype=np.bool_)
    return np.asarray((budgets.evicted[unit] > np.maximum(budgets.left, 0)).any(axis=1), dtype=np.bool_)


def _worst(chosen: BoolColumn, values: IntColumn | FloatColumn, nothing: float) -> FloatColumn:
    if not chosen.shape[1]:
        return np.full(len(chosen), nothing)
    return np.asarray(np.where(chosen, values.astype(np.float64), nothing).max(axis=1), dtype=np.float64)
