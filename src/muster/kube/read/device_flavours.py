"""Devices: how nodes register them, how pods request them, and the annotations that allocate them.

Four flavours are read: Volcano's virtual GPUs, its older sharing by memory, Koordinator's, and plain `nvidia.com/gpu`. Device
plugins read the device slots of a pod from annotations; so does a scheduler after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.text_values import read_amounts, read_version
from muster.model.device import MIB, WHOLE_CORES, Device, DeviceApi, DeviceGrant, DeviceRequest, DeviceSlotNote
from muster.model.node import Inventory
from muster.model.resource_amounts import LARGEST_AMOUNT, Resources, amount

MAX_DEVICES = 256
"""No node has more."""
VGPU_MODEL = "NVIDIA"
"""The type of a device in Volcano's annotations."""
ALLOCATING = "allocating"
NANO = 10**9


# --- Devices of nodes ---------------------------------------------------------------------------------------------------------


def node_devices(annotations: Mapping[str, str], capacity: wire.ResourceList, *, problems: Problems) -> tuple[Device, ...]:
    """The devices that the Node object declares. Those of a Device object are read by `read_inventory`."""
    if (retired := annotations.get(names.RETIRED_DEVICE_GROUPS)) is not None:
        problems.annotation(names.RETIRED_DEVICE_GROUPS).add(retired, advice=f"was ignored; write {names.DEVICE_GROUPS}")
    registered = annotations.get(names.VGPU_REGISTER)
    if registered and not annotations.get(names.VGPU_HANDSHAKE, "").startswith("Deleted"):
        return tuple(_vgpu_devices(registered, _device_groups(annotations), problems=problems.annotation(names.VGPU_REGISTER)))
    if names.GPU_SHARE_NUMBER in capacity and names.GPU_SHARE_MEMORY in capacity:
        return tuple(_gpu_share_devices(annotations, capacity, _device_groups(annotations)))
    return ()


def _device_groups(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The device group of each device that a node may have; those that are not named have none."""
    named = tuple(group.strip() for group in annotations.get(names.DEVICE_GROUPS, "").split(",")[:MAX_DEVICES])
    return named + ("",) * (MAX_DEVICES - len(named))


def _vgpu_devices(text: str, device_groups: Sequence[str], *, problems: Problems) -> Iterator[Device]:
    entries = [entry for entry in text.split(":") if entry.strip()]
    if len(entries) > MAX_DEVICES:
        problems.add(len(entries), advice=f"devices are more than any node has; the first {MAX_DEVICES} are used")
    for index, entry in enumerate(entries[:MAX_DEVICES]):
        parts = entry.split(",")
        shares, memory = (_whole_number(part) for part in (parts[1:3] if len(parts) > 4 else ("", "")))
        if not parts[0] or shares is None or memory is None:
            problems.add(entry, advice="was ignored; write uuid,shares,MiB,model,healthy,mode")
            continue
        yield Device(
            index,
            memory=min(memory * MIB, LARGEST_AMOUNT),
            uuid=parts[0],
            device_group=device_groups[index],
            shares=shares,
            healthy=parts[4].strip().lower() == "true",
            api=DeviceApi.VGPU,
        )


def _gpu_share_devices(
    annotations: Mapping[str, str], capacity: wire.ResourceList, device_groups: Sequence[str]
) -> Iterator[Device]:
    """The capacity is a number of equal GPUs and their total memory. Invalid amounts are reported where the capacity is read."""
    amounts = read_amounts(capacity, problems=Problems(), field="")
    count, memory = amounts.get(names.GPU_SHARE_NUMBER, 0), amounts.get(names.GPU_SHARE_MEMORY, 0)
    unhealthy = {index.strip() for index in annotations.get(names.UNHEALTHY_GPUS, "").split(",")}
    for index in range(min(count, MAX_DEVICES)):
        yield Device(
            index,
            memory=min(memory // count * MIB, LARGEST_AMOUNT),
            device_group=device_groups[index],
            healthy=str(index) not in unhealthy,
            api=DeviceApi.GPU_SHARE,
        )


class DeviceTopology(wire.WireStruct, frozen=True):
    node_id: wire.Int32 = msgspec.field(default=0, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")


class DeviceEntry(wire.WireStruct, frozen=True):
    type: str = ""
    id: str = ""
    minor: wire.Int32 | None = None
    health: bool = False
    resources: wire.ResourceList = {}
    topology: DeviceTopology | None = None


class WireDeviceSpec(wire.WireStruct, frozen=True):
    devices: tuple[DeviceEntry, ...] = ()


class WireDevice(wire.WireObject, frozen=True):
    spec: WireDeviceSpec = WireDeviceSpec()


def read_inventory(written: WireDevice, *, problems: Problems) -> Inventory:
    """Koordinator's Device: the GPUs of the node of this name. Other types are ignored."""
    meta = written.metadata
    found: dict[int, Device] = {}
    for info, place in problems.each("spec.devices", written.spec.devices):
        if info.type != "gpu":
            continue
        if info.minor is None or info.minor < 0 or info.minor in found or len(found) >= MAX_DEVICES:
            place.at("minor").add(info.minor, advice="was ignored; write for each GPU a number of its own, from 0 on")
            continue
        amounts = read_amounts(info.resources, problems=place, field="resources")
        found[info.minor] = Device(
            info.minor,
            memory=amounts.get(names.KOORDINATOR_GPU_MEMORY, 0),
            cores=amounts.get(names.KOORDINATOR_GPU_CORE) or WHOLE_CORES,
            uuid=info.id,
            device_group=_device_group(info.topology),
            healthy=info.health,
            api=DeviceApi.KOORDINATOR,
        )
    return Inventory(
        name=meta.name,
        version=read_version(meta.resource_version),
        devices=tuple(found[index] for index in sorted(found)),
        problems=problems.all(),
    )


def _device_group(topology: DeviceTopology | None) -> str:
    """Devices behind one PCIe switch, else those of one NUMA node."""
    if topology is None:
        return ""
    return topology.pcie_id or f"numa-{topology.node_id}"


def _whole_number(text: str) -> int | None:
    number = text.strip()
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 15 else None


# --- Device requests of pods --------------------------------------------------------------------------------------------------


def device_requests(spec: wire.PodSpec, request: Resources, *, problems: Problems) -> tuple[DeviceRequest, ...]:
    """The device requests of a pod, besides the amounts in its request. A pod that mixes flavours has requests of each, and fits
    no node."""
    amounts = dict(request.items)
    problems = problems.at("spec.containers")
    requests = (
        *_vgpu_requests(spec.containers, problems=problems),
        *_gpu_share_requests(amounts),
        *_koordinator_requests(amounts, problems=problems),
        *_whole_gpu_requests(amounts),
    )
    flavours = sorted({one.api.value for one in requests})
    if len(flavours) > 1:
        problems.add(", ".join(flavours), advice="are different ways to request devices; use one of them in a pod")
    return requests


def _vgpu_requests(containers: Sequence[wire.Container], *, problems: Problems) -> Iterator[DeviceRequest]:
    """Of each container. One that requests memory only means one GPU; one without memory, all memory of its GPUs."""
    for i, container in enumerate(containers):
        written = {**container.resources.limits, **container.resources.requests}
        own = read_amounts({name: written[name] for name in _VGPU if name in written}, problems=Problems(), field="")
        memory, cores = own.get(names.VGPU_MEMORY, 0), own.get(names.VGPU_CORES, 0)
        count = own.get(names.VGPU_NUMBER, 1 if memory else 0)
        if count:
            ratio = 0 if memory else own.get(names.VGPU_MEMORY_PERCENTAGE, 100)
            yield DeviceRequest(DeviceApi.VGPU, count=count, memory=memory * MIB, ratio=ratio, cores=cores, container=i)
        elif own:
            advice = f"is requested without a GPU; write {names.VGPU_NUMBER} too"
            problems.key(i).at("resources").add(next(iter(own)), advice=advice)


_VGPU = (names.VGPU_NUMBER, names.VGPU_MEMORY, names.VGPU_MEMORY_PERCENTAGE, names.VGPU_CORES)


def _gpu_share_requests(amounts: Mapping[str, int]) -> Iterator[DeviceRequest]:
    if memory := amounts.get(names.GPU_SHARE_MEMORY):
        yield DeviceRequest(DeviceApi.GPU_SHARE, memory=memory * MIB)
    if count := amounts.get(names.GPU_SHARE_NUMBER):
        yield DeviceRequest(DeviceApi.GPU_SHARE, count=count, ratio=100, cores=WHOLE_CORES)


def _koordinator_requests(amounts: Mapping[str, int], *, problems: Problems) -> Iterator[DeviceRequest]:
    whole, memory = amounts.get(names.KOORDINATOR_GPU, 0), amounts.get(names.KOORDINATOR_GPU_MEMORY, 0)
    cores, ratio = amounts.get(names.KOORDINATOR_GPU_CORE, whole), amounts.get(names.KOORDINATOR_GPU_RATIO, whole)
    if not (cores or ratio or memory):
        return
    if ratio and memory:
        advice = f"is requested besides {names.KOORDINATOR_GPU_RATIO}, which is used; write one of them"
        problems.add(names.KOORDINATOR_GPU_MEMORY, advice=advice)
    several = ratio > 100 and ratio % 100 == 0
    count = amounts.get(names.KOORDINATOR_GPU_SHARED) or (ratio // 100 if several else 1)
    if any(percent % count or percent // count > WHOLE_CORES for percent in (ratio, cores)):
        advice = "percent cannot be divided among whole GPUs; write at most 100, or a multiple of 100"
        problems.add(max(ratio, cores), advice=advice)
    yield DeviceRequest(
        DeviceApi.KOORDINATOR,
        count=count,
        memory=0 if ratio else -(-memory // count),
        ratio=-(-ratio // count),
        cores=-(-cores // count),
    )


def _whole_gpu_requests(amounts: Mapping[str, int]) -> Iterator[DeviceRequest]:
    if count := amounts.get(names.NVIDIA_GPU):
        yield DeviceRequest(DeviceApi.WHOLE, count=count, ratio=100, cores=WHOLE_CORES)


# --- Device slots of pods -----------------------------------------------------------------------------------------------------


def bind_annotations(grants: Sequence[DeviceGrant], *, node: str, now: float) -> dict[str, str]:
    """The annotations for the device plugins, which are written with the bind. All grants of a pod are of one flavour."""
    if not grants:
        return {}
    match grants[0].api:
        case DeviceApi.VGPU:
            ids, seconds = _vgpu_ids(grants), str(int(now))
            return {
                names.VGPU_IDS: ids,
                names.VGPU_TO_ALLOCATE: ids,
                names.VGPU_NODE: node,
                names.VGPU_TIME: seconds,
                names.BIND_TIME: seconds,
                names.BIND_PHASE: ALLOCATING,
            }
        case DeviceApi.GPU_SHARE:
            return {names.GPU_INDEX: _indices(grants), names.PREDICATE_TIME: str(int(now * NANO))}
        case DeviceApi.KOORDINATOR:
            return {
                names.DEVICE_ALLOCATED: json.dumps({"gpu": [_allocated(grant) for grant in grants]}, separators=(",", ":")),
                names.GPU_MINORS: _indices(grants),
                names.BIND_TIMESTAMP: str(int(now * NANO)),
            }
        case DeviceApi.WHOLE:
            slots = [[grant.index, grant.memory, grant.cores] for grant in grants]
            return {names.DEVICE_SLOTS: json.dumps(slots, separators=(",", ":"))}


def _vgpu_ids(grants: Sequence[DeviceGrant]) -> str:
    """By container; one without GPUs has an empty item, so that the others keep their index."""
    by_container = [""] * (max(grant.container for grant in grants) + 1)
    for grant in grants:
        by_container[grant.container] += f"{grant.uuid},{VGPU_MODEL},{grant.memory // MIB},{grant.cores}:"
    return ";".join(by_container)


def _indices(grants: Sequence[DeviceGrant]) -> str:
    return ",".join(str(grant.index) for grant in grants)


def _allocated(grant: DeviceGrant) -> dict[str, object]:
    resources = {
        names.KOORDINATOR_GPU_CORE: str(grant.cores),
        names.KOORDINATOR_GPU_MEMORY: str(grant.memory),
        names.KOORDINATOR_GPU_RATIO: str(grant.ratio),
    }
    found: dict[str, object] = {"minor": grant.index, "resources": resources}
    return found | ({"id": grant.uuid} if grant.uuid else {})


def read_device_slots(
    annotations: Mapping[str, str], requests: Sequence[DeviceRequest], *, problems: Problems
) -> tuple[DeviceSlotNote, ...]:
    """The device slots in the annotations of a pod with these requests."""
    for name, read in _SLOT_READERS[requests[0].api]:
        text = annotations.get(name)
        if text is None:
            continue
        try:
            return tuple(read(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            problems.annotation(name).add(text, advice="names no device slots, so the devices of the pod are unknown")
            return ()
    return ()


def _read_vgpu_ids(text: str) -> Iterator[DeviceSlotNote]:
    for entry in text.replace(";", ":").split(":"):
        if entry.strip():
            uuid, _, memory, cores = entry.split(",")[:4]
            yield DeviceSlotNote(uuid=uuid, memory=min(int(memory) * MIB, LARGEST_AMOUNT), cores=min(int(cores), WHOLE_CORES))


def _read_indices(text: str) -> Iterator[DeviceSlotNote]:
    yield from (DeviceSlotNote(index=int(index)) for index in text.split(","))


def _read_allocated(text: str) -> Iterator[DeviceSlotNote]:
    for found in json.loads(text).get("gpu", []):
        amounts = {name: amount(name, str(value)) for name, value in found["resources"].items()}
        yield DeviceSlotNote(
            index=int(found["minor"]),
            memory=amounts.get(names.KOORDINATOR_GPU_MEMORY, 0),
            cores=min(amounts.get(names.KOORDINATOR_GPU_CORE, 0), WHOLE_CORES),
        )


def _read_slots(text: str) -> Iterator[DeviceSlotNote]:
    for index, memory, cores in msgspec.json.decode(text, type=tuple[tuple[int, int, int], ...]):
        yield DeviceSlotNote(index=index, memory=min(memory, LARGEST_AMOUNT), cores=min(cores, WHOLE_CORES))


_SLOT_READERS = {
    DeviceApi.VGPU: ((names.VGPU_IDS, _read_vgpu_ids),),
    DeviceApi.GPU_SHARE: ((names.GPU_INDEX, _read_indices),),
    DeviceApi.KOORDINATOR: ((names.DEVICE_ALLOCATED, _read_allocated),),
    DeviceApi.WHOLE: ((names.DEVICE_ALLOCATED, _read_allocated), (names.DEVICE_SLOTS, _read_slots)),
}
"""The annotations with the device slots of a pod, by the flavour of its requests. The first one that it has counts."""
