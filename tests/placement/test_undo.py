"""Trials leave no trace: whatever was placed, evicted and released in one, all answers are afterwards what they were before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.derived_values import assert_no_trace, derived_amounts
from tests.placement.placement_worlds import Case, MadeWorld, cases, make_world
from tests.placement.volume_worlds import volume_cases

from muster.engine.place import fits_on, place
from muster.model.pod import Phase

any_case = st.one_of(*(cases(what=what) for what in ("affinity", "preference", "spread", "ports")), volume_cases())


def answers(here: MadeWorld, case: Case) -> list[bool]:
    return [
        fits_on(here.s, pod, node.name, after_releases=after_releases)
        for pod in case.pending_pods
        for node in case.nodes
        for after_releases in (False, True)
    ]


def try_changes(here: MadeWorld, case: Case, *, evict: list[int]) -> None:
    """Place, look, evict and release in nested trials that are all undone."""
    world, s = here.world, here.s
    with s.trial("outer", cause="Test") as outer:
        place(s, outer, case.pending_pods, domain=here.domain, phase=case.phase)
        answers(here, case)
        with s.trial("inner", cause="Test") as inner:
            there = sorted(world.placements.by_uid)
            for number in evict:
                pod = world.facts.pods[there[number % len(there)]] if there else None
                if pod is not None and world.placement(pod).node is not None:
                    inner.evict(pod)
                    answers(here, case)
            for uid in there[: len(there) // 2]:
                inner.release(world.facts.pods[uid])
        assert_no_trace(world)


def assert_undone(case: Case, evict: list[int]) -> None:
    here, untouched = make_world(case), make_world(case)
    before, seen = answers(here, case), derived_amounts(here.world)
    try_changes(here, case, evict=evict)
    assert derived_amounts(here.world) == seen
    assert answers(here, case) == before
    assert answers(untouched, case) == before
    assert_no_trace(here.world)


@settings(max_examples=100, deadline=None)
@given(any_case, st.lists(st.integers(0, 9), max_size=4))
def test_a_trial_that_is_undone_leaves_no_trace(case: Case, evict: list[int]) -> None:
    assert_undone(case, evict)


@settings(max_examples=60, deadline=None)
@given(any_case)
def test_the_same_trial_twice_comes_out_the_same(case: Case) -> None:
    here = make_world(case)
    places: list[dict[str, str | None]] = []
    for _ in range(2):
        with here.s.trial("try", cause="Test") as trial:
            place(here.s, trial, case.pending_pods, domain=here.domain, phase=case.phase)
            places.append({pod.uid: here.world.placement(pod).node for pod in case.pending_pods})
    assert places[0] == places[1]
    assert all(here.world.phase(pod) is Phase.PENDING for pod in case.pending_pods)
