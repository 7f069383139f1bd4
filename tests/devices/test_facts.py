"""Whose slots are whose, from what the objects say, in whatever order they come."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from muster.model.devices import Device, DeviceAsk, DeviceDialect, Slot, SlotNote
from muster.model.events import Event, Gone, Seen
from muster.model.node import Inventory, Node
from muster.model.pod import Kind, Phase, Pod, Running
from muster.model.resources import CPU, PODS, Resources
from muster.state.devices import occupancy
from muster.state.store import Store
from muster.state.world import World

GIB = 2**30
ROOM = Resources.of({CPU: 64_000, PODS: 110})
DEVICES = tuple(Device(index, memory=8 * GIB, uuid=f"GPU-{index}") for index in range(2))
HALF = DeviceAsk(DeviceDialect.VGPU, memory=4 * GIB)


def node(*, devices: tuple[Device, ...] = DEVICES, version: int = 1) -> Node:
    return Node("n1", version=version, allocatable=ROOM, devices=devices)


def bound(name: str, *notes: SlotNote, ask: DeviceAsk = HALF, started: float = 0.0, version: int = 1) -> Pod:
    kind = Kind(request=Resources.of({CPU: 100, PODS: 1}), devices=(ask,))
    there = Pod(name, "d", name, kind, version=version, node="n1", running=Running.RUNNING, started=started)
    return replace(there, slots=notes)


def world_of(*events: Event) -> World:
    store = Store()
    for event in events:
        store.fold(event)
    return store.world(100.0)


def slots(world: World) -> dict[str, tuple[Slot, ...]]:
    return {uid: placement.devices for uid, placement in sorted(world.placements.by_uid.items())}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_events_does_not_matter(order: tuple[int, ...]) -> None:
    events = [
        Seen(node()),
        Seen(bound("a", SlotNote(uuid="GPU-1", memory=4 * GIB), started=5.0)),
        Seen(bound("b", started=9.0)),
        Seen(bound("c", started=7.0)),
    ]
    world = world_of(*(events[number] for number in order))
    # Those who do not say are taken to have the lowest device with room, the longest there first.
    half = 4 * GIB
    assert slots(world) == {"a": (Slot(1, half, 0),), "b": (Slot(0, half, 0),), "c": (Slot(0, half, 0),)}


def test_a_pod_without_room_on_any_device_is_taken_to_overfill_the_lowest() -> None:
    world = world_of(Seen(node()), *(Seen(bound(f"p{i}", ask=replace(HALF, memory=6 * GIB), started=float(i))) for i in range(3)))
    assert [found[0].index for found in slots(world).values()] == [0, 1, 0]
    assert occupancy(world).left_on(0, soon=False)[0] == [-4 * GIB, 2 * GIB]


def test_what_is_written_later_corrects_what_was_supposed() -> None:
    store = Store()
    for event in (Seen(node()), Seen(bound("a"))):
        store.fold(event)
    assert slots(store.world(1.0))["a"][0].index == 0
    store.fold(Seen(bound("a", SlotNote(uuid="GPU-1", memory=4 * GIB), version=2)))
    assert slots(store.world(2.0))["a"][0].index == 1


def test_a_slot_says_which_device_and_never_that_it_is_less_than_was_asked_for() -> None:
    world = world_of(Seen(node()), Seen(bound("a", SlotNote(uuid="GPU-1", memory=1, cores=-5))))
    assert slots(world) == {"a": (Slot(1, 4 * GIB, 0),)}


def test_devices_that_come_after_their_pods_and_go_again() -> None:
    store = Store()
    for event in (Seen(node(devices=())), Seen(bound("a"))):
        store.fold(event)
    assert slots(store.world(1.0)) == {"a": ()}
    store.fold(Seen(Inventory("n1", 1, DEVICES)))
    world = store.world(2.0)
    assert world.facts.nodes["n1"].devices == DEVICES
    assert slots(world) == {"a": (Slot(0, 4 * GIB, 0),)}
    # The node is seen again and says nothing of devices: the other object still does.
    store.fold(Seen(node(devices=(), version=2)))
    assert store.world(3.0).facts.nodes["n1"].devices == DEVICES
    store.fold(Gone("Inventory", "n1", 2))
    assert store.world(4.0).facts.nodes["n1"].devices == ()


def test_an_inventory_may_come_before_its_node() -> None:
    world = world_of(Seen(Inventory("n1", 1, DEVICES)), Seen(bound("a")), Seen(node(devices=())))
    assert slots(world) == {"a": (Slot(0, 4 * GIB, 0),)}


def test_what_the_node_itself_says_counts_before_any_other_object() -> None:
    own = (Device(0, memory=16 * GIB),)
    world = world_of(Seen(node(devices=own)), Seen(Inventory("n1", 1, DEVICES)))
    assert world.facts.nodes["n1"].devices == own


def test_a_leaving_pod_keeps_its_slots_until_it_is_gone() -> None:
    store = Store()
    for event in (Seen(node()), Seen(bound("a", SlotNote(index=1))), Seen(replace(bound("a", version=2), deleted_at=50.0))):
        store.fold(event)
    world = store.world(1.0)
    assert (world.placements.by_uid["a"].phase, world.placements.by_uid["a"].devices) == (Phase.LEAVING, (Slot(1, 4 * GIB, 0),))
    assert occupancy(world).left_on(0, soon=False)[0] == [8 * GIB, 4 * GIB]
    assert occupancy(world).left_on(0, soon=True)[0] == [8 * GIB, 8 * GIB]
    store.fold(Gone("Pod", "a", 3))
    assert occupancy(store.world(2.0)).left_on(0, soon=False)[0] == [8 * GIB, 8 * GIB]
