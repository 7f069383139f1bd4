"""The vectorised checks and their slow twins agree on random worlds: about every node, and about where a row of pods goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement import placement_twin
from tests.placement.derived_values import assert_no_trace
from tests.placement.placement_worlds import Case, cases, make_world

from muster.engine.place import fits_on, place
from muster.model.pod import Phase

CHECKS = ("affinity", "preference", "spread", "ports")
any_case = st.sampled_from(CHECKS).flatmap(lambda what: cases(what=what))


def assert_every_answer_agrees(case: Case) -> None:
    """Each pod on each node, as the world stands."""
    here, slow = make_world(case), placement_twin.twin_of(case)
    for pod in case.pending_pods:
        for name in sorted(slow.nodes):
            got = fits_on(here.s, pod, name, after_releases=case.phase is Phase.NOMINATED)
            assert got == placement_twin.fits(slow, pod, name, case.phase), (pod.uid, name)


def assert_places_agree(case: Case) -> None:
    """All pods one after the other, in bulk where they are equal."""
    here = make_world(case)
    with here.s.trial("try", cause="Test") as trial:
        place(here.s, trial, case.pending_pods, domain=here.domain, phase=case.phase)
        got = {pod.uid: here.world.placement(pod).node for pod in case.pending_pods if pod.uid in here.world.placements.by_uid}
        assert got == placement_twin.place(case)
        assert_no_trace(here.world)


@pytest.mark.parametrize("what", CHECKS)
def test_a_check_agrees_with_its_twin_about_every_node(what: str) -> None:
    @settings(max_examples=80, deadline=None)
    @given(cases(what=what))
    def check(case: Case) -> None:
        assert_every_answer_agrees(case)

    check()


@pytest.mark.parametrize("what", CHECKS)
def test_pods_in_a_row_go_where_the_twin_puts_them_one_by_one(what: str) -> None:
    @settings(max_examples=120, deadline=None)
    @given(cases(what=what))
    def check(case: Case) -> None:
        assert_places_agree(case)

    check()
