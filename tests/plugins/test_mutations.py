"""A twin that never disagrees proves nothing: here the code is broken on purpose, and the twin must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.checks.broken_code import Break, assert_notices
from tests.plugins.labelled_worlds import Case, cases, labelled_cases, make_world
from tests.plugins.test_twins import (
    assert_bulk_is_one_by_one,
    assert_free_and_fullness_agree,
    assert_matches_agree,
    assert_preferences_agree,
)
from tests.plugins.test_undo import world_state

from muster.engine import place as place_module
from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.node_scores import REFUSED, NodeScores
from muster.engine.session import Session
from muster.model import pod_constraints as selector_model
from muster.model.pod import Phase, Pod
from muster.plugins import _node_allocation
from muster.plugins.fit import Fit
from muster.plugins.nominated import Nominated
from muster.plugins.taint_preference import TaintPreference
from muster.plugins.unschedulable import Unschedulable
from muster.state.derived import node_term_matches
from muster.state.node_table import NodeRows, NodeTable
from muster.state.placements import Placements
from muster.state.placements import Step as Move
from muster.state.trial import Trial
from muster.state.world import World

EXAMPLES = 400

Check = Callable[[Case], None]


def check_bulk(case: Case) -> None:
    assert_bulk_is_one_by_one(case, Phase.BINDING)


def check_undo(case: Case) -> None:
    made = make_world(case)
    before = world_state(made.world)
    with made.s.trial("try", cause="Test") as trial:
        place_module.place(made.s, trial, made.wanted, domain=WHOLE_CLUSTER, phase=Phase.RESERVED)
        for pod in made.placed_pods:
            if made.world.placement(pod).node is not None:
                trial.evict(pod)
    assert world_state(made.world) == before


def capacity_of_terminating_pods_is_reused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeRows, "free", property(lambda rows: rows.allocatable - rows.planned))


def nominated_capacity_is_reused(patch: pytest.MonkeyPatch) -> None:
    def free(rows: NodeRows) -> object:
        used = rows.table.used if rows.index is None else rows.table.used[rows.index]
        return rows.allocatable - (rows.planned if rows.after_releases else used)

    patch.setattr(NodeRows, "free", property(free))


def further_pods_do_not_fill_a_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeRows, "_with_extra", lambda _, amounts: amounts)


def pods_on_one_node_count_once(patch: pytest.MonkeyPatch) -> None:
    def add_many(table: NodeTable, rows: object, amounts: object, **_: object) -> None:
        index = np.asarray(rows)
        table.used[index] += amounts
        table.planned[index] += amounts
        table.changes.rows.extend(index.tolist())

    patch.setattr(NodeTable, "add_many", add_many)


def changed_rows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeScores, "update", lambda *_: None)


def the_last_of_equals_is_chosen(patch: pytest.MonkeyPatch) -> None:
    def best_row(value: np.ndarray[tuple[int], np.dtype[np.float64]], _: object) -> int | None:
        best = [row for row in range(len(value)) if value[row] == value.max() and value[row] > REFUSED]
        return best[-1] if best else None

    patch.setattr(place_module, "_best_row", best_row)


def rows_beyond_the_first_few_are_never_fetched(patch: pytest.MonkeyPatch) -> None:
    real = place_module._RowsByScore.best
    patch.setattr(place_module._RowsByScore, "best", lambda self, count: real(self, count) if self._found == 0 else [])


def fit_counts_are_one_too_low(patch: pytest.MonkeyPatch) -> None:
    real = place_module._NextScores._score_rows
    patch.setattr(
        place_module._NextScores,
        "_score_rows",
        lambda self, rows, *, start, depth: real(self, rows, start=max(0, start - 1), depth=depth),
    )


def one_resource_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    real = World.request

    def without_memory(world: World, pod: Pod) -> object:
        amounts = real(world, pod).copy()
        amounts[world.columns.position["memory"]] = 0
        return amounts

    def fit(plugin: Fit, s: Session, pod: Pod, rows: NodeRows) -> object:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(World, "request", without_memory)
            return real_fit(plugin, s, pod, rows)

    real_fit = Fit.fit
    patch.setattr(Fit, "fit", fit)


def the_pod_itself_does_not_fill_its_node(patch: pytest.MonkeyPatch) -> None:
    real = _node_allocation._weighted_columns

    def weigh(s: Session, pod: Pod, weights: Mapping[str, float]) -> object:
        weighted, total = real(s, pod, weights)
        return tuple((column, 0, weight) for column, _, weight in weighted), total

    patch.setattr(_node_allocation, "_weighted_columns", weigh)


def an_empty_term_matches_every_node(patch: pytest.MonkeyPatch) -> None:
    real = node_term_matches.matches_term
    patch.setattr(
        node_term_matches,
        "matches_term",
        lambda table, term: real(table, term) if term.expressions or term.fields else np.ones(len(table), dtype=np.bool_),
    )


def not_in_needs_the_label(patch: pytest.MonkeyPatch) -> None:
    real = node_term_matches.matches_label

    def matches_label(table: NodeTable, wanted: selector_model.Requirement) -> object:
        has_it = table.label_codes(wanted.key)[0] >= 0
        return real(table, wanted) & (has_it | (wanted.operator is not selector_model.Operator.NOT_IN))

    patch.setattr(node_term_matches, "matches_label", matches_label)


def greater_than_takes_any_text(patch: pytest.MonkeyPatch) -> None:
    def digits(text: str) -> int:
        return int("".join(letter for letter in text if letter.isdigit()) or 0)

    def compares(value: str, wanted: selector_model.Requirement) -> bool:
        above = digits(value) - digits(wanted.values[0]) if len(wanted.values) == 1 else 0
        return above > 0 if wanted.operator is selector_model.Operator.GT else above < 0

    patch.setattr(selector_model, "_compares", compares)


def effects_of_tolerations_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        selector_model.Toleration,
        "tolerates",
        lambda self, taint: (not self.key or self.key == taint.key) and self._accepts(taint.value),
    )


def only_the_first_taint_is_seen(patch: pytest.MonkeyPatch) -> None:
    real = NodeTable.taint_codes

    def taint_codes(table: NodeTable) -> object:
        codes, sets = real(table)
        return codes, [taints[:1] for taints in sets]

    patch.setattr(NodeTable, "taint_codes", taint_codes)


def cordons_are_never_tolerated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Unschedulable, "match", lambda *asked: np.array([not node.unschedulable for node in asked[-1].nodes], dtype=np.bool_)
    )


def taints_are_preferred(patch: pytest.MonkeyPatch) -> None:
    real = TaintPreference.prefer
    patch.setattr(TaintPreference, "prefer", lambda self, s, pod, rows: 1.0 - real(self, s, pod, rows))


def the_nominated_node_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Nominated, "score_inter_pod", lambda *asked: np.zeros(len(asked[-1])))


def undo_goes_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    def undo_to(trial: Trial, mark: int) -> None:
        steps = trial.world.placements.journal[mark:]
        del trial.world.placements.journal[mark:]
        for step in steps[: len(steps) - 1]:
            if isinstance(step, Move):
                trial.world.placements.move(step.pod, step.before)

    patch.setattr(Trial, "undo_to", undo_to)


def reservations_are_not_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placements, "_index_phase", lambda placements, uid, *_: placements.reservations.setdefault(uid))


BUGS: list[tuple[Break, Check, st.SearchStrategy[Case]]] = [
    (capacity_of_terminating_pods_is_reused, assert_free_and_fullness_agree, cases(plain=True)),
    (nominated_capacity_is_reused, assert_free_and_fullness_agree, cases(plain=True)),
    (further_pods_do_not_fill_a_row, check_bulk, cases(plain=True)),
    (pods_on_one_node_count_once, check_bulk, cases(plain=True)),
    (changed_rows_are_forgotten, check_bulk, cases(plain=True)),
    (the_last_of_equals_is_chosen, check_bulk, cases(plain=True)),
    (rows_beyond_the_first_few_are_never_fetched, check_bulk, cases(plain=True)),
    (fit_counts_are_one_too_low, check_bulk, cases(plain=True)),
    (one_resource_is_not_checked, check_bulk, cases(plain=True)),
    (the_pod_itself_does_not_fill_its_node, assert_free_and_fullness_agree, cases(plain=True)),
    (an_empty_term_matches_every_node, assert_matches_agree, labelled_cases()),
    (not_in_needs_the_label, assert_matches_agree, labelled_cases()),
    (greater_than_takes_any_text, assert_matches_agree, labelled_cases()),
    (effects_of_tolerations_do_not_matter, assert_matches_agree, labelled_cases()),
    (only_the_first_taint_is_seen, assert_matches_agree, labelled_cases()),
    (cordons_are_never_tolerated, assert_matches_agree, labelled_cases()),
    (taints_are_preferred, assert_preferences_agree, labelled_cases()),
    (the_nominated_node_counts_for_nothing, check_bulk, cases(plain=True)),
    (undo_goes_in_the_wrong_order, check_undo, cases(plain=True)),
    (reservations_are_not_removed, check_undo, cases(plain=True)),
]


@pytest.mark.parametrize(("broken", "check", "worlds"), BUGS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_twin_notices_when(broken: Break, check: Check, worlds: st.SearchStrategy[Case]) -> None:
    assert_notices(broken, check, worlds, examples=EXAMPLES)
