"""What nodes have free, as a search for victims counts it: the columns of the table and, where devices are requested, three more
for each device of a node (memory, cores, shares).

Sums only say when a placement is worth trying: they may allow what a filter refuses, and never refuse what a placement could do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.model.device import DeviceApi, DeviceRequest, DeviceSlot
from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.derived.device_usage import PLENTY, DeviceCapacity, DeviceUsage, device_position, device_usage
from muster.state.derived_values import Derived
from muster.state.device_slot_choice import fits_by_device
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.world import World


class NodeAmounts:
    """`devices` is how many devices the largest node has; 0 where none are requested, and then only the table counts."""

    def __init__(self, world: World, pods: Iterable[Pod]) -> None:
        self._world = world
        self.device_usage: DeviceUsage | None = None
        if any(pod.signature.devices for pod in pods) and device_usage(world).width:
            self.device_usage = device_usage(world)
        self.devices = self.device_usage.width if self.device_usage is not None else 0
        self.columns = len(world.columns.names)

    @property
    def width(self) -> int:
        return self.columns + 3 * self.devices

    def free(self) -> Amounts:
        """What is left on every node once the releases under way are done."""
        table = self._world.table
        free = table.allocatable - table.planned
        if self.device_usage is None:
            return free
        device_usage(self._world)
        left = self.device_usage.free(None, after_releases=True)
        return np.hstack([free, left.memory, left.cores, left.shares])

    def of_pod(self, pod: Pod, placement: Placement) -> Amounts:
        """What one placed pod uses of its node."""
        request = self._world.request(pod)
        if self.device_usage is None:
            return request
        taken = np.zeros(self.width, dtype=np.int64)
        taken[: self.columns] = request
        row = self._world.table.row.get(placement.node or "")
        if row is not None:
            self._add_slots(taken[self.columns :], row, placement.devices)
        return taken

    def of_victims(self, victim_table: VictimTable, victim: RowIndex, request: Amounts) -> Amounts:
        """The same of many placed pods."""
        if self.device_usage is None:
            return request
        found = _VICTIM_DEVICE_USE.of(self._world, _VictimDeviceUse)
        found.refresh(self._world, victim_table, self)
        return np.hstack([request, found.taken[victim]])

    def device_columns(self, taken: Amounts) -> list[DeviceColumns]:
        """The part of `of_victims` that is about devices, column by column."""
        found: list[DeviceColumns] = []
        for start in range(self.columns, self.width, self.devices or 1):
            victim, device_index = np.nonzero(taken[:, start : start + self.devices])
            found.append(DeviceColumns(start, self.devices, victim, device_index, taken[victim, start + device_index]))
        return found

    def _add_slots(self, taken: Amounts, row: int, slots: tuple[DeviceSlot, ...]) -> None:
        assert self.device_usage is not None
        for slot in slots:
            device_index = device_position(self.device_usage.devices_by_row[row], slot.index)
            if device_index is not None:
                taken[device_index] += slot.memory
                taken[self.devices + device_index] += slot.cores
                taken[2 * self.devices + device_index] += 1

    def put_slots(self, taken: Amounts, row: int, slots: tuple[DeviceSlot, ...]) -> None:
        taken[:] = 0
        if slots and row >= 0:
            self._add_slots(taken, row, slots)

    def max_pods(self, free: Amounts, rows: RowIndex, asks: tuple[DeviceRequest, ...]) -> IntColumn | None:
        """How many pods with these requests each row could serve at best; None where devices do not matter."""
        if self.device_usage is None or not asks:
            return None
        width, start = self.devices, self.columns
        memory, cores, shares = (free[:, start + i * width : start + (i + 1) * width] for i in range(3))
        left = DeviceCapacity(memory, cores, shares)
        counts = [fits_by_device(self.device_usage, ask, rows, left).sum(axis=1) // ask.count for ask in asks]
        least: IntColumn = np.minimum.reduce(counts)
        if asks[0].api is DeviceApi.WHOLE:
            least[~self.device_usage.has_devices(rows)] = PLENTY
        return least


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """What placed pods use of devices in one column, without the zeros: most pods use one device of many."""

    start: int
    width: int
    victim: RowIndex
    device_index: RowIndex
    amount: IntColumn

    def add(self, free: Amounts, rows: RowIndex, which: BoolColumn) -> None:
        """Add what some of the pods use; `rows` has the node of each pod."""
        mine = which[self.victim]
        at = rows[self.victim[mine]] * self.width + self.device_index[mine]
        # Sums of whole numbers below 2**53 are exact.
        freed = np.bincount(at, weights=self.amount[mine], minlength=len(free) * self.width).astype(np.int64)
        free[:, self.start : self.start + self.width] += freed.reshape(len(free), self.width)


class _VictimDeviceUse:
    """What each placed pod uses of the devices of its node, kept up by the log of placements."""

    def __init__(self) -> None:
        self.taken: Amounts = np.zeros((0, 0), dtype=np.int64)
        self._position = -1
        self._follows: tuple[tuple[int, ...], object] = ((), None)

    def refresh(self, world: World, victim_table: VictimTable, node_amounts: NodeAmounts) -> None:
        shape = (len(victim_table.alive), 3 * node_amounts.devices)
        follows = (world.changes.stamp((Topic.NODE_LAYOUT, Topic.NODE_DEVICES)), victim_table.generation)
        moved = world.changes.placements.since(self._position)
        if moved is None or self._follows != follows or self.taken.shape != shape:
            self.taken = np.zeros(shape, dtype=np.int64)
            moved = list(victim_table.index)
        self._position, self._follows = world.changes.placements.position, follows
        for uid in dict.fromkeys(moved):
            at = victim_table.index.get(uid)
            if at is not None:
                node_amounts.put_slots(self.taken[at], int(victim_table.row[at]), world.placements.by_uid[uid].devices)


_VICTIM_DEVICE_USE: Derived[_VictimDeviceUse] = Derived("device use of victims")
