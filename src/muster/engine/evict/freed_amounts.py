"""What nodes have free during a search, and what evicting units adds to it, in the columns that the ask requests."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.member_demand import MemberDemand
from muster.engine.evict.node_amounts import DeviceColumns, NodeAmounts
from muster.engine.evict.victims import VictimTable
from muster.model.pod import Placement, Pod
from muster.state.node_table import BoolColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.world import World


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

    def of_placements(self, world: World, placements: list[tuple[Pod, Placement]]) -> tuple[RowIndex, Amounts]:
        """The nodes that these pods are on, those that exist, and what they use of each."""
        table = world.table
        used = [(table.row[at.node or ""], self.node_amounts.of_pod(pod, at)) for pod, at in placements if at.node in table.row]
        rows = np.array(sorted({row for row, _ in used}), dtype=np.intp)
        amounts = np.zeros((len(rows), self.node_amounts.width), dtype=np.int64)
        for row, amount in used:
            amounts[np.searchsorted(rows, row)] += amount
        return rows, amounts
