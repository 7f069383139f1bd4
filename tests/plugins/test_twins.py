"""Every vector routine says what its slow twin says, on random worlds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.row_index import rows_of
from tests.plugins import twins
from tests.plugins.labelled_worlds import Case, MadeWorld, cases, labelled_cases, make_world

from muster.engine.hooks import WHOLE_CLUSTER, Domain
from muster.engine.node_scores import REFUSED
from muster.engine.place import place
from muster.model.node import Node
from muster.model.pod import Phase, PodSignature
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.node_affinity_preference import NodeAffinityPreference
from muster.plugins.selectors import Selectors
from muster.plugins.spread import Spread
from muster.plugins.taint_preference import TaintPreference
from muster.plugins.taints import Taints
from muster.plugins.unschedulable import Unschedulable
from muster.state.node_table import NodeRows

MANY = settings(max_examples=150, deadline=None)


def assert_matches_agree(case: Case) -> None:
    """Selectors, taints and cordons, over all nodes and over some of them."""
    made = make_world(case)
    plugins: list[tuple[Selectors | Taints | Unschedulable, Callable[[PodSignature, Node], bool]]] = [
        (Selectors(), twins.selectors_match),
        (Taints(), twins.taints_match),
        (Unschedulable(), twins.is_schedulable),
    ]
    for pod in made.wanted:
        for plugin, twin in plugins:
            for rows in some_rows(made):
                expected = [twin(pod.signature, node) for node in rows.nodes]
                assert plugin.match(made.s, pod, rows).tolist() == expected, plugin.name


def assert_preferences_agree(case: Case) -> None:
    made = make_world(case)
    for pod in made.wanted:
        for rows in some_rows(made):
            preferred = [twins.affinity_preference(pod.signature, node) for node in rows.nodes]
            assert NodeAffinityPreference().prefer(made.s, pod, rows).tolist() == preferred
            taints = [twins.taint_preference(pod.signature, node) for node in rows.nodes]
            assert TaintPreference().prefer(made.s, pod, rows).tolist() == taints


def assert_free_and_fullness_agree(case: Case) -> None:
    made = make_world(case)
    there = twins.placed_requests(made.world)
    resources = dict(case.weights.packing[0][2]) if case.weights.packing else {"cpu": 1.0, "memory": 2.0}
    for pod in made.wanted:
        for after_releases in (False, True):
            for rows in some_rows(made, after_releases=after_releases):
                fitting = [twins.fits_resources(pod.signature, node, there, after_releases=after_releases) for node in rows.nodes]
                assert Fit().fit(made.s, pod, rows).tolist() == fitting
                full = [twins.fullness(pod.signature, node, there, resources) for node in rows.nodes]
                packed = Binpack(resources=resources).score(made.s, pod, rows).tolist()
                assert packed == [0.0 if share is None else share for share in full]
                spread = Spread(resources=resources).score(made.s, pod, rows).tolist()
                assert spread == [0.0 if share is None else 1.0 - share for share in full]


def some_rows(made: MadeWorld, *, after_releases: bool = False) -> list[NodeRows]:
    table = made.world.table
    every_other = np.arange(0, len(table), 2, dtype=np.intp)
    return [NodeRows(table, after_releases=after_releases), NodeRows(table, every_other, after_releases=after_releases)]


def assert_bulk_is_one_by_one(case: Case, phase: Phase, within: list[str] | None = None) -> None:
    """`place` puts every member where the twin puts it, and says who was refused first."""
    made = make_world(case)
    expected = twins.place_one_by_one(made.world, made.wanted, case.weights, phase=phase, within=within)
    domain = WHOLE_CLUSTER if within is None else Domain("some", rows_of(made.world.table, within))
    with made.s.trial("try", cause="Test") as trial:
        placed = place(made.s, trial, made.wanted, domain=domain, phase=phase)
        chosen = [made.world.placement(pod).node for pod in made.wanted]
        assert chosen == expected
        assert placed.count == len(expected) - expected.count(None)
        everywhere = list(made.world.facts.nodes.values())
        inside = [node for node in everywhere if within is None or node.name in within]
        order = twins.most_constrained_first(made.wanted, inside, everywhere)
        refused = [made.wanted[at] for at in order if expected[at] is None]
        assert placed.first_refused == (refused[0] if refused else None)
        assert_cached_columns_are_fresh(made)
    assert_cached_columns_are_fresh(made)


def assert_cached_columns_are_fresh(made: MadeWorld) -> None:
    """What is kept for a kind, refreshed row by row, is what computing it anew gives."""
    there = twins.placed_requests(made.world)
    for pod in made.wanted[:4]:
        for after_releases in (False, True):
            for node, value in zip(
                made.world.table.nodes, made.s.node_scores(pod, after_releases=after_releases).value.tolist(), strict=True
            ):
                assert (value > REFUSED) == twins.fits(pod, node, there, after_releases=after_releases)


@given(labelled_cases())
@MANY
def test_selectors_taints_and_cordons_match_the_nodes_that_the_documentation_says(case: Case) -> None:
    assert_matches_agree(case)


@given(labelled_cases())
@MANY
def test_preferences_are_the_documented_fractions(case: Case) -> None:
    assert_preferences_agree(case)


@given(cases(plain=True))
@MANY
def test_free_capacity_and_fullness_are_sums_over_the_placed_pods(case: Case) -> None:
    assert_free_and_fullness_agree(case)


@given(cases(plain=True), st.sampled_from([Phase.BINDING, Phase.NOMINATED, Phase.RESERVED]))
@MANY
def test_equal_members_placed_together_go_where_they_would_go_one_by_one(case: Case, phase: Phase) -> None:
    assert_bulk_is_one_by_one(case, phase)


@given(cases(), st.sampled_from([Phase.BINDING, Phase.NOMINATED]))
@MANY
def test_members_with_selectors_and_tolerations_go_where_they_would_go_one_by_one(case: Case, phase: Phase) -> None:
    assert_bulk_is_one_by_one(case, phase)


@given(cases(plain=True), st.data())
@MANY
def test_members_stay_inside_their_domain_and_go_there_as_one_by_one(case: Case, data: st.DataObject) -> None:
    names = [node.name for node in case.nodes]
    within = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    assert_bulk_is_one_by_one(case, Phase.BINDING, within)
