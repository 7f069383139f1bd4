"""The slow, obvious way to choose slots: every set of devices is tried, and the best by the book is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from muster.model.device import Device, DeviceApi, DeviceRequest, DeviceSlot
from muster.model.pod import Phase, Placement, Pod
from muster.state.world import World

NOW = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING, Phase.OVERDUE})
LATER = frozenset({Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.OVERDUE})


@dataclass(frozen=True)
class DeviceUsage:
    """One device and all slots on it."""

    device: Device
    slots: tuple[DeviceSlot, ...] = ()

    @property
    def memory(self) -> int:
        return self.device.memory - sum(slot.memory for slot in self.slots)

    @property
    def cores(self) -> int:
        return self.device.cores - sum(slot.cores for slot in self.slots)

    def takes(self, slot: DeviceSlot) -> bool:
        device = self.device
        if not device.healthy or self.memory < slot.memory or self.cores < slot.cores:
            return False
        if device.shares and len(self.slots) >= device.shares:
            return False
        # Whoever has all cores is alone.
        return not self.slots or (slot.cores < device.cores and self.cores > 0)

    def plus(self, slot: DeviceSlot) -> DeviceUsage:
        return replace(self, slots=(*self.slots, slot))


NodeDevices = dict[int, list[DeviceUsage]]
"""The devices of a node by index: as they are in each world in which a check must pass."""


def devices_of(world: World, node: str, *, after_releases: bool) -> NodeDevices:
    """A promise looks at what will be; a bind looks at what is, too."""
    worlds = [LATER] if after_releases else [NOW, LATER]
    found: NodeDevices = {device.index: [DeviceUsage(device) for _ in worlds] for device in world.facts.nodes[node].devices}
    for uid in world.placements.on_node.get(node, {}):
        placement = world.placements.by_uid[uid]
        for slot in placement.devices:
            for number, phases in enumerate(worlds):
                if placement.phase in phases and slot.index in found:
                    found[slot.index][number] = found[slot.index][number].plus(slot)
    return found


def slot_for(ask: DeviceRequest, device: Device) -> DeviceSlot:
    if ask.ratio == 100:
        memory = device.memory
    elif ask.ratio:
        memory = device.memory * ask.ratio // 100 // 2**20 * 2**20
    else:
        memory = ask.memory
    return DeviceSlot(device.index, memory, ask.cores)


def slot_choices(node_devices: NodeDevices, ask: DeviceRequest, *, spread: bool) -> Iterator[tuple[DeviceSlot, ...]]:
    """Every set of devices that serves the ask, the best first."""
    slots = {index: slot_for(ask, fulls[0].device) for index, fulls in node_devices.items() if fulls[0].device.kind == ask.kind}
    able = [index for index, slot in sorted(slots.items()) if all(full.takes(slot) for full in node_devices[index])]
    sign = -1 if spread else 1

    def order(chosen: tuple[int, ...]) -> tuple[object, ...]:
        groups = {node_devices[index][0].device.device_group for index in chosen}
        left = sorted((sign * min(f.memory for f in node_devices[i]), sign * min(f.cores for f in node_devices[i])) for i in chosen)
        offered = sum(node_devices[index][0].device.device_group in groups for index in able)
        return len(groups), left, sign * offered, chosen

    for chosen in sorted(combinations(able, ask.count), key=order):
        yield tuple(slots[index] for index in chosen)


def with_slots(node_devices: NodeDevices, slots: Sequence[DeviceSlot]) -> NodeDevices:
    found = {index: list(fulls) for index, fulls in node_devices.items()}
    for slot in slots:
        found[slot.index] = [full.plus(slot) for full in found[slot.index]]
    return found


def choose(node_devices: NodeDevices, asks: Sequence[DeviceRequest], *, spread: bool) -> tuple[DeviceSlot, ...] | None:
    if not asks:
        return ()
    for slots in slot_choices(node_devices, asks[0], spread=spread):
        rest = choose(with_slots(node_devices, slots), asks[1:], spread=spread)
        if rest is not None:
            return slots + rest
    return None


def slots_for(world: World, pod: Pod, node: str, *, after_releases: bool, spread: bool) -> tuple[DeviceSlot, ...] | None:
    """The slots of a pod on a node; empty where it is only counted, None where it cannot stand."""
    asks = pod.signature.devices
    if not asks:
        return ()
    if len({ask.api for ask in asks}) > 1:
        return None
    if not world.facts.nodes[node].devices:
        return () if asks[0].api is DeviceApi.WHOLE else None
    return choose(devices_of(world, node, after_releases=after_releases), asks, spread=spread)


def fits_node(world: World, pod: Pod, node: str, *, after_releases: bool) -> bool:
    allocatable = dict(world.facts.nodes[node].allocatable.items)
    for phases in [LATER] if after_releases else [NOW, LATER]:
        taken: dict[str, int] = {}
        for uid, other in world.placements.on_node.get(node, {}).items():
            if world.placements.by_uid[uid].phase in phases:
                for name, value in other.signature.request.items:
                    taken[name] = taken.get(name, 0) + value
        if any(value and taken.get(name, 0) + value > allocatable.get(name, 0) for name, value in pod.signature.request.items):
            return False
    return True


def one_by_one(world: World, pods: Sequence[Pod], *, phase: Phase, spread: bool) -> list[tuple[str, tuple[DeviceSlot, ...]] | None]:
    """Node and slots of each, the first node by name that takes it. The world is left with them in it."""
    after_releases = phase is Phase.NOMINATED
    found: list[tuple[str, tuple[DeviceSlot, ...]] | None] = []
    for pod in pods:
        place = None
        for node in sorted(world.facts.nodes):
            slots = slots_for(world, pod, node, after_releases=after_releases, spread=spread)
            if slots is not None and fits_node(world, pod, node, after_releases=after_releases):
                place = (node, slots)
                break
        found.append(place)
        if place is not None:
            world.placements.by_uid[pod.uid] = Placement(phase, place[0], world.now, place[1])
            world.placements.on_node.setdefault(place[0], {})[pod.uid] = pod
    return found
