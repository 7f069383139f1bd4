"""A twin that never disagrees proves nothing: here the code is broken on purpose, and the twin must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.checks.broken_code import Break, assert_notices
from tests.placement.placement_worlds import Case, cases
from tests.placement.test_twins import assert_every_answer_agrees, assert_places_agree
from tests.placement.test_undo import assert_undone
from tests.placement.test_volumes import assert_volume_places_agree, assert_volumes_agree
from tests.placement.volume_worlds import volume_cases

from muster.model.pod import Pod
from muster.model.pod_constraints import PodTerm, TaintEffect
from muster.model.volume import StorageClass
from muster.plugins import pod_affinity, pod_affinity_preference, ports, spread_constraints, volumes
from muster.plugins._untolerated_taints import UNSCHEDULABLE_TAINT
from muster.state import pod_terms
from muster.state.derived import host_ports as host_ports
from muster.state.derived import placement_counters, topology_counts, volume_choice, volume_mounts
from muster.state.node_table import NodeRows

EXAMPLES = 5_000

Check = Callable[[Case], None]


def assert_node_and_place_agree(case: Case) -> None:
    assert_every_answer_agrees(case)
    assert_places_agree(case)


def assert_volume_node_and_place_agree(case: Case) -> None:
    assert_volumes_agree(case)
    assert_volume_places_agree(case)


def assert_trial_undone(case: Case) -> None:
    assert_undone(case, [0, 1, 2])


# -- who counts ----------------------------------------------------------------------------------------------------------------


def terminating_pods_block_nobody(patch: pytest.MonkeyPatch) -> None:
    real = topology_counts.TopologyCount.blocked_domains
    patch.setattr(topology_counts.TopologyCount, "blocked_domains", lambda self, **_: real(self, after_releases=True))


def terminating_pods_block_nominations(patch: pytest.MonkeyPatch) -> None:
    real = topology_counts.TopologyCount.blocked_domains
    patch.setattr(topology_counts.TopologyCount, "blocked_domains", lambda self, **_: real(self, after_releases=False))


def nominated_pods_match_for_a_bind(patch: pytest.MonkeyPatch) -> None:
    real = topology_counts.TopologyCount.views
    patch.setattr(topology_counts.TopologyCount, "views", lambda self, **_: real(self, after_releases=True))


def terminating_pods_count_as_placed(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        placement_counters._PRESENCE,
        next(phase for phase in placement_counters._PRESENCE if phase.name == "TERMINATING"),
        placement_counters.PLACED,
    )


def placement_changes_are_missed(patch: pytest.MonkeyPatch) -> None:
    real = placement_counters.PlacementCounter.follow
    patch.setattr(
        placement_counters.PlacementCounter,
        "follow",
        lambda self, world, moved=None: real(self, world) if moved is None else None,
    )


def removed_pods_are_not_subtracted(patch: pytest.MonkeyPatch) -> None:
    real = topology_counts.CountedPods.change
    patch.setattr(
        topology_counts.CountedPods, "change", lambda self, node, placed, by, rows: real(self, node, placed, abs(by), rows)
    )


def new_selector_views_find_no_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_terms.BySelection, "matching", lambda *_: [])


# -- whom a term means ---------------------------------------------------------------------------------------------------------


def only_the_first_value_of_a_choice_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    real = pod_terms.Selection.pairs
    patch.setattr(pod_terms.Selection, "pairs", lambda self: (real(self) or ())[:1] or None)


def the_other_label_keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = pod_terms.with_own_labels
    patch.setattr(pod_terms, "with_own_labels", lambda selector, labels, *, like, **_: real(selector, labels, like=like))


def own_label_keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_terms, "own_label_keys", lambda _: ())


def namespaces_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        pod_terms.TermSelector, "matches", lambda self, _, __, labels: self.labels is not None and self.labels.selects(labels)
    )


def a_namespace_selector_takes_the_place_of_the_names(patch: pytest.MonkeyPatch) -> None:
    real = pod_terms._term_selector

    def reach(term: PodTerm, pod: object) -> pod_terms.TermSelector:
        found = real(term, pod)  # type: ignore[arg-type]
        return found if term.namespace_selector is None else replace(found, namespaces=())

    patch.setattr(pod_terms, "_term_selector", reach)


def terms_count_one_by_one(patch: pytest.MonkeyPatch) -> None:
    real = pod_terms.terms_of

    def terms_of(pod: Pod) -> pod_terms.PodTerms:
        found = real(pod)
        return replace(found, required_affinity=tuple(pod_terms._target(term, pod) for term in pod.signature.affinity.required))

    patch.setattr(topology_counts, "terms_of", terms_of)


# -- affinity ------------------------------------------------------------------------------------------------------------------


def placed_pods_have_no_anti_affinity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity, "_existing_anti_affinity", lambda *_: [])


def no_pod_is_ever_the_first_match(patch: pytest.MonkeyPatch) -> None:
    real = pod_affinity._AffinityTerms.__init__

    def init(self: pod_affinity._AffinityTerms, *asked: object, after_releases: bool) -> None:
        real(self, *asked, after_releases=after_releases)  # type: ignore[arg-type]
        self._matches_itself = False
        self.feasible_rows = self._feasible_nodes()

    patch.setattr(pod_affinity._AffinityTerms, "__init__", init)


def the_first_match_needs_no_labels(patch: pytest.MonkeyPatch) -> None:
    def find(self: pod_affinity._AffinityTerms) -> object:
        found = np.ones(len(self._domain_codes[0]), dtype=np.bool_)
        for world in self._has_match:
            if not self._matches_itself or any(domains.any() for domains in world):
                for domains, codes in zip(world, self._domain_codes, strict=True):
                    found &= domains[codes]
        return found

    patch.setattr(pod_affinity._AffinityTerms, "_feasible_nodes", find)


def equal_pods_do_not_see_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity._RequiredAffinity, "add_pod", lambda *_: None)


def all_pods_of_a_signature_are_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity.InterPodAffinity, "inter_pod_key", lambda *_: None)


def a_missing_label_is_a_domain(patch: pytest.MonkeyPatch) -> None:
    def add(self: topology_counts.TopologyCount, row: int, placed: int, by: int) -> None:
        self.counts[topology_counts._FIRST_COLUMN[placed] :, self.codes[row]] += by

    patch.setattr(topology_counts.TopologyCount, "add", add)


# -- preferences ---------------------------------------------------------------------------------------------------------------


def only_the_incoming_pod_has_preferences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference.PodAffinityPreference, "_existing_terms", lambda *_: [])


def equal_pods_have_no_preference_for_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference._PreferredAffinity, "add_pod", lambda *_: None)


def required_terms_attract_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference.PodAffinityPreference, "_weight", lambda _, pull: pull.weight or 0)


# -- spread --------------------------------------------------------------------------------------------------------------------


def the_pod_itself_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._ConstraintCounts._feasible_nodes

    def find(self: spread_constraints._ConstraintCounts) -> object:
        self._self_match = 0
        return real(self)

    patch.setattr(spread_constraints._ConstraintCounts, "_feasible_nodes", find)


def missing_domains_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._parsed_constraint
    patch.setattr(spread_constraints, "_parsed_constraint", lambda pod, constraint: replace(real(pod, constraint), min_domains=1))


def every_node_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spread_constraints._NodeInclusion, "column", lambda _, table: np.ones(len(table), dtype=np.bool_))


def taints_are_never_honored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spread_constraints, "_tolerated", lambda table, _: np.ones(len(table), dtype=np.bool_))


def taints_are_honored_but_cordons_are_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        spread_constraints,
        "UNSCHEDULABLE_TAINT",
        replace(UNSCHEDULABLE_TAINT, effect=TaintEffect.PREFER_NO_SCHEDULE),
    )


def the_soft_ones_see_no_equal_pods(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._ConstraintCounts.add_pod
    patch.setattr(
        spread_constraints._ConstraintCounts, "add_pod", lambda self, row: real(self, row) if self._parsed_constraint.hard else None
    )


# -- ports ---------------------------------------------------------------------------------------------------------------------


def every_address_is_an_address_like_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(host_ports, "EVERY_ADDRESS", frozenset())


def two_pods_of_a_signature_share_a_port(patch: pytest.MonkeyPatch) -> None:
    real = ports.Ports.fit

    def fit(self: ports.Ports, s: object, pod: object, rows: NodeRows) -> object:
        return real(self, s, pod, NodeRows(rows.table, rows.index, after_releases=rows.after_releases))  # type: ignore[arg-type]

    patch.setattr(ports.Ports, "fit", fit)


# -- volumes -------------------------------------------------------------------------------------------------------------------


def a_volume_claim_for_one_pod_is_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_mounts.Mounts, "is_used", lambda *_, **__: False)


def the_same_volume_is_attached_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_mounts.Mounts, "volumes_on", lambda self, _, node, **__: set(self._here.get(node, ())))


def drivers_have_no_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volumes, "_attach_limits", lambda _: {})


def what_was_chosen_earlier_is_free_again(patch: pytest.MonkeyPatch) -> None:
    real = volume_choice._make_plan

    def make(*asked: object) -> object:
        plan = real(*asked)  # type: ignore[arg-type]
        return replace(plan, fixed={}, now=volume_choice._Matching(set()))

    patch.setattr(volume_choice, "_make_plan", make)


def a_class_provisions_volumes_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_choice, "matching_column", lambda world, _: np.ones(len(world.table), dtype=np.bool_))


def no_class_provisions_volumes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StorageClass, "makes_volumes", property(lambda _: False))


def a_volume_claim_in_use_can_be_used_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_choice, "MANY_NODES", frozenset({"ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"}))


affinity_cases, preference_cases, spread_cases, port_cases = (
    cases(what=what) for what in ("affinity", "preference", "spread", "ports")
)

BUGS: list[tuple[Break, Check, st.SearchStrategy[Case]]] = [
    (terminating_pods_block_nobody, assert_node_and_place_agree, affinity_cases),
    (terminating_pods_block_nominations, assert_node_and_place_agree, affinity_cases),
    (nominated_pods_match_for_a_bind, assert_node_and_place_agree, affinity_cases),
    (nominated_pods_match_for_a_bind, assert_node_and_place_agree, spread_cases),
    (terminating_pods_count_as_placed, assert_node_and_place_agree, spread_cases),
    (placement_changes_are_missed, assert_trial_undone, affinity_cases),
    (removed_pods_are_not_subtracted, assert_trial_undone, affinity_cases),
    (new_selector_views_find_no_count, assert_node_and_place_agree, affinity_cases),
    (only_the_first_value_of_a_choice_is_looked_up, assert_node_and_place_agree, affinity_cases),
    (the_other_label_keys_are_forgotten, assert_node_and_place_agree, affinity_cases),
    (own_label_keys_are_forgotten, assert_node_and_place_agree, affinity_cases),
    (namespaces_do_not_matter, assert_node_and_place_agree, affinity_cases),
    (a_namespace_selector_takes_the_place_of_the_names, assert_node_and_place_agree, affinity_cases),
    (terms_count_one_by_one, assert_node_and_place_agree, affinity_cases),
    (placed_pods_have_no_anti_affinity, assert_node_and_place_agree, affinity_cases),
    (no_pod_is_ever_the_first_match, assert_node_and_place_agree, affinity_cases),
    (the_first_match_needs_no_labels, assert_node_and_place_agree, affinity_cases),
    (equal_pods_do_not_see_each_other, assert_node_and_place_agree, affinity_cases),
    (all_pods_of_a_signature_are_alike, assert_node_and_place_agree, affinity_cases),
    (a_missing_label_is_a_domain, assert_node_and_place_agree, affinity_cases),
    (only_the_incoming_pod_has_preferences, assert_node_and_place_agree, preference_cases),
    (equal_pods_have_no_preference_for_each_other, assert_node_and_place_agree, preference_cases),
    (required_terms_attract_nobody, assert_node_and_place_agree, preference_cases),
    (the_pod_itself_is_not_counted, assert_node_and_place_agree, spread_cases),
    (missing_domains_do_not_matter, assert_node_and_place_agree, spread_cases),
    (every_node_counts, assert_node_and_place_agree, spread_cases),
    (taints_are_never_honored, assert_node_and_place_agree, spread_cases),
    (taints_are_honored_but_cordons_are_not, assert_node_and_place_agree, spread_cases),
    (the_soft_ones_see_no_equal_pods, assert_node_and_place_agree, spread_cases),
    (every_address_is_an_address_like_others, assert_node_and_place_agree, port_cases),
    (two_pods_of_a_signature_share_a_port, assert_node_and_place_agree, port_cases),
    (a_volume_claim_for_one_pod_is_for_all, assert_volume_node_and_place_agree, volume_cases()),
    (the_same_volume_is_attached_twice, assert_volume_node_and_place_agree, volume_cases()),
    (drivers_have_no_limits, assert_volume_node_and_place_agree, volume_cases()),
    (what_was_chosen_earlier_is_free_again, assert_volume_node_and_place_agree, volume_cases()),
    (a_class_provisions_volumes_everywhere, assert_volume_node_and_place_agree, volume_cases()),
    (no_class_provisions_volumes, assert_volume_node_and_place_agree, volume_cases()),
    (a_volume_claim_in_use_can_be_used_everywhere, assert_volume_node_and_place_agree, volume_cases()),
]


@pytest.mark.parametrize(("broken", "check", "worlds"), BUGS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_twin_notices_when(broken: Break, check: Check, worlds: st.SearchStrategy[Case]) -> None:
    assert_notices(broken, check, worlds, examples=EXAMPLES)
