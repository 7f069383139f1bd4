"""Devices of nodes in the short form, as the device plugin of their API flavour registers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.device import MIB, WHOLE_CORES
from muster.model.resource_amounts import MEMORY, amount
from muster.scenario.field_reader import Field, FieldReader
from muster.yaml_positions import YamlValue

DEVICE_FLAVOURS = ("vgpu", "gpushare", "koordinator")
DEFAULT_MEMORY = "16Gi"
DEFAULT_SHARES = 10
_DEVICE_MODEL = "NVIDIA-A100"
_Registration = tuple[dict[str, str], dict[str, str], tuple[Manifest, ...]]
"""The node's amounts and annotations, and further objects."""


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device of a node. `flavour` is the API flavour of its device plugin."""

    flavour: str
    memory: int
    shares: int
    device_group: str
    healthy: bool


def parse_devices(at: Field) -> tuple[NodeDevice, ...]:
    found = [spec for item in at.items() for spec in _parse_device(item)]
    if len({spec.flavour for spec in found}) > 1:
        at.report("the devices of one node have one API flavour")
    return tuple(found)


def _parse_device(item: Field) -> Iterator[NodeDevice]:
    fields = FieldReader(item, table="device")
    fields["type"].choice(("gpu",))
    memory = dict(replace(item, at=YamlValue({MEMORY: fields["memory"].at})).amounts()) if "memory" in fields else {}
    spec = NodeDevice(
        flavour=fields["apiFlavour"].choice(DEVICE_FLAVOURS, DEVICE_FLAVOURS[0]),
        memory=amount(MEMORY, memory.get(MEMORY, DEFAULT_MEMORY)),
        shares=fields["shares"].count(DEFAULT_SHARES, least=1),
        device_group=fields["deviceGroup"].text(),
        healthy=fields["healthy"].boolean(default=True),
    )
    for _ in range(fields["count"].count(1, least=1)):
        yield spec


def with_registered_devices(node: Manifest, devices: Sequence[NodeDevice]) -> Iterator[Manifest]:
    """The node as its device plugin registers it, and the plugin's other objects. Amounts of the scenario take precedence."""
    if not devices:
        yield node
        return
    registered, annotations, objects = _REGISTRATIONS[devices[0].flavour](node["metadata"]["name"], devices)
    amounts = {**registered, **node["status"]["allocatable"]}
    if any(spec.device_group for spec in devices) and not objects:
        annotations[names.DEVICE_GROUPS] = ",".join(spec.device_group for spec in devices)
    yield {
        **node,
        "metadata": {**node["metadata"], "annotations": annotations},
        "status": {**node["status"], "allocatable": amounts, "capacity": amounts},
    }
    yield from objects


def device_uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def _vgpu(node: str, devices: Sequence[NodeDevice]) -> _Registration:
    entries = [
        f"{device_uuid(node, index)},{spec.shares},{spec.memory // MIB},{_DEVICE_MODEL},{str(spec.healthy).lower()},hami-core:"
        for index, spec in enumerate(devices)
    ]
    amounts = {
        names.VGPU_NUMBER: str(sum(spec.shares for spec in devices)),
        names.VGPU_MEMORY: str(sum(spec.memory // MIB for spec in devices)),
        names.VGPU_CORES: str(WHOLE_CORES * len(devices)),
    }
    return amounts, {names.VGPU_REGISTER: "".join(entries), names.VGPU_HANDSHAKE: "Reported"}, ()


def _gpushare(node: str, devices: Sequence[NodeDevice]) -> _Registration:  # noqa: ARG001
    """This API flavour has only the total memory, so each device has the mean."""
    amounts = {
        names.GPU_SHARE_NUMBER: str(len(devices)),
        names.GPU_SHARE_MEMORY: str(sum(spec.memory // MIB for spec in devices)),
    }
    broken = ",".join(str(index) for index, spec in enumerate(devices) if not spec.healthy)
    return amounts, {names.UNHEALTHY_GPUS: broken} if broken else {}, ()


def _koordinator(node: str, devices: Sequence[NodeDevice]) -> _Registration:
    entries = [
        {
            "type": "gpu",
            "id": device_uuid(node, index),
            "minor": index,
            "health": spec.healthy,
            "resources": _resources(100, spec.memory),
            "topology": {"socketID": 0, "nodeID": 0, "pcieID": spec.device_group, "busID": f"0000:{index:02x}:00.0"},
        }
        for index, spec in enumerate(devices)
    ]
    made: Manifest = {
        "apiVersion": f"{names.KOORDINATOR_GROUP}/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node},
        "spec": {"devices": entries},
    }
    sound = [spec for spec in devices if spec.healthy]
    hundredths = str(100 * len(sound))
    amounts = {
        names.NVIDIA_GPU: str(len(sound)),
        names.KOORDINATOR_GPU: hundredths,
        names.KOORDINATOR_GPU_SHARED: hundredths,
        **_resources(100 * len(sound), sum(spec.memory for spec in sound)),
    }
    return amounts, {}, (made,)


def _resources(hundredths: int, memory: int) -> dict[str, str]:
    return {
        names.KOORDINATOR_GPU_CORE: str(hundredths),
        names.KOORDINATOR_GPU_MEMORY: str(memory),
        names.KOORDINATOR_GPU_RATIO: str(hundredths),
    }


_REGISTRATIONS = {"vgpu": _vgpu, "gpushare": _gpushare, "koordinator": _koordinator}
