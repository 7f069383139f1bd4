"""Volumes: the check and its slow twin agree on random worlds, and a scenario of each rule."""

from __future__ import annotations

from hypothesis import given, settings
from tests.placement import placement_twin, volume_twin
from tests.placement.derived_values import assert_no_trace
from tests.placement.placement_worlds import NOW, Case, make_world
from tests.placement.volume_worlds import volume_cases

from muster.engine.place import fits_on, place
from muster.model.pod import Phase


def assert_volumes_agree(case: Case) -> None:
    here, slow, facts = make_world(case), placement_twin.twin_of(case), volume_twin.facts_of(case)
    since = {pod.uid: NOW - 50.0 for pod, _, _ in case.placed}
    for pod in case.pending_pods:
        for name, node in slow.nodes.items():
            wanted = placement_twin.fits_resources(slow, pod, node, case.phase) and volume_twin.volumes(
                slow, facts, since, pod, name, case.phase
            )
            assert fits_on(here.s, pod, name, after_releases=case.phase is Phase.NOMINATED) == wanted, (pod.uid, name)


def assert_volume_places_agree(case: Case) -> None:
    here = make_world(case)
    with here.s.trial("try", cause="Test") as trial:
        place(here.s, trial, case.pending_pods, domain=here.domain, phase=case.phase)
        got = {pod.uid: here.world.placement(pod).node for pod in case.pending_pods if pod.uid in here.world.placements.by_uid}
        assert got == volume_twin.place(case)
        assert_no_trace(here.world)


@settings(max_examples=150, deadline=None)
@given(volume_cases())
def test_the_check_agrees_with_its_twin_about_every_node(case: Case) -> None:
    assert_volumes_agree(case)


@settings(max_examples=150, deadline=None)
@given(volume_cases())
def test_pods_in_a_row_go_where_the_twin_puts_them_one_by_one(case: Case) -> None:
    assert_volume_places_agree(case)
