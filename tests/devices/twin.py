"""The slow, obvious way to choose slots: every set of devices is tried, and the best by the book is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from muster.model.devices import Device, DeviceAsk, DeviceDialect, Slot
from muster.model.pod import Phase, Placement, Pod
from muster.state.world import World

NOW = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.LEAVING, Phase.OVERDUE})
LATER = frozenset({Phase.NOMINATED, Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.OVERDUE})


@dataclass(frozen=True)
class Full:
    """One device and all slots on it."""

    device: Device
    slots: tuple[Slot, ...] = ()

    @property
    def memory(self) -> int:
        return self.device.memory - sum(slot.memory for slot in self.slots)

    @property
    def cores(self) -> int:
        return self.device.cores - sum(slot.cores for slot in self.slots)

    def takes(self, slot: Slot) -> bool:
        device = self.device
        if not device.healthy or self.memory < slot.memory or self.cores < slot.cores:
            return False
        if device.shares and len(self.slots) >= device.shares:
            return False
        # Whoever has all cores is alone.
        return not self.slots or (slot.cores < device.cores and self.cores > 0)

    def plus(self, slot: Slot) -> Full:
        return replace(self, slots=(*self.slots, slot))


Shelf = dict[int, list[Full]]
"""The devices of a node by index: as they are in each world in which a check must pass."""


def shelf_of(world: World, node: str, *, soon: bool) -> Shelf:
    """A promise looks at what will be; a bind looks at what is, too."""
    worlds = [LATER] if soon else [NOW, LATER]
    found: Shelf = {device.index: [Full(device) for _ in worlds] for device in world.facts.nodes[node].devices}
    for uid in world.placements.on_node.get(node, {}):
        placement = world.placements.by_uid[uid]
        for slot in placement.devices:
            for number, phases in enumerate(worlds):
                if placement.phase in phases and slot.index in found:
                    found[slot.index][number] = found[slot.index][number].plus(slot)
    return found


def needed(ask: DeviceAsk, device: Device) -> Slot:
    if ask.ratio == 100:
        memory = device.memory
    elif ask.ratio:
        memory = device.memory * ask.ratio // 100 // 2**20 * 2**20
    else:
        memory = ask.memory
    return Slot(device.index, memory, ask.cores)


def ways(shelf: Shelf, ask: DeviceAsk, *, spread: bool) -> Iterator[tuple[Slot, ...]]:
    """Every set of devices that serves the ask, the best first."""
    slots = {index: needed(ask, fulls[0].device) for index, fulls in shelf.items() if fulls[0].device.kind == ask.kind}
    able = [index for index, slot in sorted(slots.items()) if all(full.takes(slot) for full in shelf[index])]
    sign = -1 if spread else 1

    def order(chosen: tuple[int, ...]) -> tuple[object, ...]:
        islands = {shelf[index][0].device.island for index in chosen}
        left = sorted((sign * min(f.memory for f in shelf[i]), sign * min(f.cores for f in shelf[i])) for i in chosen)
        offered = sum(shelf[index][0].device.island in islands for index in able)
        return len(islands), left, sign * offered, chosen

    for chosen in sorted(combinations(able, ask.count), key=order):
        yield tuple(slots[index] for index in chosen)


def with_slots(shelf: Shelf, slots: Sequence[Slot]) -> Shelf:
    found = {index: list(fulls) for index, fulls in shelf.items()}
    for slot in slots:
        found[slot.index] = [full.plus(slot) for full in found[slot.index]]
    return found


def choose(shelf: Shelf, asks: Sequence[DeviceAsk], *, spread: bool) -> tuple[Slot, ...] | None:
    if not asks:
        return ()
    for slots in ways(shelf, asks[0], spread=spread):
        rest = choose(with_slots(shelf, slots), asks[1:], spread=spread)
        if rest is not None:
            return slots + rest
    return None


def slots_for(world: World, pod: Pod, node: str, *, soon: bool, spread: bool) -> tuple[Slot, ...] | None:
    """The slots of a pod on a node; empty where it is only counted, None where it cannot stand."""
    asks = pod.kind.devices
    if not asks:
        return ()
    if len({ask.dialect for ask in asks}) > 1:
        return None
    if not world.facts.nodes[node].devices:
        return () if asks[0].dialect is DeviceDialect.WHOLE else None
    return choose(shelf_of(world, node, soon=soon), asks, spread=spread)


def room_for(world: World, pod: Pod, node: str, *, soon: bool) -> bool:
    room = dict(world.facts.nodes[node].allocatable.items)
    for phases in [LATER] if soon else [NOW, LATER]:
        taken: dict[str, int] = {}
        for uid, other in world.placements.on_node.get(node, {}).items():
            if world.placements.by_uid[uid].phase in phases:
                for name, value in other.kind.request.items:
                    taken[name] = taken.get(name, 0) + value
        if any(value and taken.get(name, 0) + value > room.get(name, 0) for name, value in pod.kind.request.items):
            return False
    return True


def one_by_one(world: World, pods: Sequence[Pod], *, phase: Phase, spread: bool) -> list[tuple[str, tuple[Slot, ...]] | None]:
    """Node and slots of each, the first node by name that takes it. The world is left with them in it."""
    soon = phase is Phase.NOMINATED
    found: list[tuple[str, tuple[Slot, ...]] | None] = []
    for pod in pods:
        place = None
        for node in sorted(world.facts.nodes):
            slots = slots_for(world, pod, node, soon=soon, spread=spread)
            if slots is not None and room_for(world, pod, node, soon=soon):
                place = (node, slots)
                break
        found.append(place)
        if place is not None:
            world.placements.by_uid[pod.uid] = Placement(phase, place[0], world.now, place[1])
            world.placements.on_node.setdefault(place[0], {})[pod.uid] = pod
    return found
