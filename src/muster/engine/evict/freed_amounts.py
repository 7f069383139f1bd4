"""What nodes have free during a search, and what evicting units adds to it, in the columns that the ask requests."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.member_demand import MemberDemand
from muster.engine.evict.node_amounts import DeviceColumns, NodeAmounts
from muster.engine.evict.victims import VictimTable
from muster.state.node_table import BoolColumn, RowIndex
from muster.state.resource_columns import Amounts


class FreedAmounts:
    def __init__(
        self, node_amounts: NodeAmounts, units: EvictionUnits, victim_table: VictimTable, demands: list[MemberDemand]
    ) -> None:
        self.node_amounts, self.units, self.demands = node_amounts, units, demands
        self._victim_table = victim_table
        self.columns = sorted({int(column) for demand in demands for column in demand.requested})

    def free(self) -> Amounts:
        return self.node_amounts.free()

    @cached_property
    def of_victims(self) -> Amounts:
        """What each pod of the units uses of its node, devices included where the ask requests any."""
        return self.node_amounts.of_victims(self._victim_table, self.units.victim, self.units.request)

    @cached_property
    def _device_columns(self) -> list[DeviceColumns]:
        return self.node_amounts.device_columns(self.of_victims)

    def add_freed(self, free: Amounts, which: BoolColumn) -> None:
        """Add what these pods use to what their nodes have free."""
        rows = self.units.row[which]
        for column in self.columns:
            # Sums of whole numbers below 2**53 are exact.
            free[:, column] += np.bincount(rows, weights=self.of_victims[which, column], minlength=len(free)).astype(np.int64)
        for device_columns in self._device_columns:
            device_columns.add(free, self.units.row, which)

    def by_node(self, units: RowIndex) -> tuple[RowIndex, RowIndex, Amounts]:
        """What these units, in ascending order, use of each of their nodes: positions among the units, nodes, and amounts."""
        b = self.units
        position = np.full(len(b), -1, dtype=np.intp)
        position[units] = np.arange(len(units))
        here = np.flatnonzero((position[b.unit] >= 0) & (b.row >= 0))
        unit, row = position[b.unit[here]], b.row[here]
        order = np.lexsort((row, unit))
        here, unit, row = here[order], unit[order], row[order]
        first = np.flatnonzero(np.diff(unit, prepend=-1) | np.diff(row, prepend=-1))
        if not len(first):
            return unit, row, self.of_victims[here]
        return unit[first], row[first], np.add.reduceat(self.of_victims[here], first, axis=0)
