"""The device slots of pods that are on a node already: as they are written on the pod, else as they must be assumed.

Objects come in any order: the pod before its node, the node before its devices. A pod without slots is looked at again when
the next cycle begins, the longest there first, so that what is supposed does not depend on that order.
"""

from __future__ import annotations

from dataclasses import replace

from muster.model.device import Device, DeviceRequest, DeviceSlot, DeviceSlotNote, requests_by_slot
from muster.model.node import Inventory, Node
from muster.model.pod import Pod
from muster.state.derived.device_usage import device_usage
from muster.state.device_slot_choice import assume
from muster.state.world import World


class DeviceSlotFacts:
    def __init__(self, world: World) -> None:
        self._world = world
        self._vague: dict[str, None] = {}
        """Pods that request devices and may not have the right slots."""
        self._inventories: dict[str, tuple[Device, ...]] = {}
        """Devices that were declared by an object of their own, by node."""

    # -- facts in --------------------------------------------------------------------------------------------------------------

    def with_devices(self, node: Node) -> Node:
        """The node with the devices that another object declares for it, unless it declares them itself. Devices that did not
        change stay the same object: device plugins report them again and again, and nothing is derived anew."""
        devices = node.devices or self._inventories.get(node.name, ())
        before = self._world.facts.nodes.get(node.name)
        if before is not None and before.devices == devices:
            devices = before.devices
        return node if devices is node.devices else replace(node, devices=devices)

    def set_inventory(self, found: Inventory) -> Node | None:
        """The node that this changes, as it is now. An inventory that was deleted has no devices."""
        name, devices = found.name, found.devices
        before = self._inventories.pop(name, ())
        if devices:
            self._inventories[name] = devices
        node = self._world.facts.nodes.get(name)
        if node is None or devices == before or node.devices not in ((), before):
            return None
        return replace(node, devices=devices)

    def node_changed(self, name: str) -> None:
        """The node came, or its devices changed."""
        self._vague.update(
            dict.fromkeys(uid for uid, pod in self._world.placements.on_node.get(name, {}).items() if pod.signature.devices)
        )

    def slots_of(self, pod: Pod) -> tuple[DeviceSlot, ...]:
        """The slots that are written on a pod, as far as its node has such devices. It is looked at again with the next cycle."""
        self._vague[pod.uid] = None
        return self._written(pod)

    # -- bringing the world up to date -----------------------------------------------------------------------------------------

    def settle(self) -> None:
        world = self._world
        vague, self._vague = self._vague, {}
        pods = [world.facts.pods[uid] for uid in vague if uid in world.placements.by_uid and uid in world.facts.pods]
        pods.sort(key=lambda pod: (world.placements.by_uid[pod.uid].since, pod.full_name, pod.uid))
        # What is written is known of all pods before anything is supposed of one: no order of arrival makes two share a device.
        for pod in pods:
            self._settle(pod, self._written(pod))
        for pod in pods:
            placement = world.placements.by_uid[pod.uid]
            self._settle(pod, placement.devices or self._supposed(pod, placement.node or ""))

    def _settle(self, pod: Pod, slots: tuple[DeviceSlot, ...]) -> None:
        placement = self._world.placements.by_uid[pod.uid]
        if slots and slots != placement.devices:
            self._world.placements.move(pod, replace(placement, devices=slots))

    def _written(self, pod: Pod) -> tuple[DeviceSlot, ...]:
        node = self._world.facts.nodes.get(pod.node or "")
        if node is None or not node.devices or not pod.device_slots:
            return ()
        pairs = zip(pod.device_slots, requests_by_slot(pod.signature.devices), strict=False)
        return tuple(_slot(_device(note, node.devices), note, ask, at) for at, (note, ask) in enumerate(pairs))

    def _supposed(self, pod: Pod, node: str) -> tuple[DeviceSlot, ...]:
        usage, row = device_usage(self._world), self._world.table.row.get(node)
        if row is None or not usage.devices_by_row[row]:
            return ()
        return assume(usage.devices_by_row[row], usage.free_on(row, after_releases=False), pod.signature.devices)


def _slot(device: Device | None, note: DeviceSlotNote, ask: DeviceRequest, at: int) -> DeviceSlot:
    """Anybody can write annotations: they decide which device it is, never how much of it, which is what was requested. A device
    that is gone has an index that no device has: what was taken of it is taken of no other."""
    if device is None:
        return DeviceSlot(-1 - at, note.memory, max(ask.cores, note.cores))
    return ask.slot_on(device)


def _device(note: DeviceSlotNote, devices: tuple[Device, ...]) -> Device | None:
    for device in devices:
        # A part of a device is written as its UUID with something behind it.
        if note.uuid.startswith(device.uuid) if note.uuid and device.uuid else note.index == device.index:
            return device
    return None
