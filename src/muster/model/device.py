"""Devices with indices that pods share, what pods request of them, and the device slots that a placement takes.

A count of free GPUs is not devices: a slot says which device and how much of it, so that taking a pod away and putting it back
restores the same slots. Memory is counted in bytes, cores in hundredths of a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

GPU_KIND = "gpu"
WHOLE_CORES = 100
MIB = 2**20


class DeviceApi(Enum):
    """The API by which devices are registered, requested and granted."""

    VGPU = "vgpu"
    """Volcano's virtual GPUs: `volcano.sh/vgpu-number`, each container for itself."""
    GPU_SHARE = "gpushare"
    """Volcano's older sharing by memory: `volcano.sh/gpu-memory`, or whole ones by `volcano.sh/gpu-number`."""
    KOORDINATOR = "koordinator"
    """`koordinator.sh/gpu` and its parts, for the pod as a whole."""
    WHOLE = "whole"
    """`nvidia.com/gpu`: whole devices. On a node that does not say which devices it has they are only counted."""


@dataclass(frozen=True, slots=True)
class Device:
    """One indexed device of a node. `device_group` names the devices that are close to each other (NVLink, PCIe)."""

    index: int
    kind: str = GPU_KIND
    memory: int = 0
    cores: int = WHOLE_CORES
    """Above zero."""
    uuid: str = ""
    device_group: str = ""
    shares: int = 0
    """How many may share it; 0 for any number."""
    healthy: bool = True
    """False: whoever is on it stays, and nobody else comes."""
    api: DeviceApi = DeviceApi.VGPU


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """What one placement takes of one device."""

    index: int
    memory: int = 0
    cores: int = WHOLE_CORES


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`count` different devices, and so much of each: an amount of memory, or a `ratio` of it in hundredths. A pod that asks for
    all cores of a device is alone on it; one that requests none fits wherever any are left."""

    api: DeviceApi
    count: int = 1
    memory: int = 0
    ratio: int = 0
    cores: int = 0
    container: int = 0
    """Which container asks, where each does for itself."""
    kind: str = GPU_KIND

    def memory_of(self, device_memory: int) -> int:
        """How much memory this takes of a device that has so much. Parts are whole mebibytes, because some can write no others."""
        if not self.ratio:
            return self.memory
        return device_memory if self.ratio == 100 else device_memory * self.ratio // 100 // MIB * MIB

    def slot_on(self, device: Device) -> DeviceSlot:
        """What this takes of one device."""
        return DeviceSlot(device.index, self.memory_of(device.memory), self.cores)


@dataclass(frozen=True, slots=True)
class DeviceSlotNote:
    """A device slot as it was written onto a pod: the device by its UUID or by its index, and how much of it, as far as was
    said."""

    index: int = -1
    uuid: str = ""
    memory: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """A device slot for the device plugin that grants it: all that any device API writes of it."""

    api: DeviceApi
    container: int
    index: int
    uuid: str
    memory: int
    ratio: int
    """Of the device's memory, in hundredths."""
    cores: int


def requests_by_slot(asks: Iterable[DeviceRequest]) -> list[DeviceRequest]:
    """For each device slot, in order, the request that it is for: a placement has the slots of its requests one after the other."""
    return [ask for ask in asks for _ in range(ask.count)]


def satisfy_requests(requests: Sequence[DeviceRequest], slots: Sequence[DeviceSlot], devices: Iterable[Device]) -> bool:
    """Do these slots satisfy the requests exactly? Anybody could have written them."""
    by_index = {device.index: device for device in devices}
    wanted = [number for number, request in enumerate(requests) for _ in range(request.count)]
    if len(slots) != len(wanted) or len({(number, slot.index) for number, slot in zip(wanted, slots, strict=True)}) != len(slots):
        return False
    return all(
        slot.index in by_index and slot == requests[number].slot_on(by_index[slot.index])
        for number, slot in zip(wanted, slots, strict=True)
    )


def grants(asks: Iterable[DeviceRequest], slots: Sequence[DeviceSlot], devices: Iterable[Device]) -> tuple[DeviceGrant, ...]:
    """What the device plugins read about the device slots of a pod. Requests for whole devices belong to no device API: only
    Koordinator reads them."""
    by_index = {device.index: device for device in devices}
    found = [
        (ask, slot, by_index[slot.index])
        for ask, slot in zip(requests_by_slot(asks), slots, strict=False)
        if slot.index in by_index
    ]
    return tuple(
        DeviceGrant(
            api=DeviceApi.KOORDINATOR if device.api is DeviceApi.KOORDINATOR else ask.api,
            container=ask.container,
            index=slot.index,
            uuid=device.uuid,
            memory=slot.memory,
            ratio=100 * slot.memory // device.memory if device.memory else WHOLE_CORES,
            cores=slot.cores,
        )
        for ask, slot, device in found
    )
