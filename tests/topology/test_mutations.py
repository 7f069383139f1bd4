"""A check that never fails proves nothing: here the code is broken on purpose, and a check must notice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.checks.broken_code import Break, assert_notices
from tests.topology.rack_worlds import Case, cases
from tests.topology.test_search import (
    assert_bounds_bound,
    assert_fit_counts_keep_up,
    assert_hard_constraints_hold,
    assert_same_as_trying_all,
    assert_scores_are_known_ahead,
)
from tests.topology.test_tree import assert_trees_agree, some_nodes, some_specs, some_tiers

from muster.engine import domain_placement as domains_module
from muster.engine import fit_counts as slots_module
from muster.engine.fit_counts import DomainBounds, DomainSums
from muster.plugins import _domain_search as search_module
from muster.plugins.topology import Topology
from muster.state.derived import hypernode_members as hypernodes_module
from muster.state.derived.topology_domains import DomainTree

EXAMPLES = 500

Check = Callable[[Case], None]


def assert_gang_in_one_domain(case: Case) -> None:
    assert_hard_constraints_hold(case, [0, 3, 2, 1, 4])


# -- the search --------------------------------------------------------------------------------------------------------------------


def late_members_ignore_the_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search_module, "placed_rows", lambda _s, _ask: [])


def the_highest_tier_is_ignored(patch: pytest.MonkeyPatch) -> None:
    up_to = DomainTree.up_to
    patch.setattr(DomainTree, "up_to", lambda tree, _tier: up_to(tree, tree.top_tier))


def subgroups_are_placed_like_any_pods(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(domains_module, "by_subgroup", lambda _s, ask: [(None, ask.pods)])


def subgroups_leave_the_domain_of_their_gang(patch: pytest.MonkeyPatch) -> None:
    place_cell = domains_module._place_subgroup
    patch.setattr(
        domains_module, "_place_subgroup", lambda s, trial, ask, phase: place_cell(s, trial, replace(ask, within=None), phase)
    )


def the_worst_domain_is_chosen(patch: pytest.MonkeyPatch) -> None:
    scores = Topology.score_domains
    patch.setattr(Topology, "score_domains", lambda *given: -scores(*given))


def the_fuller_domain_is_worse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topology, "score_domains", lambda _plugin, _s, _ask, domains: np.zeros(len(domains)))


def scores_ahead_forget_the_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topology, "score_domains", lambda plugin, s, ask, domains: plugin._scores(s, ask, domains, placed=True))


def half_of_the_fit_counts_are_seen(patch: pytest.MonkeyPatch) -> None:
    count_fits = slots_module.count_fits
    patch.setattr(slots_module, "count_fits", lambda free, request: count_fits(free, request) // 2)


def fit_counts_are_never_refreshed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slots_module, "_update", lambda *_: None)


def sums_lose_the_first_node_of_a_domain(patch: pytest.MonkeyPatch) -> None:
    start = DomainSums.__init__

    def shorter(spans: DomainSums, domains: object) -> None:
        start(spans, domains)  # type: ignore[arg-type]
        spans._starts = np.minimum(spans._starts + 1, max(0, len(spans._flat) - 1))

    patch.setattr(DomainSums, "__init__", shorter)


def roles_are_forgotten_in_the_bounds(patch: pytest.MonkeyPatch) -> None:
    domain_bounds = slots_module.domain_bounds

    def wrong(*given: object) -> DomainBounds:
        found = domain_bounds(*given)  # type: ignore[arg-type]
        return DomainBounds(found.most, ~found.feasible)

    patch.setattr(domains_module, "domain_bounds", wrong)
    patch.setattr(search_module, "domain_bounds", wrong)


@pytest.mark.parametrize(
    ("breaks", "check"),
    [
        (late_members_ignore_the_others, assert_gang_in_one_domain),
        (the_highest_tier_is_ignored, assert_gang_in_one_domain),
        (subgroups_are_placed_like_any_pods, assert_gang_in_one_domain),
        (subgroups_leave_the_domain_of_their_gang, assert_gang_in_one_domain),
        (the_worst_domain_is_chosen, assert_same_as_trying_all),
        (the_fuller_domain_is_worse, assert_same_as_trying_all),
        (scores_ahead_forget_the_ask, assert_scores_are_known_ahead),
        (half_of_the_fit_counts_are_seen, assert_bounds_bound),
        (fit_counts_are_never_refreshed, assert_fit_counts_keep_up),
        (sums_lose_the_first_node_of_a_domain, assert_bounds_bound),
        (roles_are_forgotten_in_the_bounds, assert_same_as_trying_all),
    ],
)
def test_a_broken_search_is_noticed(breaks: Break, check: Check) -> None:
    assert_notices(breaks, check, cases(), examples=EXAMPLES)


# -- the tree ----------------------------------------------------------------------------------------------------------------------


def a_hypernode_may_have_two_parents(patch: pytest.MonkeyPatch) -> None:
    wrong = hypernodes_module._Assignment._wrong_child
    patch.setattr(
        hypernodes_module._Assignment, "_wrong_child", lambda assignment, spec, member, _parent: wrong(assignment, spec, member, {})
    )


def the_younger_keeps_a_node(patch: pytest.MonkeyPatch) -> None:
    start = hypernodes_module._Assignment.__init__

    def backwards(assignment: hypernodes_module._Assignment, *given: object) -> None:
        start(assignment, *given)  # type: ignore[arg-type]
        assignment.oldest_first = sorted(assignment.specs.values(), key=lambda spec: (-spec.created, spec.name))

    patch.setattr(hypernodes_module._Assignment, "__init__", backwards)


def a_pattern_must_match_from_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hypernodes_module, "matching", lambda pattern, names: frozenset(n for n in names if re.match(pattern, n)))


def nodes_in_no_domain_share_one(patch: pytest.MonkeyPatch) -> None:
    def containing(tree: DomainTree, rows: list[int]) -> list[object]:
        home = tree._home[:, rows]
        shared = (home == home[:, :1]).all(axis=1)
        return [*(tree.domains[at] for at in home[shared, 0].tolist()), tree.whole]

    patch.setattr(DomainTree, "containing", containing)


@pytest.mark.parametrize(
    "breaks",
    [
        a_hypernode_may_have_two_parents,
        the_younger_keeps_a_node,
        a_pattern_must_match_from_the_start,
        nodes_in_no_domain_share_one,
    ],
)
def test_a_broken_tree_is_noticed(breaks: Break) -> None:
    worlds = st.tuples(some_nodes, some_specs, some_tiers)
    assert_notices(breaks, lambda world: assert_trees_agree(*world), worlds, examples=EXAMPLES)
