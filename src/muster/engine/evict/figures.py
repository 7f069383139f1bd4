"""What nodes have left, as a search for room counts it: the columns of the table and, where devices are asked for, three more for
each device of a node (memory, cores, shares).

Sums only say when a placement is worth trying: they may allow what a check refuses, and never refuse what a placement could do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.seats import Ints, SeatTable
from muster.model.devices import DeviceAsk, DeviceDialect, Slot
from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.columns import Amounts
from muster.state.derived import Derived
from muster.state.devices import PLENTY, Left, Occupancy, occupancy, place_of
from muster.state.slot_choice import seats_by_device
from muster.state.table import BoolColumn, RowIndex
from muster.state.world import World


class Figures:
    """`devices` is how many devices the widest node has; 0 where nobody asks for any, and then only the table counts."""

    def __init__(self, world: World, pods: Iterable[Pod]) -> None:
        self._world = world
        self.book: Occupancy | None = None
        if any(pod.kind.devices for pod in pods) and occupancy(world).width:
            self.book = occupancy(world)
        self.devices = self.book.width if self.book is not None else 0
        self.columns = len(world.columns.names)

    @property
    def width(self) -> int:
        return self.columns + 3 * self.devices

    def free(self) -> Amounts:
        """What is left on every node once the releases under way are done."""
        table = self._world.table
        free = table.allocatable - table.taken
        if self.book is None:
            return free
        occupancy(self._world)
        left = self.book.left(None, soon=True)
        return np.hstack([free, left.memory, left.cores, left.shares])

    def of(self, pod: Pod, placement: Placement) -> Amounts:
        """What one placed pod takes of its node."""
        request = self._world.request(pod)
        if self.book is None:
            return request
        taken = np.zeros(self.width, dtype=np.int64)
        taken[: self.columns] = request
        row = self._world.table.row.get(placement.node or "")
        if row is not None:
            self._add_slots(taken[self.columns :], row, placement.devices)
        return taken

    def of_seats(self, seats: SeatTable, seat: RowIndex, request: Amounts) -> Amounts:
        """The same of many seats."""
        if self.book is None:
            return request
        found = _SEAT_SLOTS.of(self._world, _SeatSlots)
        found.refresh(self._world, seats, self)
        return np.hstack([request, found.taken[seat]])

    def device_columns(self, taken: Amounts) -> list[DeviceColumns]:
        """The part of `of_seats` that is about devices, figure by figure."""
        found: list[DeviceColumns] = []
        for start in range(self.columns, self.width, self.devices or 1):
            seat, place = np.nonzero(taken[:, start : start + self.devices])
            found.append(DeviceColumns(start, self.devices, seat, place, taken[seat, start + place]))
        return found

    def _add_slots(self, taken: Amounts, row: int, slots: tuple[Slot, ...]) -> None:
        assert self.book is not None
        for slot in slots:
            place = place_of(self.book.shelves[row], slot.index)
            if place is not None:
                taken[place] += slot.memory
                taken[self.devices + place] += slot.cores
                taken[2 * self.devices + place] += 1

    def put_slots(self, taken: Amounts, row: int, slots: tuple[Slot, ...]) -> None:
        taken[:] = 0
        if slots and row >= 0:
            self._add_slots(taken, row, slots)

    def most(self, free: Amounts, rows: RowIndex, asks: tuple[DeviceAsk, ...]) -> Ints | None:
        """How many pods with these asks each row could serve at best; None where devices do not come into it."""
        if self.book is None or not asks:
            return None
        width, start = self.devices, self.columns
        memory, cores, shares = (free[:, start + i * width : start + (i + 1) * width] for i in range(3))
        left = Left(memory, cores, shares)
        counts = [seats_by_device(self.book, ask, rows, left).sum(axis=1) // ask.count for ask in asks]
        least: Ints = np.minimum.reduce(counts)
        if asks[0].dialect is DeviceDialect.WHOLE:
            least[~self.book.has_devices(rows)] = PLENTY
        return least


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """What seats take of devices in one figure, as few numbers as there are: most seats are on one device of many."""

    start: int
    width: int
    seat: RowIndex
    place: RowIndex
    amount: Ints

    def add(self, free: Amounts, rows: RowIndex, which: BoolColumn) -> None:
        """Give back what some of the seats take; `rows` has the node of each seat."""
        mine = which[self.seat]
        at = rows[self.seat[mine]] * self.width + self.place[mine]
        # Sums of whole numbers below 2**53 are exact.
        freed = np.bincount(at, weights=self.amount[mine], minlength=len(free) * self.width).astype(np.int64)
        free[:, self.start : self.start + self.width] += freed.reshape(len(free), self.width)


class _SeatSlots:
    """What each seat takes of the devices of its node, kept up by the world's moves."""

    def __init__(self) -> None:
        self.taken: Amounts = np.zeros((0, 0), dtype=np.int64)
        self._position = -1
        self._follows: tuple[tuple[int, ...], object] = ((), None)

    def refresh(self, world: World, seats: SeatTable, figures: Figures) -> None:
        shape = (len(seats.alive), 3 * figures.devices)
        follows = (world.changes.stamp((Topic.NODE_LAYOUT, Topic.NODE_DEVICES)), seats.edition)
        moved = world.changes.placements.since(self._position)
        if moved is None or self._follows != follows or self.taken.shape != shape:
            self.taken = np.zeros(shape, dtype=np.int64)
            moved = list(seats.index)
        self._position, self._follows = world.changes.placements.position, follows
        for uid in dict.fromkeys(moved):
            at = seats.index.get(uid)
            if at is not None:
                figures.put_slots(self.taken[at], int(seats.row[at]), world.placements.by_uid[uid].devices)


_SEAT_SLOTS: Derived[_SeatSlots] = Derived("slots of seats")
