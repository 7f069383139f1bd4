"""Which slots a pod takes of a node's devices. It follows from what is left of them; nothing is stored but answers.

Of all ways to satisfy a request, the best one spans the fewest device groups, then uses the fullest devices (or the emptiest,
where pods are spread), then the device group with the fewest devices to offer (or the most), then the lowest indices. A pod with
several requests gets them satisfied in order, each in the best way that leaves enough for the later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from muster.model.device import Device, DeviceRequest, DeviceSlot
from muster.state.derived.device_usage import PLENTY, DeviceCapacity, DeviceUsage, Figures, take, takes
from muster.state.node_table import RowIndex

State = tuple[list[int], list[int], list[int]]
"""Of each device of a node: the memory left, the cores left, and how many are on it."""

# Past this many remembered answers all are forgotten.
_MOST_ANSWERS = 20_000

_SPREAD, _PACK = -1, 1


class Choices:
    """The answers to these requests for nodes in a certain state, remembered while no node comes, goes or gets other devices: most
    nodes of a cluster are in one of few states."""

    def __init__(self, asks: tuple[DeviceRequest, ...], *, spread: bool) -> None:
        self._asks, self._spread = asks, spread
        self._made: dict[object, Run] = {}

    def run(self, usage: DeviceUsage, row: int, *, after_releases: bool) -> Run:
        """The device slots of equal pods that are placed on this node one after the other, as it is now."""
        state = usage.free_on(row, after_releases=after_releases)
        key = (usage.model_by_row[row], tuple(state[0]), tuple(state[1]), tuple(state[2]))
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_ANSWERS:
                self._made.clear()
            found = self._made[key] = Run(usage.devices_by_row[row], state, self._asks, spread=self._spread)
        return found


class Run:
    """The device slots of the first, the second, the third equal pod on a node, computed on demand."""

    def __init__(self, devices: tuple[Device, ...], state: State, asks: tuple[DeviceRequest, ...], *, spread: bool) -> None:
        self._devices, self._state, self._asks, self._spread = devices, state, asks, spread
        self._found: list[tuple[DeviceSlot, ...]] = []
        self._is_full = False

    def at(self, number: int) -> tuple[DeviceSlot, ...] | None:
        """The device slots of the pod with this number, from 0 on; None where so many do not fit."""
        while len(self._found) <= number and not self._is_full:
            slots = choose(self._devices, self._state, self._asks, spread=self._spread)
            if slots is None:
                self._is_full = True
            else:
                self._found.append(slots)
                for slot in slots:
                    _take(self._devices, self._state, slot)
        return self._found[number] if number < len(self._found) else None


def choose(
    devices: tuple[Device, ...], state: State, asks: Sequence[DeviceRequest], *, spread: bool
) -> tuple[DeviceSlot, ...] | None:
    """The device slots that satisfy all requests on devices in this state, in the order of the requests; None where nothing
    does."""
    if len(asks) == 1:
        best = _best(devices, state, asks[0], _SPREAD if spread else _PACK)
        return None if best is None else _slots(devices, asks[0], best)
    return _choose_all(devices, state, tuple(asks), _SPREAD if spread else _PACK)


def assume(devices: tuple[Device, ...], state: State, asks: Sequence[DeviceRequest]) -> tuple[DeviceSlot, ...]:
    """Assumed slots of a bound pod without an annotation: the lowest devices where it fits, else the lowest."""
    slots: list[DeviceSlot] = []
    for ask in asks:
        kind = [place for place, device in enumerate(devices) if device.kind == ask.kind]
        eligible = _eligible(devices, state, ask)
        for place in (*eligible, *(place for place in kind if place not in eligible))[: ask.count]:
            slot = ask.slot_on(devices[place])
            slots.append(slot)
            take(state, place, slot)
    return tuple(slots)


# -- one ask -----------------------------------------------------------------------------------------------------------------------


def _eligible(devices: tuple[Device, ...], state: State, ask: DeviceRequest) -> list[int]:
    memory, cores, holders = state
    return [
        place
        for place, device in enumerate(devices)
        if device.kind == ask.kind
        and takes(device, ask.memory_of(device.memory), ask.cores, memory[place], cores[place], holders[place])
    ]


def _best(devices: tuple[Device, ...], state: State, ask: DeviceRequest, sign: int) -> list[int] | None:
    """The places of the best devices for one ask."""
    eligible = _eligible(devices, state, ask)
    if len(eligible) < ask.count:
        return None
    memory, cores = state[0], state[1]
    eligible.sort(key=lambda place: (sign * memory[place], sign * cores[place], place))
    groups: dict[str, list[int]] = {}
    for place in eligible:
        groups.setdefault(devices[place].device_group, []).append(place)
    if len(groups) == 1 or max(map(len, groups.values())) == 1:
        return eligible[: ask.count]
    found: list[tuple[tuple[object, ...], list[int]]] = []
    for some in _fewest_groups(list(groups.values()), ask.count):
        offered = sorted((place for group in some for place in group), key=eligible.index)
        chosen = offered[: ask.count]
        fullness = [(sign * memory[place], sign * cores[place]) for place in chosen]
        found.append(((fullness, sign * len(offered), sorted(chosen)), chosen))
    return min(found)[1]


def _fewest_groups(groups: list[list[int]], count: int) -> Iterator[tuple[list[int], ...]]:
    """All sets of device groups, as small as possible, that offer so many devices together."""
    largest = sorted((len(group) for group in groups), reverse=True)
    size = next(size for size in range(1, len(largest) + 1) if sum(largest[:size]) >= count)
    return (some for some in combinations(groups, size) if sum(map(len, some)) >= count)


def _slots(devices: tuple[Device, ...], ask: DeviceRequest, places: Sequence[int]) -> tuple[DeviceSlot, ...]:
    return tuple(ask.slot_on(devices[place]) for place in sorted(places))


def _take(devices: tuple[Device, ...], state: State, slot: DeviceSlot) -> None:
    take(state, next(place for place, device in enumerate(devices) if device.index == slot.index), slot)


# -- several asks ------------------------------------------------------------------------------------------------------------------


def _choose_all(
    devices: tuple[Device, ...], state: State, asks: tuple[DeviceRequest, ...], sign: int
) -> tuple[DeviceSlot, ...] | None:
    if not asks:
        return ()
    for places in _ways(devices, state, asks[0], sign):
        slots = _slots(devices, asks[0], places)
        after: State = (list(state[0]), list(state[1]), list(state[2]))
        for slot in slots:
            _take(devices, after, slot)
        rest = _choose_all(devices, after, asks[1:], sign)
        if rest is not None:
            return slots + rest
    return None


def _ways(devices: tuple[Device, ...], state: State, ask: DeviceRequest, sign: int) -> Iterator[Sequence[int]]:
    """All ways to serve an ask that make a difference to later ones, the best first. Devices in one state, in one group, are the
    same to everybody: of those the lowest go first."""
    best = _best(devices, state, ask, sign)
    if best is None:
        return
    yield best
    memory, cores, holders = state
    alike: dict[object, list[int]] = {}
    offered: dict[str, int] = {}
    for place in _eligible(devices, state, ask):
        device = devices[place]
        size = (device.device_group, device.memory, device.cores, device.shares)
        alike.setdefault((memory[place], cores[place], holders[place], size), []).append(place)
        offered[device.device_group] = offered.get(device.device_group, 0) + 1
    ways = []
    for counts in product(*(range(min(len(places), ask.count) + 1) for places in alike.values())):
        if sum(counts) == ask.count:
            ways.append([place for count, places in zip(counts, alike.values(), strict=True) for place in places[:count]])

    def order(places: list[int]) -> tuple[object, ...]:
        groups = {devices[place].device_group for place in places}
        fullness = sorted((sign * memory[place], sign * cores[place]) for place in places)
        return len(groups), fullness, sign * sum(offered[group] for group in groups), sorted(places)

    yield from sorted(ways, key=order)


# -- all nodes at once -------------------------------------------------------------------------------------------------------------


def fits_by_device(usage: DeviceUsage, ask: DeviceRequest, index: RowIndex | None, left: DeviceCapacity) -> Figures:
    """How many pods each device of these rows takes that ask for this and no more, one share of it each."""
    fits: Figures = np.where(usage.of_type(ask.kind, index), left.shares, 0)
    if ask.ratio:
        need = _memory_of(ask, usage.memory if index is None else usage.memory[index])
        np.minimum(fits, np.where(need > 0, left.memory // np.maximum(need, 1), PLENTY), out=fits)
    elif ask.memory:
        np.minimum(fits, left.memory // ask.memory, out=fits)
    fits[left.memory < 0] = 0
    if ask.cores:
        np.minimum(fits, left.cores // ask.cores, out=fits)
        bounds = usage.bounds(index)
        # Whoever wants all cores is alone.
        fits[(bounds.cores == ask.cores) & (left.shares < bounds.shares)] = 0
    else:
        fits[left.cores <= 0] = 0
    return np.maximum(fits, 0, out=fits)


def _memory_of(ask: DeviceRequest, memory: Figures) -> Figures:
    """What an ask for a part takes of devices with so much memory. There are few different sizes."""
    if not memory.size:
        return memory
    sizes, at = np.unique(memory, return_inverse=True)
    wanted = np.array([ask.memory_of(size) for size in sizes.tolist()], dtype=np.int64)
    each: Figures = wanted[at].reshape(memory.shape)
    return each
