"""Which slots a pod takes of a node's devices. It follows from what is left of them; nothing is stored but answers.

Of all ways to serve an ask, the best one spans the fewest islands, then takes the fullest devices (or the emptiest, where pods are
spread), then breaks into the island with the fewest devices to offer (or the most), then has the lowest indices. A pod with
several asks gets them served in order, each in the best way that leaves the later ones enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from muster.model.device import Device, DeviceRequest, DeviceSlot
from muster.state.derived.device_usage import PLENTY, DeviceUsage, Figures, Left, take, takes
from muster.state.node_table import RowIndex

State = tuple[list[int], list[int], list[int]]
"""Of each device of a node: the memory left, the cores left, and how many are on it."""

# Past this many remembered answers all are forgotten.
_MOST_ANSWERS = 20_000

_SPREAD, _PACK = -1, 1


class Choices:
    """Answers for nodes in a certain state, remembered: most nodes of a cluster are in one of few states."""

    def __init__(self) -> None:
        self._made: dict[object, Run] = {}

    def run(self, book: DeviceUsage, row: int, asks: tuple[DeviceRequest, ...], *, spread: bool, after_releases: bool) -> Run:
        """The slots of equal pods that are put onto this node one after the other, as it stands."""
        shelf, state = book.devices_by_row[row], book.left_on(row, after_releases=after_releases)
        # Both are shared by all who look alike, and a run keeps them alive: their identity is enough, and cheap.
        key = (id(shelf), id(asks), tuple(state[0]), tuple(state[1]), tuple(state[2]), spread)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_ANSWERS:
                self._made.clear()
            found = self._made[key] = Run(shelf, state, asks, spread=spread)
        return found


class Run:
    """The slots of the first, the second, the third equal pod on a node, worked out as far as somebody asks."""

    def __init__(self, shelf: tuple[Device, ...], state: State, asks: tuple[DeviceRequest, ...], *, spread: bool) -> None:
        self._shelf, self._state, self._asks, self._spread = shelf, state, asks, spread
        self._found: list[tuple[DeviceSlot, ...]] = []
        self._is_full = False

    def at(self, number: int) -> tuple[DeviceSlot, ...] | None:
        """The slots of the pod of this number, from 0 on; None where there is no room for so many."""
        while len(self._found) <= number and not self._is_full:
            slots = choose(self._shelf, self._state, self._asks, spread=self._spread)
            if slots is None:
                self._is_full = True
            else:
                self._found.append(slots)
                for slot in slots:
                    _take(self._shelf, self._state, slot)
        return self._found[number] if number < len(self._found) else None


def choose(
    shelf: tuple[Device, ...], state: State, asks: Sequence[DeviceRequest], *, spread: bool
) -> tuple[DeviceSlot, ...] | None:
    """The slots that serve all asks on devices in this state, in the order of the asks; None where nothing does."""
    if len(asks) == 1:
        best = _best(shelf, state, asks[0], _SPREAD if spread else _PACK)
        return None if best is None else _slots(shelf, asks[0], best)
    return _choose_all(shelf, state, tuple(asks), _SPREAD if spread else _PACK)


def assume(shelf: tuple[Device, ...], state: State, asks: Sequence[DeviceRequest]) -> tuple[DeviceSlot, ...]:
    """The slots of a pod that is on a node and does not say where: the lowest devices that have room for it, else the lowest."""
    slots: list[DeviceSlot] = []
    for ask in asks:
        kind = [place for place, device in enumerate(shelf) if device.kind == ask.kind]
        roomy = _eligible(shelf, state, ask)
        for place in (*roomy, *(place for place in kind if place not in roomy))[: ask.count]:
            slot = _slot(shelf[place], ask)
            slots.append(slot)
            take(state, place, slot)
    return tuple(slots)


# -- one ask -----------------------------------------------------------------------------------------------------------------------


def _eligible(shelf: tuple[Device, ...], state: State, ask: DeviceRequest) -> list[int]:
    memory, cores, holders = state
    return [
        place
        for place, device in enumerate(shelf)
        if device.kind == ask.kind
        and takes(device, ask.memory_of(device.memory), ask.cores, memory[place], cores[place], holders[place])
    ]


def _best(shelf: tuple[Device, ...], state: State, ask: DeviceRequest, sign: int) -> list[int] | None:
    """The places of the best devices for one ask."""
    eligible = _eligible(shelf, state, ask)
    if len(eligible) < ask.count:
        return None
    memory, cores = state[0], state[1]
    eligible.sort(key=lambda place: (sign * memory[place], sign * cores[place], place))
    islands: dict[str, list[int]] = {}
    for place in eligible:
        islands.setdefault(shelf[place].device_group, []).append(place)
    if len(islands) == 1 or max(map(len, islands.values())) == 1:
        return eligible[: ask.count]
    found: list[tuple[tuple[object, ...], list[int]]] = []
    for some in _fewest_islands(list(islands.values()), ask.count):
        offered = sorted((place for island in some for place in island), key=eligible.index)
        chosen = offered[: ask.count]
        fullness = [(sign * memory[place], sign * cores[place]) for place in chosen]
        found.append(((fullness, sign * len(offered), sorted(chosen)), chosen))
    return min(found)[1]


def _fewest_islands(islands: list[list[int]], count: int) -> Iterator[tuple[list[int], ...]]:
    """All sets of islands, as small as can be, that offer so many devices together."""
    largest = sorted((len(island) for island in islands), reverse=True)
    size = next(size for size in range(1, len(largest) + 1) if sum(largest[:size]) >= count)
    return (some for some in combinations(islands, size) if sum(map(len, some)) >= count)


def _slots(shelf: tuple[Device, ...], ask: DeviceRequest, places: Sequence[int]) -> tuple[DeviceSlot, ...]:
    return tuple(_slot(shelf[place], ask) for place in sorted(places))


def _slot(device: Device, ask: DeviceRequest) -> DeviceSlot:
    return DeviceSlot(device.index, ask.memory_of(device.memory), ask.cores)


def _take(shelf: tuple[Device, ...], state: State, slot: DeviceSlot) -> None:
    take(state, next(place for place, device in enumerate(shelf) if device.index == slot.index), slot)


# -- several asks ------------------------------------------------------------------------------------------------------------------


def _choose_all(
    shelf: tuple[Device, ...], state: State, asks: tuple[DeviceRequest, ...], sign: int
) -> tuple[DeviceSlot, ...] | None:
    if not asks:
        return ()
    for places in _ways(shelf, state, asks[0], sign):
        slots = _slots(shelf, asks[0], places)
        after: State = (list(state[0]), list(state[1]), list(state[2]))
        for slot in slots:
            _take(shelf, after, slot)
        rest = _choose_all(shelf, after, asks[1:], sign)
        if rest is not None:
            return slots + rest
    return None


def _ways(shelf: tuple[Device, ...], state: State, ask: DeviceRequest, sign: int) -> Iterator[Sequence[int]]:
    """All ways to serve an ask that make a difference to later ones, the best first. Devices in one state, on one island, are the
    same to everybody: of those the lowest go first."""
    best = _best(shelf, state, ask, sign)
    if best is None:
        return
    yield best
    memory, cores, holders = state
    alike: dict[object, list[int]] = {}
    offered: dict[str, int] = {}
    for place in _eligible(shelf, state, ask):
        device = shelf[place]
        size = (device.device_group, device.memory, device.cores, device.shares)
        alike.setdefault((memory[place], cores[place], holders[place], size), []).append(place)
        offered[device.device_group] = offered.get(device.device_group, 0) + 1
    ways = []
    for counts in product(*(range(min(len(places), ask.count) + 1) for places in alike.values())):
        if sum(counts) == ask.count:
            ways.append([place for count, places in zip(counts, alike.values(), strict=True) for place in places[:count]])

    def order(places: list[int]) -> tuple[object, ...]:
        islands = {shelf[place].device_group for place in places}
        fullness = sorted((sign * memory[place], sign * cores[place]) for place in places)
        return len(islands), fullness, sign * sum(offered[island] for island in islands), sorted(places)

    yield from sorted(ways, key=order)


# -- all nodes at once -------------------------------------------------------------------------------------------------------------


def seats_by_device(book: DeviceUsage, ask: DeviceRequest, index: RowIndex | None, left: Left) -> Figures:
    """How many pods each device of these rows takes that ask for this and no more, one share of it each."""
    seats: Figures = np.where(book.of_kind(ask.kind, index), left.shares, 0)
    if ask.ratio:
        need = _memory_of(ask, book.memory if index is None else book.memory[index])
        np.minimum(seats, np.where(need > 0, left.memory // np.maximum(need, 1), PLENTY), out=seats)
    elif ask.memory:
        np.minimum(seats, left.memory // ask.memory, out=seats)
    seats[left.memory < 0] = 0
    if ask.cores:
        np.minimum(seats, left.cores // ask.cores, out=seats)
        bounds = book.bounds(index)
        # Whoever wants all cores is alone.
        seats[(bounds.cores == ask.cores) & (left.shares < bounds.shares)] = 0
    else:
        seats[left.cores <= 0] = 0
    return np.maximum(seats, 0, out=seats)


def _memory_of(ask: DeviceRequest, memory: Figures) -> Figures:
    """What an ask for a part takes of devices with so much memory. There are few different sizes."""
    if not memory.size:
        return memory
    sizes, at = np.unique(memory, return_inverse=True)
    wanted = np.array([ask.memory_of(size) for size in sizes.tolist()], dtype=np.int64)
    each: Figures = wanted[at].reshape(memory.shape)
    return each
