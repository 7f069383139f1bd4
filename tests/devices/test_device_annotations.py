"""Devices in the words of those who register them, ask for them and hand them out: read, written, and read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.read.decoder import Decoder
from muster.kube.read.device_flavours import bind_annotations
from muster.kube.write.patch_bodies import binding
from muster.model.device import (
    MIB,
    Device,
    DeviceApi,
    DeviceGrant,
    DeviceRequest,
    DeviceSlot,
    DeviceSlotNote,
    grants,
    satisfy_requests,
)
from muster.model.effects import Bind
from muster.model.node import Inventory, Node
from muster.model.pod import Pod

GIB = 2**30
VGPU, SHARE, KOORDINATOR, WHOLE = (
    DeviceApi.VGPU,
    DeviceApi.GPU_SHARE,
    DeviceApi.KOORDINATOR,
    DeviceApi.WHOLE,
)


def node(*, annotations: dict[str, str] | None = None, capacity: dict[str, Any] | None = None) -> Node:
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": annotations or {}},
        "status": {"capacity": capacity or {}, "allocatable": capacity or {}},
    }
    found = Decoder().decode(manifest)
    assert isinstance(found, Node)
    return found


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, on: str = "") -> Pod:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations or {}},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": f"c{i}", "resources": {"limits": limits}} for i, limits in enumerate(containers)],
            **({"nodeName": on} if on else {}),
        },
    }
    found = Decoder().decode(manifest)
    assert isinstance(found, Pod)
    return found


# -- what nodes have ---------------------------------------------------------------------------------------------------------------


def test_volcanos_virtual_gpus_are_registered_in_an_annotation() -> None:
    registered = "GPU-a,10,8192,NVIDIA-Tesla V100,true,hami-core:GPU-b,4,16384,NVIDIA-A100,false,hami-core:"
    found = node(annotations={"volcano.sh/node-vgpu-register": registered, "muster.dev/device-groups": "left, right"})
    assert found.devices == (
        Device(0, memory=8 * GIB, uuid="GPU-a", device_group="left", shares=10, api=VGPU),
        Device(1, memory=16 * GIB, uuid="GPU-b", device_group="right", shares=4, healthy=False, api=VGPU),
    )
    assert found.problems == ()


def test_the_former_name_of_device_groups_is_reported_with_the_present_one() -> None:
    (problem,) = node(annotations={"muster.dev/device-islands": "left,right"}).problems
    assert problem.field == "metadata.annotations[muster.dev/device-islands]"
    assert problem.text.endswith("was ignored; write muster.dev/device-groups")


def test_gpus_that_are_no_longer_reported_do_not_count() -> None:
    annotations = {
        "volcano.sh/node-vgpu-register": "GPU-a,10,8192,NVIDIA-A100,true,hami-core:",
        "volcano.sh/node-vgpu-handshake": "Deleted_2026.03.01 12:00:00",
    }
    assert node(annotations=annotations).devices == ()


@pytest.mark.parametrize("entry", ["GPU-b", "GPU-b,10", "GPU-b,x,8192,NVIDIA,true", ",1,1,NVIDIA,true,x", "GPU-b,-1,1,NVIDIA,true"])
def test_an_entry_that_cannot_be_read_is_named_and_the_others_keep_their_numbers(entry: str) -> None:
    registered = f"GPU-a,10,8192,NVIDIA-A100,true,hami-core:{entry}:GPU-c,10,8192,NVIDIA-A100,true,hami-core:"
    found = node(annotations={"volcano.sh/node-vgpu-register": registered})
    assert [(device.index, device.uuid) for device in found.devices] == [(0, "GPU-a"), (2, "GPU-c")]
    (problem,) = found.problems
    assert "node-vgpu-register" in problem.field
    assert "write uuid,shares,MiB" in problem.text


def test_volcanos_older_sharing_says_how_many_and_how_much_in_all() -> None:
    capacity = {"volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "32768"}
    found = node(capacity=capacity, annotations={"volcano.sh/gpu-unhealthy-ids": "1"})
    assert found.devices == (
        Device(0, memory=16 * GIB, api=SHARE),
        Device(1, memory=16 * GIB, healthy=False, api=SHARE),
    )


def test_plain_gpus_are_no_devices_with_indices() -> None:
    assert node(capacity={"nvidia.com/gpu": "8"}).devices == ()


def test_koordinators_device_object_has_the_gpus_of_the_node_of_its_name() -> None:
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi", "koordinator.sh/gpu-memory-ratio": "100"}
    manifest = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n1", "resourceVersion": "7"},
        "spec": {
            "devices": [
                {"type": "gpu", "id": "GPU-b", "minor": 1, "health": True, "resources": resources, "topology": {"nodeID": 1}},
                {"type": "rdma", "id": "0000:09:00.0", "minor": 0, "health": True, "resources": {"koordinator.sh/rdma": "100"}},
                {"type": "gpu", "id": "GPU-a", "minor": 0, "health": False, "resources": resources, "topology": {"pcieID": "p0"}},
                {"type": "gpu", "id": "GPU-c", "health": True, "resources": resources},
            ]
        },
    }
    found = Decoder().decode(manifest)
    assert isinstance(found, Inventory)
    assert (found.name, found.version) == ("n1", 7)
    assert found.devices == (
        Device(0, memory=16 * GIB, uuid="GPU-a", device_group="p0", healthy=False, api=KOORDINATOR),
        Device(1, memory=16 * GIB, uuid="GPU-b", device_group="numa-1", api=KOORDINATOR),
    )
    assert [problem.field for problem in found.problems] == ["spec.devices[3].minor"]


# -- what pods ask for -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "ask"),
    [
        (
            {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 3000, "volcano.sh/vgpu-cores": 40},
            DeviceRequest(VGPU, count=2, memory=3000 * MIB, cores=40),
        ),
        ({"volcano.sh/vgpu-number": 1}, DeviceRequest(VGPU, ratio=100)),
        ({"volcano.sh/vgpu-memory": 1024}, DeviceRequest(VGPU, memory=GIB)),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 30}, DeviceRequest(VGPU, ratio=30)),
        ({"volcano.sh/gpu-memory": 1024}, DeviceRequest(SHARE, memory=GIB)),
        ({"volcano.sh/gpu-number": 3}, DeviceRequest(SHARE, count=3, ratio=100, cores=100)),
        ({"koordinator.sh/gpu": 50}, DeviceRequest(KOORDINATOR, ratio=50, cores=50)),
        ({"koordinator.sh/gpu": 300}, DeviceRequest(KOORDINATOR, count=3, ratio=100, cores=100)),
        ({"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory": "4Gi"}, DeviceRequest(KOORDINATOR, memory=4 * GIB, cores=30)),
        (
            {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200},
            DeviceRequest(KOORDINATOR, count=2, ratio=100, cores=100),
        ),
        ({"koordinator.sh/gpu-memory-ratio": 20}, DeviceRequest(KOORDINATOR, ratio=20)),
        (
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 60, "koordinator.sh/gpu-memory": "8Gi"},
            DeviceRequest(KOORDINATOR, count=2, memory=4 * GIB, cores=30),
        ),
        ({"nvidia.com/gpu": 4}, DeviceRequest(WHOLE, count=4, ratio=100, cores=100)),
    ],
)
def test_a_request_is_read_in_its_flavour(limits: dict[str, Any], ask: DeviceRequest) -> None:
    found = pod(limits)
    assert found.signature.devices == (ask,)
    assert found.problems == ()


def test_containers_request_virtual_gpus_each_for_itself_and_other_devices_together() -> None:
    found = pod({"volcano.sh/vgpu-number": 1}, {"cpu": 1}, {"volcano.sh/vgpu-memory": 1024})
    assert found.signature.devices == (DeviceRequest(VGPU, ratio=100), DeviceRequest(VGPU, memory=GIB, container=2))
    assert pod({"volcano.sh/gpu-memory": 1024}, {"volcano.sh/gpu-memory": 1024}).signature.devices == (
        DeviceRequest(SHARE, memory=2 * GIB),
    )
    assert pod({"cpu": 1}).signature.devices == ()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"volcano.sh/vgpu-number": 1, "nvidia.com/gpu": 1}, "different ways to request devices"),
        ({"koordinator.sh/gpu": 100, "volcano.sh/gpu-memory": 1}, "different ways to request devices"),
        ({"volcano.sh/vgpu-cores": 10}, "without a GPU"),
        ({"koordinator.sh/gpu": 150}, "at most 100, or a multiple of 100"),
        ({"koordinator.sh/gpu-memory-ratio": 50, "koordinator.sh/gpu-memory": "1Gi"}, "write one of them"),
    ],
)
def test_an_invalid_request_is_reported_on_its_pod(limits: dict[str, Any], said: str) -> None:
    assert any(said in problem.text for problem in pod(limits).problems)


# -- what a pod got ----------------------------------------------------------------------------------------------------------------

DEVICES = {
    api: tuple(Device(index, memory=8 * GIB, uuid=f"GPU-{index}", api=api) for index in range(4))
    for api in (VGPU, SHARE, KOORDINATOR)
}


def test_volcanos_device_plugin_finds_slots_node_and_time() -> None:
    asks = (DeviceRequest(VGPU, count=2, memory=GIB, cores=30), DeviceRequest(VGPU, memory=2 * GIB, container=2))
    slots = (DeviceSlot(0, GIB, 30), DeviceSlot(1, GIB, 30), DeviceSlot(1, 2 * GIB, 0))
    written = bind_annotations(grants(asks, slots, DEVICES[VGPU]), node="n1", now=1234.5)
    ids = "GPU-0,NVIDIA,1024,30:GPU-1,NVIDIA,1024,30:;;GPU-1,NVIDIA,2048,0:"
    assert written == {
        "volcano.sh/vgpu-ids-new": ids,
        "volcano.sh/devices-to-allocate": ids,
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "1234",
        "volcano.sh/bind-time": "1234",
        "volcano.sh/bind-phase": "allocating",
    }


def test_volcanos_older_device_plugin_finds_indices() -> None:
    asks, slots = (DeviceRequest(SHARE, count=2, ratio=100, cores=100),), (DeviceSlot(1, 8 * GIB, 100), DeviceSlot(3, 8 * GIB, 100))
    written = bind_annotations(grants(asks, slots, DEVICES[SHARE]), node="n1", now=2.0)
    assert written == {"volcano.sh/gpu-index": "1,3", "volcano.sh/predicate-time": "2000000000"}


@pytest.mark.parametrize("api", [KOORDINATOR, WHOLE])
def test_koordinators_node_agent_finds_minors_and_resources(api: DeviceApi) -> None:
    asks, slots = (DeviceRequest(api, ratio=100, cores=100),), (DeviceSlot(2, 8 * GIB, 100),)
    written = bind_annotations(grants(asks, slots, DEVICES[KOORDINATOR]), node="n1", now=2.0)
    assert written.keys() == {
        "scheduling.koordinator.sh/device-allocated",
        "scheduling.koordinator.sh/gpu-minors",
        "scheduling.koordinator.sh/bind-timestamp",
    }
    assert json.loads(written["scheduling.koordinator.sh/device-allocated"]) == {
        "gpu": [
            {
                "minor": 2,
                "id": "GPU-2",
                "resources": {
                    "koordinator.sh/gpu-core": "100",
                    "koordinator.sh/gpu-memory": str(8 * GIB),
                    "koordinator.sh/gpu-memory-ratio": "100",
                },
            }
        ]
    }


def test_whole_gpus_of_a_node_of_another_flavour_leave_other_device_plugins_alone() -> None:
    given_out = grants((DeviceRequest(WHOLE, ratio=100, cores=100),), (DeviceSlot(2, 8 * GIB, 100),), DEVICES[VGPU])
    assert bind_annotations(given_out, node="n1", now=2.0) == {"muster.dev/devices": f"[[2,{8 * GIB},100]]"}


def test_slots_are_written_in_the_same_patch_as_the_node() -> None:
    effect = Bind("u1", "team/a", "n1", "team/g", "it fits", grants=(DeviceGrant(SHARE, 0, 1, "", GIB, 12, 0),))
    body = binding(effect, now=1.0)
    assert body["metadata"]["annotations"]["volcano.sh/gpu-index"] == "1"
    assert body["target"]["name"] == "n1"


@pytest.mark.parametrize(
    ("limits", "api"),
    [
        ({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 1024, "volcano.sh/vgpu-cores": 10}, VGPU),
        ({"volcano.sh/gpu-memory": 1024}, SHARE),
        ({"volcano.sh/gpu-number": 2}, SHARE),
        ({"koordinator.sh/gpu": 50}, KOORDINATOR),
        ({"koordinator.sh/gpu": 200}, KOORDINATOR),
        ({"nvidia.com/gpu": 2}, KOORDINATOR),
        ({"nvidia.com/gpu": 2}, VGPU),
    ],
)
def test_what_was_written_is_read_again(limits: dict[str, Any], api: DeviceApi) -> None:
    asks = pod(limits).signature.devices
    slots = tuple(DeviceSlot(1 + i, ask.memory_of(8 * GIB), ask.cores) for ask in asks for i in range(ask.count))
    assert satisfy_requests(asks, slots, DEVICES[api])
    written = bind_annotations(grants(asks, slots, DEVICES[api]), node="n1", now=1.0)
    notes = pod(limits, annotations=written, on="n1").device_slots
    assert len(notes) == len(slots)
    for note, slot in zip(notes, slots, strict=True):
        assert note.uuid == f"GPU-{slot.index}" or note.index == slot.index
        assert note.memory in (0, slot.memory)
        assert note.cores in (0, slot.cores)
    assert pod(limits, annotations=written).device_slots == ()


@pytest.mark.parametrize(
    ("limits", "annotation", "text"),
    [
        ({"volcano.sh/vgpu-number": 1}, "volcano.sh/vgpu-ids-new", "GPU-a;"),
        ({"volcano.sh/vgpu-number": 1}, "volcano.sh/vgpu-ids-new", "GPU-a,NVIDIA,much,0:"),
        ({"volcano.sh/gpu-memory": 1}, "volcano.sh/gpu-index", "first"),
        ({"koordinator.sh/gpu": 50}, "scheduling.koordinator.sh/device-allocated", "[]"),
        ({"koordinator.sh/gpu": 50}, "scheduling.koordinator.sh/device-allocated", '{"gpu": [{}]}'),
        ({"nvidia.com/gpu": 1}, "muster.dev/devices", '[["a"]]'),
    ],
)
def test_slots_that_cannot_be_read_are_reported_on_the_pod(limits: dict[str, Any], annotation: str, text: str) -> None:
    found = pod(limits, annotations={annotation: text}, on="n1")
    assert found.device_slots == ()
    assert any(annotation in problem.field for problem in found.problems)


def test_forged_slots_are_ignored() -> None:
    asks = (DeviceRequest(VGPU, count=2, memory=GIB, cores=10),)
    good = (DeviceSlot(0, GIB, 10), DeviceSlot(1, GIB, 10))
    assert satisfy_requests(asks, good, DEVICES[VGPU])
    for second in (good[0], DeviceSlot(9, GIB, 10), DeviceSlot(1, 0, 10), DeviceSlot(1, GIB, 0)):
        assert not satisfy_requests(asks, (good[0], second), DEVICES[VGPU])
    assert not satisfy_requests(asks, good[:1], DEVICES[VGPU])
    assert not satisfy_requests(asks, (), DEVICES[VGPU])


texts = st.text(alphabet="GPU-ab01,:;.[]{}\"'eE+ \n\x00é", max_size=60)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_no_text_breaks_the_readers(text: str) -> None:
    annotations = dict.fromkeys(
        (
            "volcano.sh/node-vgpu-register",
            "volcano.sh/gpu-unhealthy-ids",
            "muster.dev/device-groups",
            "volcano.sh/node-vgpu-handshake",
        ),
        text,
    )
    found = node(annotations=annotations, capacity={"volcano.sh/gpu-number": 2, "volcano.sh/gpu-memory": 100})
    assert all(device.memory >= 0 for device in found.devices)
    slots = ("volcano.sh/vgpu-ids-new", "volcano.sh/gpu-index", "scheduling.koordinator.sh/device-allocated", "muster.dev/devices")
    for limits in ({"volcano.sh/vgpu-number": 1}, {"volcano.sh/gpu-memory": 1}, {"koordinator.sh/gpu": 1}, {"nvidia.com/gpu": 1}):
        for note in pod(limits, annotations=dict.fromkeys(slots, text), on="n1").device_slots:
            assert isinstance(note, DeviceSlotNote)
