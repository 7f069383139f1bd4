"""Devices in the words of those who register them, ask for them and hand them out.

Four dialects are read: Volcano's virtual GPUs, its older sharing by memory, Koordinator's, and plain `nvidia.com/gpu`. Device
plugins learn which slots a pod got from annotations; the same annotations tell a scheduler that starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.text_values import read_amounts, read_version
from muster.model.device import MIB, WHOLE_CORES, Device, DeviceApi, DeviceGrant, DeviceRequest, DeviceSlotNote
from muster.model.node import Inventory
from muster.model.pod import Problem
from muster.model.resource_amounts import LARGEST_AMOUNT, Resources, amount

MAX_DEVICES = 256
"""No node has more; whoever says so is mistaken."""
VGPU_MODEL = "NVIDIA"
"""What kind of device a slot is of, in Volcano's words."""
ALLOCATING = "allocating"
NANO = 10**9

_SPEC = "spec.containers"


# --- What nodes have ----------------------------------------------------------------------------------------------------------


def node_devices(annotations: Mapping[str, str], capacity: wire.ResourceList, *, problems: Problems) -> tuple[Device, ...]:
    """The devices that a node itself declares. Those of a Device object come on their own."""
    islands = annotations.get(names.DEVICE_GROUPS, "").split(",")
    registered = annotations.get(names.VGPU_REGISTER, "")
    if registered and not annotations.get(names.VGPU_HANDSHAKE, "").startswith("Deleted"):
        return tuple(_vgpu_devices(registered, islands, problems=problems))
    if names.GPU_SHARE_NUMBER in capacity and names.GPU_SHARE_MEMORY in capacity:
        return tuple(_gpu_share_devices(annotations, capacity, islands))
    return ()


def _vgpu_devices(text: str, islands: Sequence[str], *, problems: Problems) -> Iterator[Device]:
    field = f"metadata.annotations[{names.VGPU_REGISTER}]"
    entries = [entry for entry in text.split(":") if entry.strip()]
    if len(entries) > MAX_DEVICES:
        problems.add(field, value=len(entries), advice=f"devices are more than any node has; the first {MAX_DEVICES} count")
    for index, entry in enumerate(entries[:MAX_DEVICES]):
        parts = entry.split(",")
        shares, memory = (_whole_number(part) for part in (parts[1:3] if len(parts) > 4 else ("", "")))
        if not parts[0] or shares is None or memory is None:
            problems.add(field, value=entry, advice="was ignored; write uuid,shares,MiB,model,healthy,mode")
            continue
        yield Device(
            index,
            memory=min(memory * MIB, LARGEST_AMOUNT),
            uuid=parts[0],
            device_group=_item_at(islands, index),
            shares=shares,
            healthy=parts[4].strip().lower() == "true",
            api=DeviceApi.VGPU,
        )


def _gpu_share_devices(annotations: Mapping[str, str], capacity: wire.ResourceList, islands: Sequence[str]) -> Iterator[Device]:
    """So many equal GPUs, and their memory in all. What is wrong with the amounts is told where they are read as amounts."""
    amounts = read_amounts(capacity, field="", problems=Problems())
    count, memory = amounts.get(names.GPU_SHARE_NUMBER, 0), amounts.get(names.GPU_SHARE_MEMORY, 0)
    unhealthy = {word.strip() for word in annotations.get(names.UNHEALTHY_GPUS, "").split(",")}
    for index in range(min(count, MAX_DEVICES)):
        yield Device(
            index,
            memory=min(memory // count * MIB, LARGEST_AMOUNT),
            device_group=_item_at(islands, index),
            healthy=str(index) not in unhealthy,
            api=DeviceApi.GPU_SHARE,
        )


def read_inventory(written: wire.WireDevice, *, problems: Problems) -> Inventory:
    """Koordinator's Device: the GPUs of the node of this name. Of other types nothing is known here."""
    meta = written.metadata
    found: dict[int, Device] = {}
    for i, one in enumerate(written.spec.devices):
        if one.type != "gpu":
            continue
        field = f"spec.devices[{i}]"
        if one.minor is None or one.minor < 0 or one.minor in found or len(found) >= MAX_DEVICES:
            problems.add(f"{field}.minor", value=one.minor, advice="was ignored; write for each GPU a number of its own, from 0 on")
            continue
        amounts = read_amounts(one.resources, field=f"{field}.resources", problems=problems)
        found[one.minor] = Device(
            one.minor,
            memory=amounts.get(names.KOORDINATOR_GPU_MEMORY, 0),
            cores=amounts.get(names.KOORDINATOR_GPU_CORE) or WHOLE_CORES,
            uuid=one.id,
            device_group=_device_group(one.topology),
            healthy=one.health,
            api=DeviceApi.KOORDINATOR,
        )
    return Inventory(
        name=meta.name,
        version=read_version(meta.resource_version),
        devices=tuple(found[index] for index in sorted(found)),
        problems=problems.all(),
    )


def _device_group(topology: wire.DeviceTopology | None) -> str:
    """Devices behind one PCIe switch, else those of one NUMA node."""
    if topology is None:
        return ""
    return topology.pcie_id or f"numa-{topology.node_id}"


def _item_at(words: Sequence[str], index: int) -> str:
    return words[index].strip() if index < len(words) else ""


def _whole_number(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 15 else None


# --- What pods ask for --------------------------------------------------------------------------------------------------------


def device_asks(spec: wire.PodSpec, request: Resources, *, problems: Problems) -> tuple[DeviceRequest, ...]:
    """What a pod asks of devices, beside the amounts in its request. One that mixes dialects has asks of each, and fits nowhere."""
    asks = (
        *_vgpu_asks(spec.containers, problems=problems),
        *_gpu_share_asks(request),
        *_koordinator_asks(request, problems=problems),
        *_whole_gpu_asks(request),
    )
    dialects = sorted({ask.api.value for ask in asks})
    if len(dialects) > 1:
        problems.add(_SPEC, value=", ".join(dialects), advice="are different ways to ask for devices; keep to one of them in a pod")
    return asks


def _vgpu_asks(containers: Iterable[wire.Container], *, problems: Problems) -> Iterator[DeviceRequest]:
    """Each container for itself. One that only says how much memory it needs means one GPU; one that says no memory, all of it."""
    for i, container in enumerate(containers):
        written = {**container.resources.limits, **container.resources.requests}
        own = read_amounts({name: written[name] for name in _VGPU if name in written}, field="", problems=Problems())
        memory, cores = own.get(names.VGPU_MEMORY, 0), own.get(names.VGPU_CORES, 0)
        count = own.get(names.VGPU_NUMBER, 1 if memory else 0)
        if not count:
            if own:
                advice = f"is asked for without a GPU; write {names.VGPU_NUMBER} too"
                problems.add(f"{_SPEC}[{i}].resources", value=next(iter(own)), advice=advice)
            continue
        yield DeviceRequest(
            DeviceApi.VGPU,
            count=count,
            memory=memory * MIB,
            ratio=0 if memory else own.get(names.VGPU_MEMORY_PERCENTAGE, 100),
            cores=cores,
            container=i,
        )


_VGPU = (names.VGPU_NUMBER, names.VGPU_MEMORY, names.VGPU_MEMORY_PERCENTAGE, names.VGPU_CORES)


def _gpu_share_asks(request: Resources) -> Iterator[DeviceRequest]:
    memory, count = request[names.GPU_SHARE_MEMORY], request[names.GPU_SHARE_NUMBER]
    if memory:
        yield DeviceRequest(DeviceApi.GPU_SHARE, memory=memory * MIB)
    if count:
        yield DeviceRequest(DeviceApi.GPU_SHARE, count=count, ratio=100, cores=WHOLE_CORES)


def _koordinator_asks(request: Resources, *, problems: Problems) -> Iterator[DeviceRequest]:
    whole = request[names.KOORDINATOR_GPU]
    cores, ratio = request[names.KOORDINATOR_GPU_CORE] or whole, request[names.KOORDINATOR_GPU_RATIO] or whole
    memory, shared = request[names.KOORDINATOR_GPU_MEMORY], request[names.KOORDINATOR_GPU_SHARED]
    if not (cores or ratio or memory):
        return
    count = shared or (ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1)
    if ratio and memory:
        advice = f"is asked for beside {names.KOORDINATOR_GPU_RATIO}, which counts; write one of them"
        problems.add(_SPEC, value=names.KOORDINATOR_GPU_MEMORY, advice=advice)
    if ratio // count > 100 or cores // count > WHOLE_CORES or ratio % count or cores % count:
        advice = "hundredths cannot be spread over whole GPUs; write at most 100, or a multiple of 100"
        problems.add(_SPEC, value=max(ratio, cores), advice=advice)
    yield DeviceRequest(
        DeviceApi.KOORDINATOR,
        count=count,
        memory=0 if ratio else -(-memory // count),
        ratio=-(-ratio // count),
        cores=-(-cores // count),
    )


def _whole_gpu_asks(request: Resources) -> Iterator[DeviceRequest]:
    if count := request[names.NVIDIA_GPU]:
        yield DeviceRequest(DeviceApi.WHOLE, count=count, ratio=100, cores=WHOLE_CORES)


# --- What a pod got -----------------------------------------------------------------------------------------------------------


def bind_annotations(grants: Sequence[DeviceGrant], *, node: str, now: float) -> dict[str, str]:
    """What the device plugins must find on a pod from the moment when it is bound. All grants of a pod are of one dialect."""
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
    """By container; one that asks for nothing has an empty place, so that the others keep theirs."""
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
    annotations: Mapping[str, str], asks: Sequence[DeviceRequest]
) -> tuple[tuple[DeviceSlotNote, ...], tuple[Problem, ...]]:
    """The slots that are written on a pod which asks for these, and what is wrong with how they are written."""
    for name in _SLOT_ANNOTATIONS[asks[0].api] if asks else ():
        text = annotations.get(name)
        if text is None:
            continue
        try:
            return tuple(_SLOT_READERS[name](text)), ()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            problems = Problems()
            field = f"metadata.annotations[{name}]"
            problems.add(field, value=text, advice="says no slots of devices, so it is not known which the pod has")
            return (), problems.all()
    return (), ()


def _read_vgpu_ids(text: str) -> Iterator[DeviceSlotNote]:
    for entry in text.replace(";", ":").split(":"):
        if entry.strip():
            uuid, _, memory, cores = entry.split(",")[:4]
            yield DeviceSlotNote(uuid=uuid, memory=min(int(memory) * MIB, LARGEST_AMOUNT), cores=min(int(cores), WHOLE_CORES))


def _read_indices(text: str) -> Iterator[DeviceSlotNote]:
    yield from (DeviceSlotNote(index=int(word)) for word in text.split(","))


def _read_allocated(text: str) -> Iterator[DeviceSlotNote]:
    for found in json.loads(text).get("gpu", []):
        said = {name: amount(name, str(value)) for name, value in found["resources"].items()}
        yield DeviceSlotNote(
            index=int(found["minor"]),
            memory=said.get(names.KOORDINATOR_GPU_MEMORY, 0),
            cores=min(said.get(names.KOORDINATOR_GPU_CORE, 0), WHOLE_CORES),
        )


def _read_slots(text: str) -> Iterator[DeviceSlotNote]:
    for index, memory, cores in msgspec.json.decode(text, type=tuple[tuple[int, int, int], ...]):
        yield DeviceSlotNote(index=index, memory=min(memory, LARGEST_AMOUNT), cores=min(cores, WHOLE_CORES))


_SLOT_READERS = {
    names.VGPU_IDS: _read_vgpu_ids,
    names.GPU_INDEX: _read_indices,
    names.DEVICE_ALLOCATED: _read_allocated,
    names.DEVICE_SLOTS: _read_slots,
}

_SLOT_ANNOTATIONS = {
    DeviceApi.VGPU: (names.VGPU_IDS,),
    DeviceApi.GPU_SHARE: (names.GPU_INDEX,),
    DeviceApi.KOORDINATOR: (names.DEVICE_ALLOCATED,),
    DeviceApi.WHOLE: (names.DEVICE_ALLOCATED, names.DEVICE_SLOTS),
}
