"""Devices of nodes in the short form, written as the device plugin of their dialect would register them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.adapters.kube import names
from muster.model.devices import MIB, WHOLE_CORES
from muster.model.resources import MEMORY, amount
from muster.scenario.fields import Fields, amounts_of
from muster.scenario.story import Manifest
from muster.yaml_marks import Marked

DIALECTS = ("vgpu", "gpushare", "koordinator")
DEFAULT_MEMORY = "16Gi"
SHARES = 10
_MODEL = "NVIDIA-A100"


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device of a node. `dialect` says who registers it."""

    dialect: str
    memory: int
    shares: int
    island: str
    healthy: bool


def read_devices(fields: Fields) -> tuple[DeviceSpec, ...]:
    found = [spec for path, item in fields.items("devices") for spec in _row(item, path, fields)]
    if len({spec.dialect for spec in found}) > 1:
        fields.fault("devices", "the devices of one node are of one dialect")
    return tuple(found)


def _row(item: Marked, path: str, outer: Fields) -> Iterator[DeviceSpec]:
    fields = Fields(item, table="device", path=path, faults=outer.faults)
    fields.choice("kind", ("gpu",))
    memory = fields.get("memory")
    room = dict(amounts_of(Marked({MEMORY: memory}), field=path, faults=outer.faults)) if memory is not None else {}
    spec = DeviceSpec(
        dialect=fields.choice("dialect", DIALECTS, DIALECTS[0]),
        memory=amount(MEMORY, room.get(MEMORY, DEFAULT_MEMORY)),
        shares=fields.count("shares", SHARES, least=1),
        island=fields.text("island"),
        healthy=fields.switch("healthy", default=True),
    )
    for _ in range(fields.count("count", 1, least=1)):
        yield spec


def with_devices(node: Manifest, devices: Sequence[DeviceSpec]) -> Iterator[Manifest]:
    """The node as its device plugin leaves it, and what else the plugin writes. Amounts that the scenario gave stay."""
    if not devices:
        yield node
        return
    written = _WRITERS[devices[0].dialect](node["metadata"]["name"], devices)
    amounts = {**written.amounts, **node["status"]["allocatable"]}
    if any(spec.island for spec in devices) and not written.objects:
        written.annotations[names.DEVICE_ISLANDS] = ",".join(spec.island for spec in devices)
    yield {
        **node,
        "metadata": {**node["metadata"], "annotations": written.annotations},
        "status": {**node["status"], "allocatable": amounts, "capacity": amounts},
    }
    yield from written.objects


@dataclass(frozen=True, slots=True)
class _Written:
    amounts: dict[str, str]
    annotations: dict[str, str]
    objects: tuple[Manifest, ...] = ()


def uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def _vgpu(node: str, devices: Sequence[DeviceSpec]) -> _Written:
    entries = [
        f"{uuid(node, index)},{spec.shares},{spec.memory // MIB},{_MODEL},{str(spec.healthy).lower()},hami-core:"
        for index, spec in enumerate(devices)
    ]
    amounts = {
        names.VGPU_NUMBER: str(sum(spec.shares for spec in devices)),
        names.VGPU_MEMORY: str(sum(spec.memory // MIB for spec in devices)),
        names.VGPU_CORES: str(WHOLE_CORES * len(devices)),
    }
    return _Written(amounts, {names.VGPU_REGISTER: "".join(entries), names.VGPU_HANDSHAKE: "Reported"})


def _gpushare(node: str, devices: Sequence[DeviceSpec]) -> _Written:  # noqa: ARG001
    """This dialect knows only how much memory there is in all, so the devices are as large as their mean."""
    amounts = {
        names.GPU_SHARE_NUMBER: str(len(devices)),
        names.GPU_SHARE_MEMORY: str(sum(spec.memory // MIB for spec in devices)),
    }
    broken = ",".join(str(index) for index, spec in enumerate(devices) if not spec.healthy)
    return _Written(amounts, {names.UNHEALTHY_GPUS: broken} if broken else {})


def _koordinator(node: str, devices: Sequence[DeviceSpec]) -> _Written:
    entries = [
        {
            "type": "gpu",
            "id": uuid(node, index),
            "minor": index,
            "health": spec.healthy,
            "resources": _resources(100, spec.memory),
            "topology": {"socketID": 0, "nodeID": 0, "pcieID": spec.island, "busID": f"0000:{index:02x}:00.0"},
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
    return _Written(amounts, {}, (made,))


def _resources(hundredths: int, memory: int) -> dict[str, str]:
    return {
        names.KOORDINATOR_GPU_CORE: str(hundredths),
        names.KOORDINATOR_GPU_MEMORY: str(memory),
        names.KOORDINATOR_GPU_RATIO: str(hundredths),
    }


_WRITERS = {"vgpu": _vgpu, "gpushare": _gpushare, "koordinator": _koordinator}
