"""Slots, fits and bulk placement agree with the slow twin on random worlds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices import twin
from tests.devices.worlds import Case, cases, given_world, pod_asks, shelves

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place
from muster.model.devices import Device, DeviceAsk, Slot
from muster.plugins.devices import Devices
from muster.state.devices import are_free, occupancy, overfull
from muster.state.slot_choice import choose
from muster.state.table import Rows

quick = settings(max_examples=150, deadline=None)


def shelf_and_state(devices: tuple[Device, ...], slots: list[Slot]) -> tuple[twin.Shelf, tuple[list[int], list[int], list[int]]]:
    shelf = {device.index: [twin.Full(device)] for device in devices}
    for slot in slots:
        if slot.index in shelf:
            shelf[slot.index] = [shelf[slot.index][0].plus(slot)]
    fulls = [shelf[device.index][0] for device in devices]
    return shelf, ([f.memory for f in fulls], [f.cores for f in fulls], [len(f.slots) for f in fulls])


taken_slots = st.lists(
    st.builds(Slot, index=st.integers(0, 4), memory=st.sampled_from([2**30, 2**31, 2**32]), cores=st.sampled_from([0, 20, 100])),
    max_size=5,
)


@quick
@given(shelves, taken_slots, pod_asks(), st.booleans())
def test_the_slots_are_the_best_of_all_that_serve(
    devices: tuple[Device, ...], taken: list[Slot], some: tuple[DeviceAsk, ...], spread: bool
) -> None:
    shelf, state = shelf_and_state(devices, taken)
    assert choose(devices, state, some, spread=spread) == twin.choose(shelf, some, spread=spread)


@quick
@given(cases())
def test_a_pod_fits_exactly_where_slots_can_be_chosen(case: Case) -> None:
    here = given_world(case)
    for pod in here.wanted:
        for soon in (False, True):
            column = here.s.columns(pod, soon=soon).value > -np.inf
            for row, name in enumerate(here.world.table.names):
                slots = twin.slots_for(here.world, pod, name, soon=soon, spread=case.spread)
                expected = slots is not None and twin.room_for(here.world, pod, name, soon=soon)
                assert bool(column[row]) == expected
                assert fits_on(here.s, pod, name, soon=soon) == expected
                chosen = here.s.slots(pod, (name,), soon=soon)
                assert (chosen[0] if chosen is not None else ()) == (slots or ())


@quick
@given(cases())
def test_members_in_bulk_get_the_nodes_and_slots_that_they_would_get_one_by_one(case: Case) -> None:
    slow = given_world(case)
    expected = twin.one_by_one(slow.world, slow.wanted, phase=case.phase, spread=case.spread)
    here = given_world(case)
    with here.s.trial("try", cause="Test") as trial:
        place(here.s, trial, here.wanted, domain=WHOLE_CLUSTER, phase=case.phase)
        placed = [here.world.placements.by_uid.get(pod.uid) for pod in here.wanted]
        assert [None if one is None else (one.node, one.devices) for one in placed] == expected


@quick
@given(cases(), st.sampled_from(["binpack", "spread"]))
def test_scores_change_nothing_about_that(case: Case, score: str) -> None:
    together, apart = given_world(case, score=score), given_world(case, score=score)
    with together.s.trial("try", cause="Test") as trial, apart.s.trial("try", cause="Test") as other:
        place(together.s, trial, together.wanted, domain=WHOLE_CLUSTER, phase=case.phase)
        for pod in apart.wanted:
            place(apart.s, other, [pod], domain=WHOLE_CLUSTER, phase=case.phase)
        for one, same in zip(together.wanted, apart.wanted, strict=True):
            assert together.world.placement(one) == apart.world.placement(same)


@quick
@given(cases())
def test_further_pods_imagined_on_a_node_are_counted_as_if_they_were_there(case: Case) -> None:
    here = given_world(case)
    plugin, table = Devices(strategy="spread" if case.spread else "binpack"), here.world.table
    for pod in here.wanted:
        for row, name in enumerate(table.names):
            if not pod.kind.devices or not here.world.facts.nodes[name].devices:
                continue
            index, extra = np.full(6, row, dtype=np.intp), np.arange(6, dtype=np.int64)
            rows = Rows(table, index, soon=True, extra=extra, request=here.world.request(pod))
            shelf, expected = twin.shelf_of(here.world, name, soon=True), list[bool]()
            while len(expected) < 6:
                slots = twin.choose(shelf, pod.kind.devices, spread=case.spread) if all(expected) else None
                expected.append(slots is not None)
                shelf = twin.with_slots(shelf, slots or ())
            assert plugin.fit(here.s, pod, rows).tolist() == expected


@quick
@given(cases())
def test_exact_slots_are_free_when_they_could_be_chosen_again(case: Case) -> None:
    here = given_world(case)
    for pod, stand in zip(here.stands, case.stands, strict=True):
        with here.s.trial("look", cause="Test") as trial:
            trial.release(pod)
            for soon in (False, True):
                shelf = twin.shelf_of(here.world, stand.node, soon=soon)
                expected = True
                for slot in stand.slots:
                    fulls = shelf.get(slot.index)
                    expected = expected and fulls is not None and all(full.takes(slot) for full in fulls)
                    if fulls is not None:
                        shelf = twin.with_slots(shelf, [slot])
                assert are_free(here.world, stand.node, stand.slots, soon=soon) == expected


@quick
@given(cases())
def test_the_figures_of_a_world_are_what_stands_on_its_devices(case: Case) -> None:
    here = given_world(case)
    for name in here.world.facts.nodes:
        for soon in (False, True):
            shelf = twin.shelf_of(here.world, name, soon=soon)
            memory, cores, holders = occupancy(here.world).left_on(here.world.table.row[name], soon=soon)
            fulls = [shelf[index] for index in sorted(shelf)]
            assert memory == [min(full.memory for full in some) for some in fulls]
            assert cores == [min(full.cores for full in some) for some in fulls]
            assert holders == [max(len(full.slots) for full in some) for some in fulls]


@quick
@given(cases())
def test_a_claim_is_lost_with_a_device_that_is_gone_broken_or_promised_to_too_many(case: Case) -> None:
    here = given_world(case)
    for stand in case.stands:
        shelf = {index: fulls[0] for index, fulls in twin.shelf_of(here.world, stand.node, soon=True).items()}
        lost = [slot.index for slot in stand.slots if slot.index not in shelf or _is_overfull(shelf[slot.index], slot)]
        assert overfull(here.world, stand.node, stand.slots) == (lost[0] if lost else None)


def _is_overfull(full: twin.Full, slot: Slot) -> bool:
    device = full.device
    most = 1 if slot.cores == device.cores else device.shares or len(full.slots)
    return not device.healthy or full.memory < 0 or full.cores < 0 or len(full.slots) > most
