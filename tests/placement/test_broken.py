"""A twin that never disagrees proves nothing: here the code is broken on purpose, and the twin must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase as Step
from hypothesis import find, settings
from hypothesis import strategies as st
from tests.placement.test_twins import assert_every_answer_agrees, assert_places_agree
from tests.placement.test_undo import assert_undone
from tests.placement.test_volumes import assert_volume_places_agree, assert_volumes_agree
from tests.placement.volume_worlds import volume_cases
from tests.placement.worlds import Case, cases

from muster.model.pod import Pod
from muster.model.selectors import PodTerm, TaintEffect
from muster.model.volumes import StorageClass
from muster.plugins import pod_affinity, pod_affinity_preference, ports, spread_constraints, volumes
from muster.state import census, follow, mounts, terms, volume_choice
from muster.state import ports as host_ports
from muster.state.table import Rows

SEARCH = settings(max_examples=5000, phases=[Step.generate], derandomize=True, database=None, deadline=None)

Break = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Case], None]


def both(case: Case) -> None:
    assert_every_answer_agrees(case)
    assert_places_agree(case)


def both_for_volumes(case: Case) -> None:
    assert_volumes_agree(case)
    assert_volume_places_agree(case)


def undone(case: Case) -> None:
    assert_undone(case, [0, 1, 2])


# -- who counts ----------------------------------------------------------------------------------------------------------------


def leavers_are_in_nobodys_way(patch: pytest.MonkeyPatch) -> None:
    real = census.Tally.in_the_way
    patch.setattr(census.Tally, "in_the_way", lambda self, **_: real(self, soon=True))


def leavers_are_in_the_way_of_promises(patch: pytest.MonkeyPatch) -> None:
    real = census.Tally.in_the_way
    patch.setattr(census.Tally, "in_the_way", lambda self, **_: real(self, soon=False))


def promised_pods_are_company_for_a_bind(patch: pytest.MonkeyPatch) -> None:
    real = census.Tally.worlds
    patch.setattr(census.Tally, "worlds", lambda self, **_: real(self, soon=True))


def pods_that_leave_count_as_staying(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(follow._STANDING, next(phase for phase in follow._STANDING if phase.name == "LEAVING"), follow.SEATED)


def moves_are_not_followed(patch: pytest.MonkeyPatch) -> None:
    real = follow.Follower.follow
    patch.setattr(follow.Follower, "follow", lambda self, world: real(self, world) if self._position < 0 else None)


def what_goes_is_not_counted_out(patch: pytest.MonkeyPatch) -> None:
    real = census.Group.shift
    patch.setattr(census.Group, "shift", lambda self, node, standing, by, rows: real(self, node, standing, abs(by), rows))


def new_looks_find_no_tally(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms.BySelection, "meaning", lambda *_: [])


# -- whom a term means ---------------------------------------------------------------------------------------------------------


def only_the_first_value_of_a_choice_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    real = terms.Selection.pairs
    patch.setattr(terms.Selection, "pairs", lambda self: (real(self) or ())[:1] or None)


def the_other_label_keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = terms.with_own_labels
    patch.setattr(terms, "with_own_labels", lambda selector, labels, *, like, **_: real(selector, labels, like=like))


def own_label_keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms, "own_label_keys", lambda _: ())


def namespaces_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms.Reach, "means", lambda self, _, __, labels: self.labels is not None and self.labels.selects(labels))


def a_namespace_selector_takes_the_place_of_the_names(patch: pytest.MonkeyPatch) -> None:
    real = terms._reach

    def reach(term: PodTerm, pod: object) -> terms.Reach:
        found = real(term, pod)  # type: ignore[arg-type]
        return found if term.namespace_selector is None else replace(found, namespaces=())

    patch.setattr(terms, "_reach", reach)


def terms_count_one_by_one(patch: pytest.MonkeyPatch) -> None:
    real = terms.wants

    def wants(pod: Pod) -> terms.Wants:
        found = real(pod)
        return replace(found, near=tuple(terms._aim(term, pod) for term in pod.kind.affinity.required))

    patch.setattr(census, "wants", wants)


# -- affinity ------------------------------------------------------------------------------------------------------------------


def those_who_are_there_have_no_say(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity, "_kept_off_by", lambda *_: [])


def nobody_is_ever_the_first(patch: pytest.MonkeyPatch) -> None:
    real = pod_affinity._Near.__init__

    def init(self: pod_affinity._Near, *asked: object, soon: bool) -> None:
        real(self, *asked, soon=soon)  # type: ignore[arg-type]
        self._means_itself = False
        self.open = self._find()

    patch.setattr(pod_affinity._Near, "__init__", init)


def the_first_needs_no_labels(patch: pytest.MonkeyPatch) -> None:
    def find(self: pod_affinity._Near) -> object:
        found = np.ones(len(self._codes[0]), dtype=np.bool_)
        for world in self._company:
            if not self._means_itself or any(domains.any() for domains in world):
                for domains, codes in zip(world, self._codes, strict=True):
                    found &= domains[codes]
        return found

    patch.setattr(pod_affinity._Near, "_find", find)


def equal_pods_do_not_see_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity._Gate, "take", lambda *_: None)


def all_pods_of_a_kind_are_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity.PodAffinity, "stamp", lambda *_: None)


def a_missing_label_is_a_domain(patch: pytest.MonkeyPatch) -> None:
    def add(self: census.Tally, row: int, standing: int, by: int) -> None:
        self.counts[census._FIRST_FIGURE[standing] :, self.codes[row]] += by

    patch.setattr(census.Tally, "add", add)


# -- preferences ---------------------------------------------------------------------------------------------------------------


def only_the_newcomer_has_wishes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference.PodAffinityPreference, "_pulled_by", lambda *_: [])


def equal_pods_wish_nothing_of_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference._Gate, "take", lambda *_: None)


def what_was_required_pulls_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_affinity_preference.PodAffinityPreference, "_weight", lambda _, pull: pull.weight or 0)


# -- spread --------------------------------------------------------------------------------------------------------------------


def the_pod_itself_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._Spread._find

    def find(self: spread_constraints._Spread) -> object:
        self._itself = 0
        return real(self)

    patch.setattr(spread_constraints._Spread, "_find", find)


def missing_domains_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._rule
    patch.setattr(spread_constraints, "_rule", lambda pod, constraint: replace(real(pod, constraint), min_domains=1))


def every_node_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spread_constraints._Scope, "column", lambda _, table: np.ones(len(table), dtype=np.bool_))


def taints_are_never_honored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spread_constraints, "_tolerated", lambda table, _: np.ones(len(table), dtype=np.bool_))


def taints_are_honored_but_cordons_are_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        spread_constraints,
        "_CORDONED",
        replace(spread_constraints._CORDONED, effect=TaintEffect.PREFER_NO_SCHEDULE),
    )


def the_soft_ones_see_no_equal_pods(patch: pytest.MonkeyPatch) -> None:
    real = spread_constraints._Spread.take
    patch.setattr(spread_constraints._Spread, "take", lambda self, row: real(self, row) if self._rule.hard else None)


# -- ports ---------------------------------------------------------------------------------------------------------------------


def every_address_is_an_address_like_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(host_ports, "EVERY_ADDRESS", frozenset())


def there_is_room_for_two_of_a_kind(patch: pytest.MonkeyPatch) -> None:
    real = ports.Ports.fit

    def fit(self: ports.Ports, s: object, pod: object, rows: Rows) -> object:
        return real(self, s, pod, Rows(rows.table, rows.index, soon=rows.soon))  # type: ignore[arg-type]

    patch.setattr(ports.Ports, "fit", fit)


# -- volumes -------------------------------------------------------------------------------------------------------------------


def a_claim_for_one_pod_is_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mounts.Mounts, "is_used", lambda *_, **__: False)


def the_same_volume_is_attached_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mounts.Mounts, "volumes_on", lambda self, _, node, **__: set(self._here.get(node, ())))


def drivers_have_no_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volumes, "_limits", lambda _: {})


def what_was_chosen_earlier_is_free_again(patch: pytest.MonkeyPatch) -> None:
    real = volume_choice._make_plan

    def make(*asked: object) -> object:
        plan = real(*asked)  # type: ignore[arg-type]
        return replace(plan, fixed={}, now=volume_choice._Matching(set()))

    patch.setattr(volume_choice, "_make_plan", make)


def a_class_makes_volumes_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_choice, "matching_column", lambda world, _: np.ones(len(world.table), dtype=np.bool_))


def nobody_makes_volumes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StorageClass, "makes_volumes", property(lambda _: False))


def a_claim_in_use_can_be_used_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(volume_choice, "MANY_NODES", frozenset({"ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"}))


affine, wishing, spreading, porting = (cases(what=what) for what in ("affinity", "preference", "spread", "ports"))

BUGS: list[tuple[Break, Check, st.SearchStrategy[Case]]] = [
    (leavers_are_in_nobodys_way, both, affine),
    (leavers_are_in_the_way_of_promises, both, affine),
    (promised_pods_are_company_for_a_bind, both, affine),
    (promised_pods_are_company_for_a_bind, both, spreading),
    (pods_that_leave_count_as_staying, both, spreading),
    (moves_are_not_followed, undone, affine),
    (what_goes_is_not_counted_out, undone, affine),
    (new_looks_find_no_tally, both, affine),
    (only_the_first_value_of_a_choice_is_looked_up, both, affine),
    (the_other_label_keys_are_forgotten, both, affine),
    (own_label_keys_are_forgotten, both, affine),
    (namespaces_do_not_matter, both, affine),
    (a_namespace_selector_takes_the_place_of_the_names, both, affine),
    (terms_count_one_by_one, both, affine),
    (those_who_are_there_have_no_say, both, affine),
    (nobody_is_ever_the_first, both, affine),
    (the_first_needs_no_labels, both, affine),
    (equal_pods_do_not_see_each_other, both, affine),
    (all_pods_of_a_kind_are_alike, both, affine),
    (a_missing_label_is_a_domain, both, affine),
    (only_the_newcomer_has_wishes, both, wishing),
    (equal_pods_wish_nothing_of_each_other, both, wishing),
    (what_was_required_pulls_nobody, both, wishing),
    (the_pod_itself_is_not_counted, both, spreading),
    (missing_domains_do_not_matter, both, spreading),
    (every_node_counts, both, spreading),
    (taints_are_never_honored, both, spreading),
    (taints_are_honored_but_cordons_are_not, both, spreading),
    (the_soft_ones_see_no_equal_pods, both, spreading),
    (every_address_is_an_address_like_others, both, porting),
    (there_is_room_for_two_of_a_kind, both, porting),
    (a_claim_for_one_pod_is_for_all, both_for_volumes, volume_cases()),
    (the_same_volume_is_attached_twice, both_for_volumes, volume_cases()),
    (drivers_have_no_limits, both_for_volumes, volume_cases()),
    (what_was_chosen_earlier_is_free_again, both_for_volumes, volume_cases()),
    (a_class_makes_volumes_everywhere, both_for_volumes, volume_cases()),
    (nobody_makes_volumes, both_for_volumes, volume_cases()),
    (a_claim_in_use_can_be_used_everywhere, both_for_volumes, volume_cases()),
]


@pytest.mark.parametrize(("broken", "check", "worlds"), BUGS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_twin_notices_when(
    broken: Break, check: Check, worlds: st.SearchStrategy[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    find(worlds, lambda case: disagrees(check, case), settings=SEARCH)


def disagrees(check: Check, case: Case) -> bool:
    try:
        check(case)
    except (AssertionError, KeyError):
        return True
    return False
