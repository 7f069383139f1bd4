"""Slots, fits and bulk placement agree with the slow twin on random worlds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices import device_twin
from tests.devices.device_worlds import Case, cases, device_lists, make_world, pod_asks

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place, placement_order
from muster.model.device import Device, DeviceRequest, DeviceSlot
from muster.model.pod import RELEASING, Phase
from muster.plugins.devices import Devices
from muster.state.derived.device_usage import are_free, device_usage, overcommitted_device
from muster.state.device_slot_choice import choose
from muster.state.node_table import NodeRows

QUICK = settings(max_examples=150, deadline=None)


def node_devices_and_state(
    devices: tuple[Device, ...], slots: list[DeviceSlot]
) -> tuple[device_twin.NodeDevices, tuple[list[int], list[int], list[int]]]:
    node_devices = {device.index: [device_twin.DeviceUsage(device)] for device in devices}
    for slot in slots:
        if slot.index in node_devices:
            node_devices[slot.index] = [node_devices[slot.index][0].plus(slot)]
    fulls = [node_devices[device.index][0] for device in devices]
    return node_devices, ([f.memory for f in fulls], [f.cores for f in fulls], [len(f.slots) for f in fulls])


used_slots = st.lists(
    st.builds(
        DeviceSlot, index=st.integers(0, 4), memory=st.sampled_from([2**30, 2**31, 2**32]), cores=st.sampled_from([0, 20, 100])
    ),
    max_size=5,
)


@QUICK
@given(device_lists, used_slots, pod_asks(), st.booleans())
def test_the_slots_are_the_best_of_all_that_serve(
    devices: tuple[Device, ...], taken: list[DeviceSlot], some: tuple[DeviceRequest, ...], spread: bool
) -> None:
    node_devices, state = node_devices_and_state(devices, taken)
    assert choose(devices, state, some, spread=spread) == device_twin.choose(node_devices, some, spread=spread)


@QUICK
@given(cases())
def test_a_pod_fits_exactly_where_slots_can_be_chosen(case: Case) -> None:
    here = make_world(case)
    for pod in here.wanted:
        for after_releases in (False, True):
            column = here.s.node_scores(pod, after_releases=after_releases).value > -np.inf
            for row, name in enumerate(here.world.table.names):
                slots = device_twin.slots_for(here.world, pod, name, after_releases=after_releases, spread=case.spread)
                expected = slots is not None and device_twin.fits_node(here.world, pod, name, after_releases=after_releases)
                assert bool(column[row]) == expected
                assert fits_on(here.s, pod, name, after_releases=after_releases) == expected
                chosen = here.s.slots(pod, (name,), after_releases=after_releases)
                assert (chosen[0] if chosen is not None else ()) == (slots or ())


@QUICK
@given(cases())
def test_members_in_bulk_get_the_nodes_and_slots_that_they_would_get_one_by_one(case: Case) -> None:
    slow = make_world(case)
    # In which order they are placed has a twin of its own, in tests/placement.
    order = placement_order(slow.s, slow.wanted)
    expected = device_twin.one_by_one(slow.world, order, phase=case.phase, spread=case.spread)
    here = make_world(case)
    with here.s.trial("try", cause="Test") as trial:
        place(here.s, trial, here.wanted, domain=WHOLE_CLUSTER, phase=case.phase)
        placed = [here.world.placements.by_uid.get(pod.uid) for pod in order]
        assert [None if one is None else (one.node, one.devices) for one in placed] == expected


@QUICK
@given(cases(), st.sampled_from(["binpack", "fragments", "spread", "best-fit", "fgd"]))
def test_scores_change_nothing_about_that(case: Case, score: str) -> None:
    together, apart = make_world(case, score=score), make_world(case, score=score)
    with together.s.trial("try", cause="Test") as trial, apart.s.trial("try", cause="Test") as other:
        place(together.s, trial, together.wanted, domain=WHOLE_CLUSTER, phase=case.phase)
        for pod in placement_order(apart.s, apart.wanted):
            place(apart.s, other, [pod], domain=WHOLE_CLUSTER, phase=case.phase)
        for one, same in zip(together.wanted, apart.wanted, strict=True):
            assert together.world.placement(one) == apart.world.placement(same)


@QUICK
@given(cases())
def test_hypothetical_pods_on_a_node_are_counted_as_if_they_were_there(case: Case) -> None:
    here = make_world(case)
    plugin, table = Devices(strategy="spread" if case.spread else "binpack"), here.world.table
    for pod in here.wanted:
        for row, name in enumerate(table.names):
            if not pod.signature.devices or not here.world.facts.nodes[name].devices:
                continue
            index, extra = np.full(6, row, dtype=np.intp), np.arange(6, dtype=np.int64)
            rows = NodeRows(table, index, after_releases=True, extra=extra, request=here.world.request(pod))
            node_devices, expected = device_twin.devices_of(here.world, name, after_releases=True), list[bool]()
            while len(expected) < 6:
                slots = device_twin.choose(node_devices, pod.signature.devices, spread=case.spread) if all(expected) else None
                expected.append(slots is not None)
                node_devices = device_twin.with_slots(node_devices, slots or ())
            assert plugin.fit(here.s, pod, rows).tolist() == expected


@QUICK
@given(cases())
def test_exact_slots_are_free_when_they_could_be_chosen_again(case: Case) -> None:
    here = make_world(case)
    for pod, placed_pod in zip(here.placed_pods, case.placed_pods, strict=True):
        with here.s.trial("look", cause="Test") as trial:
            trial.release(pod)
            for after_releases in (False, True):
                node_devices = device_twin.devices_of(here.world, placed_pod.node, after_releases=after_releases)
                expected = True
                for slot in placed_pod.slots:
                    fulls = node_devices.get(slot.index)
                    expected = expected and fulls is not None and all(full.takes(slot) for full in fulls)
                    if fulls is not None:
                        node_devices = device_twin.with_slots(node_devices, [slot])
                assert are_free(here.world, placed_pod.node, placed_pod.slots, after_releases=after_releases) == expected


@QUICK
@given(cases())
def test_the_device_usage_of_a_world_is_the_sum_over_its_placements(case: Case) -> None:
    here = make_world(case)
    for name in here.world.facts.nodes:
        for after_releases in (False, True):
            node_devices = device_twin.devices_of(here.world, name, after_releases=after_releases)
            memory, cores, holders = device_usage(here.world).free_on(here.world.table.row[name], after_releases=after_releases)
            fulls = [node_devices[index] for index in sorted(node_devices)]
            assert memory == [min(full.memory for full in some) for some in fulls]
            assert cores == [min(full.cores for full in some) for some in fulls]
            assert holders == [max(len(full.slots) for full in some) for some in fulls]


@QUICK
@given(cases())
def test_what_is_requested_of_a_node_is_the_sum_over_the_pods_that_stay(case: Case) -> None:
    here = make_world(case)
    planned, there = device_usage(here.world).node_totals(None)
    for node in case.nodes if device_usage(here.world).width else ():
        staying = [pod.asks for pod in case.placed_pods if pod.node == node.name and pod.phase is not Phase.TERMINATING]
        each = [(ask.count * ask.memory, ask.count * ask.ratio, ask.count * ask.cores) for asks in staying for ask in asks]
        row = here.world.table.row[node.name]
        assert planned[row].tolist() == [sum(column) for column in zip((0, 0, 0), *each, strict=True)]
        memory, cores = sum(device.memory for device in node.devices), sum(device.cores for device in node.devices)
        assert there[row].tolist() == [memory, 100 * len(node.devices), cores]


@QUICK
@given(cases())
def test_a_reservation_is_lost_with_a_device_that_is_gone_broken_or_overcommitted(case: Case) -> None:
    here = make_world(case)
    # Only a reservation can be lost; the slots of a terminating pod are not among those that will be used.
    for placed_pod in (one for one in case.placed_pods if one.phase not in RELEASING):
        node_devices = {
            index: fulls[0] for index, fulls in device_twin.devices_of(here.world, placed_pod.node, after_releases=True).items()
        }
        lost = [
            slot.index
            for slot in placed_pod.slots
            if slot.index not in node_devices or _is_overcommitted(node_devices[slot.index], slot)
        ]
        assert overcommitted_device(here.world, placed_pod.node, placed_pod.slots) == (lost[0] if lost else None)


def _is_overcommitted(full: device_twin.DeviceUsage, slot: DeviceSlot) -> bool:
    device = full.device
    most = 1 if slot.cores == device.cores else device.shares or len(full.slots)
    return not device.healthy or full.memory < 0 or full.cores < 0 or len(full.slots) > most
