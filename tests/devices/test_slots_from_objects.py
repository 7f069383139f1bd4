"""Whose slots are whose, from what the objects say, in whatever order they come."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from muster.model.device import Device, DeviceApi, DeviceRequest, DeviceSlot, DeviceSlotNote
from muster.model.events import Delete, Event, Upsert
from muster.model.node import Inventory, Node
from muster.model.pod import Phase, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.state.derived.device_usage import device_usage
from muster.state.store import Store
from muster.state.world import World

GIB = 2**30
CAPACITY = Resources.of({CPU: 64_000, PODS: 110})
DEVICES = tuple(Device(index, memory=8 * GIB, uuid=f"GPU-{index}") for index in range(2))
HALF = DeviceRequest(DeviceApi.VGPU, memory=4 * GIB)


def node(*, devices: tuple[Device, ...] = DEVICES, version: int = 1) -> Node:
    return Node("n1", version=version, allocatable=CAPACITY, devices=devices)


def bound(name: str, *notes: DeviceSlotNote, ask: DeviceRequest = HALF, started: float = 0.0, version: int = 1) -> Pod:
    kind = PodSignature(request=Resources.of({CPU: 100, PODS: 1}), devices=(ask,))
    there = Pod(name, "d", name, kind, version=version, node="n1", status_phase=PodStatusPhase.RUNNING, started=started)
    return replace(there, device_slots=notes)


def world_of(*events: Event) -> World:
    store = Store()
    for event in events:
        store.fold(event)
    return store.world(100.0)


def slots(world: World) -> dict[str, tuple[DeviceSlot, ...]]:
    return {uid: placement.devices for uid, placement in sorted(world.placements.by_uid.items())}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_events_does_not_matter(order: tuple[int, ...]) -> None:
    events = [
        Upsert(node()),
        Upsert(bound("a", DeviceSlotNote(uuid="GPU-1", memory=4 * GIB), started=5.0)),
        Upsert(bound("b", started=9.0)),
        Upsert(bound("c", started=7.0)),
    ]
    world = world_of(*(events[number] for number in order))
    # Those who do not say are taken to have the lowest device with capacity, the longest there first.
    half = 4 * GIB
    assert slots(world) == {"a": (DeviceSlot(1, half, 0),), "b": (DeviceSlot(0, half, 0),), "c": (DeviceSlot(0, half, 0),)}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_is_written_on_one_pod_is_known_before_anything_is_supposed_of_another(order: tuple[int, ...]) -> None:
    whole = replace(HALF, memory=8 * GIB)
    written = bound("a", DeviceSlotNote(uuid="GPU-0", memory=8 * GIB), ask=whole, started=9.0)
    events = [Upsert(node()), Upsert(written), Upsert(bound("older", ask=whole, started=5.0))]
    world = world_of(*(events[number] for number in order))
    assert slots(world) == {"a": (DeviceSlot(0, 8 * GIB, 0),), "older": (DeviceSlot(1, 8 * GIB, 0),)}


def test_a_pod_that_fits_no_device_overcommits_the_lowest() -> None:
    world = world_of(
        Upsert(node()), *(Upsert(bound(f"p{i}", ask=replace(HALF, memory=6 * GIB), started=float(i))) for i in range(3))
    )
    assert [found[0].index for found in slots(world).values()] == [0, 1, 0]
    assert device_usage(world).free_on(0, after_releases=False)[0] == [-4 * GIB, 2 * GIB]


def test_a_later_annotation_corrects_what_was_assumed() -> None:
    store = Store()
    for event in (Upsert(node()), Upsert(bound("a"))):
        store.fold(event)
    assert slots(store.world(1.0))["a"][0].index == 0
    store.fold(Upsert(bound("a", DeviceSlotNote(uuid="GPU-1", memory=4 * GIB), version=2)))
    assert slots(store.world(2.0))["a"][0].index == 1


def test_a_slot_names_its_device_and_is_never_less_than_requested() -> None:
    world = world_of(Upsert(node()), Upsert(bound("a", DeviceSlotNote(uuid="GPU-1", memory=1, cores=-5))))
    assert slots(world) == {"a": (DeviceSlot(1, 4 * GIB, 0),)}


def test_devices_that_come_after_their_pods_and_go_again() -> None:
    store = Store()
    for event in (Upsert(node(devices=())), Upsert(bound("a"))):
        store.fold(event)
    assert slots(store.world(1.0)) == {"a": ()}
    store.fold(Upsert(Inventory("n1", 1, DEVICES)))
    world = store.world(2.0)
    assert world.facts.nodes["n1"].devices == DEVICES
    assert slots(world) == {"a": (DeviceSlot(0, 4 * GIB, 0),)}
    # The node is seen again and says nothing of devices: the other object still does.
    store.fold(Upsert(node(devices=(), version=2)))
    assert store.world(3.0).facts.nodes["n1"].devices == DEVICES
    store.fold(Delete("Inventory", "n1", 2))
    assert store.world(4.0).facts.nodes["n1"].devices == ()


def test_an_inventory_may_come_before_its_node() -> None:
    world = world_of(Upsert(Inventory("n1", 1, DEVICES)), Upsert(bound("a")), Upsert(node(devices=())))
    assert slots(world) == {"a": (DeviceSlot(0, 4 * GIB, 0),)}


def test_the_node_object_counts_before_any_other_object() -> None:
    own = (Device(0, memory=16 * GIB),)
    world = world_of(Upsert(node(devices=own)), Upsert(Inventory("n1", 1, DEVICES)))
    assert world.facts.nodes["n1"].devices == own


def test_a_terminating_pod_keeps_its_slots_until_it_is_deleted() -> None:
    store = Store()
    for event in (
        Upsert(node()),
        Upsert(bound("a", DeviceSlotNote(index=1))),
        Upsert(replace(bound("a", version=2), deleted_at=50.0)),
    ):
        store.fold(event)
    world = store.world(1.0)
    assert (world.placements.by_uid["a"].phase, world.placements.by_uid["a"].devices) == (
        Phase.TERMINATING,
        (DeviceSlot(1, 4 * GIB, 0),),
    )
    assert device_usage(world).free_on(0, after_releases=False)[0] == [8 * GIB, 4 * GIB]
    assert device_usage(world).free_on(0, after_releases=True)[0] == [8 * GIB, 8 * GIB]
    store.fold(Delete("Pod", "a", 3))
    assert device_usage(store.world(2.0)).free_on(0, after_releases=False)[0] == [8 * GIB, 8 * GIB]
