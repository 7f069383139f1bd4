"""Devices of nodes: how much of each is taken, and by how many. Follows the moves of the world.

The figures are columns over nodes, one place for each device: what stands there now (`used`), and what will stand there once the
releases under way are done (`taken`), as in the table of nodes. Slots on devices that a node does not have count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from muster.model.device import Device, DeviceRequest, DeviceSlot
from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.derived.placement_counters import NOMINATED, TERMINATING, PlacementCounter, counter_of, presence_of
from muster.state.node_table import BoolColumn, NodeTable, RowIndex
from muster.state.world import World

Figures = npt.NDArray[np.int64]
"""One figure for each device of some nodes: a row for each node."""

MEMORY, CORES, HOLDERS = range(3)
_USED, _TAKEN = range(2)
_NONE, _BROKEN = -1, -2

# A device without a bound on its shares.
PLENTY = 1_000_000
_MOST_CHANGES = 10_000


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """What is left of each device of some nodes: memory, cores, and how many more may share it."""

    memory: Figures
    cores: Figures
    shares: Figures


_DevicesInUse = tuple[tuple[DeviceSlot, ...], str, int, tuple[DeviceRequest, ...]]
"""Slots, the node that they are on, how who has them stands there, and what that pod requests."""


@lru_cache(maxsize=4096)
def total_request(requests: tuple[DeviceRequest, ...]) -> Figures:
    """What the requests add up to: memory in bytes, memory in hundredths of a device, and cores."""
    each = [(request.count * request.memory, request.count * request.ratio, request.count * request.cores) for request in requests]
    total: Figures = np.array(each or [(0, 0, 0)], dtype=np.int64).sum(axis=0)
    return total


class DeviceUsage(PlacementCounter[_DevicesInUse], depends=(Topic.NODE_LAYOUT, Topic.NODE_DEVICES)):
    """Every device of every node that says which it has."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[tuple[int, int, int, int], Figures] = {}

    # -- looking -----------------------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """How many devices the node with most of them has."""
        return self.memory.shape[1]

    def free(self, index: RowIndex | None, *, after_releases: bool) -> DeviceCapacity:
        """What a further pod may have of the devices of these rows: never what is nominated to somebody else."""
        found = self._figures if index is None else self._figures[index]
        gone = found[:, :, _TAKEN] if after_releases else found.max(axis=2)
        bounds = self.bounds(index)
        return DeviceCapacity(
            bounds.memory - gone[:, :, MEMORY], bounds.cores - gone[:, :, CORES], bounds.shares - gone[:, :, HOLDERS]
        )

    def free_on(self, row: int, *, after_releases: bool) -> tuple[list[int], list[int], list[int]]:
        """The same of one node, as plain lists: memory, cores and holders of each of its devices."""
        count = len(self.devices_by_row[row])
        found = self._figures[row, :count]
        gone = found[:, _TAKEN] if after_releases else found.max(axis=1)
        memory, cores = self.memory[row, :count] - gone[:, MEMORY], self.cores[row, :count] - gone[:, CORES]
        return memory.tolist(), cores.tolist(), gone[:, HOLDERS].tolist()

    def has_devices(self, index: RowIndex | None) -> BoolColumn:
        """Which of these nodes say what devices they have."""
        return self._has if index is None else self._has[index]

    def of_type(self, kind: str, index: RowIndex | None) -> BoolColumn:
        """The places that have a device of this kind which takes further pods; as wide as the widest node."""
        code = self._kinds.get(kind, -1)
        found: BoolColumn = (self._kind if index is None else self._kind[index]) == code
        return found

    def bounds(self, index: RowIndex | None) -> DeviceCapacity:
        """The same of empty devices."""
        if index is None:
            return DeviceCapacity(self.memory, self.cores, self.shares)
        return DeviceCapacity(self.memory[index], self.cores[index], self.shares[index])

    def node_totals(self, index: RowIndex | None) -> tuple[Figures, Figures]:
        """What pods request, or will, of all devices of each node together, and what there is: the columns of `total_request`.
        These are amounts of requests, not of slots, so that they do not depend on which devices serve a pod."""
        return (self._requested, self._totals) if index is None else (self._requested[index], self._totals[index])

    def figures(self) -> dict[object, object]:
        """All that is counted, as plain values: two of these can be compared."""
        found: dict[object, object] = {}
        for row, name in enumerate(self._names):
            if self._requested[row].any():
                found[name] = self._requested[row].tolist()
            for place, device in enumerate(self.devices_by_row[row]):
                here = self._figures[row, place]
                if here.any():
                    found[name, device.index] = here.tolist()
        return found

    # -- keeping up --------------------------------------------------------------------------------------------------------------

    def follow(self, world: World, moved: Iterable[str] | None = None) -> None:
        if moved is None:
            self._lay_out(world.table)
        if self.width:
            super().follow(world, moved)

    def entry(self, pod: Pod, node: str, placement: Placement) -> _DevicesInUse | None:
        if not placement.devices:
            return None
        return placement.devices, node, presence_of(placement), pod.signature.devices

    def count(self, entry: _DevicesInUse, *, by: int) -> None:
        slots, node, presence, requests = entry
        row = self._row.get(node)
        if row is None:
            return
        if presence != TERMINATING:
            self._requested[row] += by * total_request(requests)
        for slot in slots:
            place = device_position(self.devices_by_row[row], slot.index)
            if place is not None:
                here = self._figures[row, place]
                here += self._change(slot.memory, slot.cores, presence, by)

    def _change(self, memory: int, cores: int, presence: int, by: int) -> Figures:
        """What a slot adds to the figures of its device. There are few different ones."""
        key = (memory, cores, presence, by)
        found = self._changes.get(key)
        if found is None:
            if len(self._changes) >= _MOST_CHANGES:
                self._changes.clear()
            found = np.zeros((2, 3), dtype=np.int64)
            found[[presence != NOMINATED, presence != TERMINATING]] = (by * memory, by * cores, by)
            self._changes[key] = found
        return found

    def _lay_out(self, table: NodeTable) -> None:
        self._names, self._row = table.names, table.row
        made: dict[object, tuple[Device, ...]] = {}
        self.devices_by_row = [_node_devices(node.devices, made) if node.devices else () for node in table.nodes]
        """The node's devices in the order of their indices, without what tells equal nodes apart."""
        shape = (len(table), max(map(len, self.devices_by_row), default=0))
        self.memory, self.cores, self.shares = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self._kind = np.full(shape, _NONE, dtype=np.int8)
        self._kinds: dict[str, int] = {}
        self._figures: Figures = np.zeros((*shape, 2, 3), dtype=np.int64)
        self._has: BoolColumn = np.array([bool(on_node) for on_node in self.devices_by_row], dtype=np.bool_)
        rows: dict[tuple[Device, ...], list[int]] = {}
        for row, on_node in enumerate(self.devices_by_row):
            rows.setdefault(on_node, []).append(row)
        self.model_by_row = [0] * len(table)
        """A number that nodes with equal devices share."""
        for number, (on_node, some) in enumerate(rows.items()):
            for row in some:
                self.model_by_row[row] = number
            self._put(some, on_node)
        count = (self._kind != _NONE).sum(axis=1)
        self._totals: Figures = np.stack((self.memory.sum(axis=1), 100 * count, self.cores.sum(axis=1)), axis=1)
        self._requested: Figures = np.zeros_like(self._totals)

    def _put(self, rows: list[int], devices: tuple[Device, ...]) -> None:
        count = len(devices)
        self.memory[rows, :count] = [device.memory for device in devices]
        self.cores[rows, :count] = [device.cores for device in devices]
        self.shares[rows, :count] = [device.shares or PLENTY for device in devices]
        kinds = self._kinds
        self._kind[rows, :count] = [kinds.setdefault(device.kind, len(kinds)) if device.healthy else _BROKEN for device in devices]


def _node_devices(devices: tuple[Device, ...], made: dict[object, tuple[Device, ...]]) -> tuple[Device, ...]:
    ordered = tuple(sorted(devices, key=lambda device: device.index))
    key = _key(ordered)
    found = made.get(key)
    if found is None:
        found = made[key] = tuple(replace(device, uuid="") for device in ordered)
    return found


def _key(devices: tuple[Device, ...]) -> tuple[object, ...]:
    return tuple([(d.index, d.kind, d.memory, d.cores, d.device_group, d.shares, d.healthy, d.api) for d in devices])


def device_usage(world: World) -> DeviceUsage:
    return counter_of(world, DeviceUsage)


def are_free(world: World, node: str, slots: Iterable[DeviceSlot], *, after_releases: bool) -> bool:
    """Could exactly these slots be taken on this node, as the world stands?"""
    usage = device_usage(world)
    row = world.table.row.get(node)
    if row is None:
        return False
    devices, left = usage.devices_by_row[row], usage.free_on(row, after_releases=after_releases)
    for slot in slots:
        place = device_position(devices, slot.index)
        if place is None or not takes(devices[place], slot.memory, slot.cores, *(figure[place] for figure in left)):
            return False
        take(left, place, slot)
    return True


def device_position(devices: tuple[Device, ...], index: int) -> int | None:
    """Where the device of this index stands among the node's devices; nearly always at its own number."""
    if 0 <= index < len(devices) and devices[index].index == index:
        return index
    return next((place for place, device in enumerate(devices) if device.index == index), None)


def takes(device: Device, memory: int, cores: int, memory_left: int, cores_left: int, holders: int) -> bool:
    """Does a device of which so much is left take somebody who wants this much of it?"""
    if not device.healthy or memory > memory_left or cores > cores_left or (device.shares and holders >= device.shares):
        return False
    return holders == 0 or (cores < device.cores and cores_left > 0)


def take(left: tuple[list[int], list[int], list[int]], place: int, slot: DeviceSlot) -> None:
    memory, cores, holders = left
    memory[place] -= slot.memory
    cores[place] -= slot.cores
    holders[place] += 1


def overcommitted_device(world: World, node: str, slots: Iterable[DeviceSlot]) -> int | None:
    """The index of a device among these slots that is gone, takes nobody any more, or is overcommitted."""
    usage = device_usage(world)
    row = world.table.row.get(node)
    if row is None:
        return None
    devices = usage.devices_by_row[row]
    memory, cores, holders = usage.free_on(row, after_releases=True)
    for slot in slots:
        place = device_position(devices, slot.index)
        if place is None or not devices[place].healthy or memory[place] < 0 or cores[place] < 0:
            return slot.index
        most = 1 if slot.cores == devices[place].cores else devices[place].shares or PLENTY
        if holders[place] > most:
            return slot.index
    return None
