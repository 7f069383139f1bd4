"""Pods spread evenly over domains: topologySpreadConstraints, both those that must hold and those that would be nice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.explain import nodes
from muster.engine.gates import Gate
from muster.engine.session import Session
from muster.model.pod import Kind, Pod
from muster.model.selectors import NodeTerm, Operator, Requirement, SpreadConstraint, Taint, TaintEffect, Toleration
from muster.plugins._options import option
from muster.plugins._rows import of_rows
from muster.plugins._taints import untolerated
from muster.plugins._terms import any_term, label_column
from muster.plugins._words import show_selector
from muster.state.census import Codes, Counts, Looks
from muster.state.derived import Derived
from muster.state.follow import following
from muster.state.table import BoolColumn, FloatColumn, NodeTable, RowIndex, Rows
from muster.state.terms import Aim, OncePerTerms, Reach, Selection, with_own_labels

_FORBIDS = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
_CORDONED = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
_MEMO = "spread constraints"


@dataclass(frozen=True)
class SpreadConstraints:
    """Keep pods spread over domains as their topologySpreadConstraints say.

    DoNotSchedule: the domain with one more pod may have at most maxSkew more of them than the emptiest domain. ScheduleAnyway: the
    fewer are there the better. Pods that are leaving do not count. A bind must hold with and without those who were promised nodes.
    """

    weight: float = option(1.0, "How much the constraints that need not hold count beside other scores.", least=0)
    name: str = "spread_constraints"

    def entangled(self, s: Session, pod: Pod) -> bool:
        return bool(pod.kind.spread)

    def fit_among(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        return of_rows(rows, self.gate(s, pod, rows).open())

    def score_among(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn:
        every = np.arange(len(rows.table)) if rows.index is None else rows.index
        score = self.gate(s, pod, rows).score(every) if pod.kind.spread else None
        return np.zeros(len(rows)) if score is None else score

    def gate(self, s: Session, pod: Pod, rows: Rows) -> _Gate:
        return _Gate(s, pod, rows.table, soon=rows.soon)

    def stamp(self, s: Session, pod: Pod) -> object:
        """Pods of one kind with equal stamps are the same to this check."""
        rules = _rules(s, pod)
        return (rules, [rule.aim.selection.means_pod(s.world.facts.namespaces, pod) for rule in rules])

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        left = np.arange(len(rows.table)) if rows.index is None else rows.index
        said: list[str] = []
        for rule in (rule for rule in _rules(s, pod) if rule.hard):
            spread = _Spread(s, pod, rule, rows.table, soon=rows.soon)
            lacking, full = spread.codes[left] < 0, ~spread.open[left] & (spread.codes[left] >= 0)
            if lacking.any():
                said.append(f"{nodes(int(lacking.sum()))} without the label {rule.aim.key} over which it is spread")
            if full.any():
                said.append(f"{nodes(int(full.sum()))} {spread.words(left[full])}")
            left = left[~(lacking | full)]
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The nodes over which pods are spread: those with all the labels, and with what the constraint honors."""

    keys: tuple[str, ...]
    node_selector: tuple[tuple[str, str], ...]
    node_terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...] | None

    def column(self, table: NodeTable) -> BoolColumn:
        column = np.ones(len(table), dtype=np.bool_)
        for key in self.keys:
            column &= table.label_codes(key)[0] >= 0
        for key, value in self.node_selector:
            column &= label_column(table, Requirement(key, Operator.IN, (value,)))
        if self.node_terms is not None:
            column &= any_term(table, self.node_terms)
        if self.tolerations is not None:
            column &= _tolerated(table, Kind(tolerations=self.tolerations))
        return column


def _tolerated(table: NodeTable, kind: Kind) -> BoolColumn:
    codes, sets = table.taint_codes()
    welcome = np.array([not any(untolerated(kind, taints, _FORBIDS)) for taints in sets], dtype=np.bool_)
    column: BoolColumn = welcome[codes] if sets else np.ones(len(table), dtype=np.bool_)
    # A cordoned node has this taint, written or not.
    if any(untolerated(kind, (_CORDONED,), _FORBIDS)):
        column &= np.array([not node.unschedulable for node in table.nodes], dtype=np.bool_)
    return column


@dataclass(frozen=True, slots=True)
class _Rule:
    """One constraint as it counts for a pod: whom it counts, by which label, on which nodes."""

    aim: Aim
    scope: _Scope
    hard: bool
    max_skew: int
    min_domains: int


_RULES: Derived[OncePerTerms[tuple[_Rule, ...]]] = Derived("rules of spread constraints")


def _rules(s: Session, pod: Pod) -> tuple[_Rule, ...]:
    return _RULES.of(s.world, lambda: OncePerTerms(_rules_of)).of(pod)


def _rules_of(pod: Pod) -> tuple[_Rule, ...]:
    return tuple(_rule(pod, constraint) for constraint in pod.kind.spread)


def _rule(pod: Pod, constraint: SpreadConstraint) -> _Rule:
    kind, hard = pod.kind, constraint.hard
    labels = with_own_labels(constraint.selector, pod.labels, like=constraint.match_label_keys)
    scope = _Scope(
        keys=tuple(dict.fromkeys(other.topology_key for other in kind.spread if other.hard is hard)),
        node_selector=kind.node_selector if constraint.honor_affinity else (),
        node_terms=kind.node_affinity.required if constraint.honor_affinity else None,
        tolerations=kind.tolerations if constraint.honor_taints else None,
    )
    aim = Aim(Selection((Reach((pod.namespace,), None, labels),)), constraint.topology_key)
    return _Rule(aim, scope, hard, constraint.max_skew, constraint.min_domains or 1)


class _Gate(Gate):
    def __init__(self, s: Session, pod: Pod, table: NodeTable, *, soon: bool) -> None:
        rules = _rules(s, pod)
        self._hard = [_Spread(s, pod, rule, table, soon=soon) for rule in rules if rule.hard]
        self._soft = [_Spread(s, pod, rule, table, soon=True) for rule in rules if not rule.hard]
        self._nodes = len(table)

    def open(self) -> BoolColumn:
        found = np.ones(self._nodes, dtype=np.bool_)
        for spread in self._hard:
            found &= spread.open
        return found

    def score(self, rows: RowIndex) -> FloatColumn | None:
        if not self._soft:
            return None
        lacking = np.zeros(len(rows), dtype=np.bool_)
        for spread in self._soft:
            lacking |= spread.codes[rows] < 0
        crowds = np.zeros(len(rows))
        for spread in self._soft:
            crowds += spread.crowds(rows, rows[~lacking])
        return _fewer_is_better(crowds, lacking)

    def take(self, row: int) -> None:
        for spread in (*self._hard, *self._soft):
            spread.take(row)


class _Spread:
    """One constraint: who stands in each domain, and where one more may stand."""

    def __init__(self, s: Session, pod: Pod, rule: _Rule, table: NodeTable, *, soon: bool) -> None:
        tally = following(s.world, Looks).tally(s.world, rule.aim, rule.scope)
        self._rule = rule
        self._counted: Codes = tally.codes
        self._has_node = tally.has_node
        self._worlds: list[Counts] = tally.worlds(soon=soon)
        self._itself = int(rule.aim.selection.means_pod(s.world.facts.namespaces, pod))
        self.codes: Codes = table.label_codes(rule.aim.key)[0]
        self.open: BoolColumn = self._find() if rule.hard else np.zeros(0, dtype=np.bool_)

    def take(self, row: int) -> None:
        code = self._counted[row]
        if code < 0 or not self._itself:
            return
        for counts in self._worlds:
            counts[code] += 1
        if self._rule.hard:
            self.open = self._find()

    def crowds(self, rows: RowIndex, candidates: RowIndex) -> FloatColumn:
        """How crowded each row's domain is. Where there are many domains one pod means more; a large skew makes all more alike."""
        domains = np.zeros(len(self._has_node), dtype=np.bool_)
        domains[self.codes[candidates]] = True
        weight = math.log(int(domains.sum()) + 2)
        there: FloatColumn = self._worlds[0][self.codes[rows]].astype(np.float64)
        return there * weight + (self._rule.max_skew - 1)

    def words(self, rows: RowIndex) -> str:
        """Why these rows are closed, with the figures of the emptiest domain and of the fullest of these."""
        counts, selector = self._worlds[-1], self._rule.aim.selection.reaches[0].labels
        fullest = int(counts[self.codes[rows]].max())
        return (
            f"in a {self._rule.aim.key} that already has {fullest} of the pods it is spread with "
            f"({show_selector(selector)}), {self._fewest(counts)} in the emptiest, maxSkew {self._rule.max_skew}"
        )

    def _find(self) -> BoolColumn:
        domains = np.ones(len(self._has_node), dtype=np.bool_)
        for counts in self._worlds:
            domains &= counts + (self._itself - self._fewest(counts)) <= self._rule.max_skew
        domains[-1] = False
        found: BoolColumn = domains[self.codes]
        return found

    def _fewest(self, counts: Counts) -> int:
        there: npt.NDArray[np.int32] = counts[self._has_node]
        return int(there.min()) if len(there) >= max(1, self._rule.min_domains) else 0


def _fewer_is_better(crowds: FloatColumn, lacking: BoolColumn) -> FloatColumn:
    """From 1 for the least crowded downwards; 0 where a label is missing."""
    there = crowds[~lacking]
    if not len(there):
        return np.zeros(len(crowds))
    most, least = there.max(), there.min()
    score = (most + least - crowds) / most if most > 0 else np.ones(len(crowds))
    return np.where(lacking, 0.0, score)
