"""Members whose place depends on other pods: affinity, spread, volumes, devices.

Each check that a member takes part in is called anew after every move. Equal members in a row are still placed together, where
every such check can follow them with an `InterPodState`: the outcome is the same as one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.engine.hooks import Domain, InterPodFits
from muster.engine.inter_pod_state import InterPodState
from muster.engine.node_scores import REFUSED
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows
from muster.state.trial import Trial


@dataclass(frozen=True, slots=True)
class InterPodConstraints:
    """The checks over other pods that a pod takes part in. Pods of one signature with equal keys are interchangeable;
    `inter_pod_keys` None says that this pod is like no other."""

    plugins: tuple[InterPodFits, ...]
    inter_pod_keys: tuple[object, ...] | None

    def __contains__(self, plugin: object) -> bool:
        return any(plugin is one for one in self.plugins)


NO_INTER_POD_CONSTRAINTS = InterPodConstraints((), ())


def inter_pod_constraints_of(s: Session, pod: Pod, *, alone: bool = False) -> InterPodConstraints:
    """`alone`: nobody asks who else is like this pod."""
    plugins = [plugin for plugin in s.policy.inter_pod_fits if plugin.has_inter_pod_constraints(s, pod)]
    if not plugins:
        return NO_INTER_POD_CONSTRAINTS
    inter_pod_constraints = InterPodConstraints(tuple(plugins), None)
    if alone:
        return inter_pod_constraints
    inter_pod_keys = [plugin.inter_pod_key(s, pod) for plugin in s.policy.inter_pod_states if plugin in inter_pod_constraints]
    return (
        InterPodConstraints(inter_pod_constraints.plugins, tuple(inter_pod_keys))
        if len(inter_pod_keys) == len(plugins)
        else inter_pod_constraints
    )


class NextScores(Protocol):
    """The scores of rows with further pods on them."""

    def add_rows(self, rows: list[int], *, left: int) -> None: ...

    def score_after_placing(self, row: int) -> float: ...


def place_one(s: Session, trial: Trial, pod: Pod, inter_pod_constraints: InterPodConstraints, domain: Domain, phase: Phase) -> int:
    after_releases, table = phase is Phase.NOMINATED, s.world.table
    value = s.node_scores(pod, after_releases=after_releases).value
    inside = value if domain.rows is None else value[domain.rows]
    candidates = np.flatnonzero(inside > REFUSED) if domain.rows is None else domain.rows[inside > REFUSED]
    for plugin in inter_pod_constraints.plugins:
        candidates = candidates[plugin.fit_inter_pod(s, pod, NodeRows(table, candidates, after_releases=after_releases))]
    if not len(candidates):
        return 0
    total = value[candidates]
    # Scores are relative to the nodes that are still feasible.
    rows = NodeRows(table, candidates, after_releases=after_releases)
    for scorer in s.policy.inter_pod_scores:
        if scorer in inter_pod_constraints:
            total += scorer.weight * scorer.score_inter_pod(s, pod, rows)
    place_pod(s, trial, pod, table.names[candidates[int(total.argmax())]], phase=phase)
    return 1


def place_pod(s: Session, trial: Trial, pod: Pod, node: str, *, phase: Phase) -> None:
    """Place one pod, with the slots of devices that it takes there."""
    slots = s.slots(pod, (node,), after_releases=phase is Phase.NOMINATED)
    trial.place(pod, node, phase=phase, devices=slots[0] if slots is not None else ())


def pick_inter_pod_rows(
    s: Session,
    pod: Pod,
    inter_pod_constraints: InterPodConstraints,
    value: FloatColumn,
    next_scores: NextScores,
    *,
    wanted: int,
    after_releases: bool,
) -> list[int]:
    """The rows that `wanted` pods like this one take one after the other. `value` is the score of each row for the first of
    them."""
    rows = NodeRows(s.world.table, after_releases=after_releases)
    weights = {plugin.name: plugin.weight for plugin in s.policy.inter_pod_scores if plugin in inter_pod_constraints}
    inter_pod_states = [
        (plugin.inter_pod_state(s, pod, rows), weights.get(plugin.name, 0.0))
        for plugin in s.policy.inter_pod_states
        if plugin in inter_pod_constraints
    ]
    choice = _RowChoice(value, inter_pod_states)
    picked: list[int] = []
    while len(picked) < wanted:
        choice.rescore(next_scores, left=wanted - len(picked))
        row = choice.best()
        if row is None:
            break
        picked.append(row)
        choice.add_pod(row)
    return picked


class _RowChoice:
    """Every row: the score of the next pod there, and whether it is feasible. It is scored only where it is: most rows that took
    one pod take no other."""

    def __init__(self, value: FloatColumn, inter_pod_states: Sequence[tuple[InterPodState, float]]) -> None:
        self._scores = value
        self._inter_pod_states = inter_pod_states
        self._unscored: BoolColumn = np.zeros(len(value), dtype=np.bool_)
        self._scored_before: set[int] = set()
        self._feasible = self._find_feasible()

    def rescore(self, next_scores: NextScores, *, left: int) -> None:
        """Score the rows that took a pod and are still feasible."""
        if not self._unscored.any():
            return
        again = np.flatnonzero(self._unscored & self._feasible).tolist()
        next_scores.add_rows([row for row in again if row not in self._scored_before], left=left)
        self._scored_before.update(again)
        for row in again:
            self._scores[row] = next_scores.score_after_placing(row)
            self._unscored[row] = False

    def best(self) -> int | None:
        candidates = np.flatnonzero(self._feasible & (self._scores > REFUSED))
        if not len(candidates):
            return None
        total = self._scores[candidates]
        for inter_pod_state, weight in self._inter_pod_states:
            score = inter_pod_state.score(candidates)
            if score is not None:
                total += weight * score
        return int(candidates[int(total.argmax())])

    def add_pod(self, row: int) -> None:
        for inter_pod_state, _ in self._inter_pod_states:
            inter_pod_state.add_pod(row)
        self._scores[row] = REFUSED
        self._unscored[row] = True
        self._feasible = self._find_feasible()

    def _find_feasible(self) -> BoolColumn:
        found = np.ones(len(self._scores), dtype=np.bool_)
        for inter_pod_state, _ in self._inter_pod_states:
            feasible = inter_pod_state.feasible_rows()
            if feasible is not None:
                found &= feasible
        return found
