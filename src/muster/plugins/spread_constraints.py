"""topologySpreadConstraints, both DoNotSchedule and ScheduleAnyway."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.explain import nodes
from muster.engine.inter_pod_state import InterPodState
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod, PodSignature
from muster.model.pod_constraints import NodeTerm, Operator, Requirement, SpreadConstraint, Toleration
from muster.plugins._selector_text import show_selector
from muster.plugins._untolerated_taints import UNSCHEDULABLE_TAINT, column_by_taints, untolerated_taints
from muster.state.derived.node_term_matches import matches_any_term, matches_label
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import Codes, Counts, SelectorView
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, NodeTable, RowIndex
from muster.state.pod_terms import PerTermsCache, Selection, TermSelector, TermTarget, with_own_labels


@dataclass(frozen=True)
class SpreadConstraints:
    """Spread pods over domains by their topologySpreadConstraints.

    DoNotSchedule: the domain with one more pod may have at most maxSkew more of them than the emptiest domain. ScheduleAnyway: the
    fewer the better. Terminating pods do not count. A bind must pass with and without the nominated pods.
    """

    weight: float = option(1.0, "How much ScheduleAnyway constraints count beside other scores.", minimum=0)
    name: str = "spread-constraints"

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        return bool(pod.signature.spread)

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return rows.pick(self.inter_pod_state(s, pod, rows).feasible_rows())

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        score = self.inter_pod_state(s, pod, rows).score(rows.numbers) if pod.signature.spread else None
        return np.zeros(len(rows)) if score is None else score

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> _TopologySpread:
        return _TopologySpread(s, pod, rows.table, after_releases=rows.after_releases)

    def inter_pod_key(self, s: Session, pod: Pod) -> object:
        """Pods of one signature with equal keys are the same to this plugin."""
        constraints = _parsed_constraints(s, pod)
        return (constraints, [constraint.target.selection.matches_pod(s.world.facts.namespaces, pod) for constraint in constraints])

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        left = rows.numbers
        reasons: list[str] = []
        for constraint in (constraint for constraint in _parsed_constraints(s, pod) if constraint.hard):
            spread = _ConstraintCounts(s, pod, constraint, rows.table, after_releases=rows.after_releases)
            lacking, full = spread.codes[left] < 0, ~spread.feasible_rows[left] & (spread.codes[left] >= 0)
            if lacking.any():
                reasons.append(f"{nodes(int(lacking.sum()))} without the label {constraint.target.key}, its topologyKey")
            if full.any():
                reasons.append(f"{nodes(int(full.sum()))} {spread.reason_text(left[full])}")
            left = left[~(lacking | full)]
        return ", ".join(reasons)


@dataclass(frozen=True, slots=True)
class _NodeInclusion:
    """The nodes that count: those with all the labels, and by nodeAffinityPolicy and nodeTaintsPolicy."""

    keys: tuple[str, ...]
    node_selector: tuple[tuple[str, str], ...]
    node_terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...] | None

    def column(self, table: NodeTable) -> BoolColumn:
        column = np.ones(len(table), dtype=np.bool_)
        for key in self.keys:
            column &= table.label_codes(key)[0] >= 0
        for key, value in self.node_selector:
            column &= matches_label(table, Requirement(key, Operator.IN, (value,)))
        if self.node_terms is not None:
            column &= matches_any_term(table, self.node_terms)
        if self.tolerations is not None:
            column &= _tolerated(table, PodSignature(tolerations=self.tolerations))
        return column


def _tolerated(table: NodeTable, signature: PodSignature) -> BoolColumn:
    column = column_by_taints(NodeRows(table), lambda taints: not untolerated_taints(signature, taints), np.bool_)
    # A cordoned node counts as having this taint.
    if untolerated_taints(signature, (UNSCHEDULABLE_TAINT,)):
        column &= np.array([not node.unschedulable for node in table.nodes], dtype=np.bool_)
    return column


@dataclass(frozen=True, slots=True)
class _ParsedConstraint:
    """One constraint of a pod: which pods it counts, by which label, on which nodes."""

    target: TermTarget
    scope: _NodeInclusion
    hard: bool
    max_skew: int
    min_domains: int


_CONSTRAINTS: Derived[PerTermsCache[tuple[_ParsedConstraint, ...]]] = Derived("parsed spread constraints")


def _parsed_constraints(s: Session, pod: Pod) -> tuple[_ParsedConstraint, ...]:
    return _CONSTRAINTS.of(s.world, lambda: PerTermsCache(_parse_constraints)).of(pod)


def _parse_constraints(pod: Pod) -> tuple[_ParsedConstraint, ...]:
    return tuple(_parsed_constraint(pod, constraint) for constraint in pod.signature.spread)


def _parsed_constraint(pod: Pod, constraint: SpreadConstraint) -> _ParsedConstraint:
    signature, hard = pod.signature, constraint.hard
    labels = with_own_labels(constraint.selector, pod.labels, like=constraint.match_label_keys)
    scope = _NodeInclusion(
        keys=tuple(dict.fromkeys(other.topology_key for other in signature.spread if other.hard is hard)),
        node_selector=signature.node_selector if constraint.honor_affinity else (),
        node_terms=signature.node_affinity.required if constraint.honor_affinity else None,
        tolerations=signature.tolerations if constraint.honor_taints else None,
    )
    target = TermTarget(Selection((TermSelector((pod.namespace,), None, labels),)), constraint.topology_key)
    return _ParsedConstraint(target, scope, hard, constraint.max_skew, constraint.min_domains or 1)


class _TopologySpread(InterPodState):
    def __init__(self, s: Session, pod: Pod, table: NodeTable, *, after_releases: bool) -> None:
        constraints = _parsed_constraints(s, pod)
        self._hard = [
            _ConstraintCounts(s, pod, constraint, table, after_releases=after_releases)
            for constraint in constraints
            if constraint.hard
        ]
        self._soft = [
            _ConstraintCounts(s, pod, constraint, table, after_releases=True) for constraint in constraints if not constraint.hard
        ]
        self._nodes = len(table)

    def feasible_rows(self) -> BoolColumn:
        found = np.ones(self._nodes, dtype=np.bool_)
        for spread in self._hard:
            found &= spread.feasible_rows
        return found

    def score(self, rows: RowIndex) -> FloatColumn | None:
        if not self._soft:
            return None
        lacking = np.zeros(len(rows), dtype=np.bool_)
        for spread in self._soft:
            lacking |= spread.codes[rows] < 0
        pod_counts = np.zeros(len(rows))
        for spread in self._soft:
            pod_counts += spread.pod_counts(rows, rows[~lacking])
        return _normalize_score(pod_counts, lacking)

    def add_pod(self, row: int) -> None:
        for spread in (*self._hard, *self._soft):
            spread.add_pod(row)


class _ConstraintCounts:
    """One constraint: how many pods each domain has, and where one more is feasible."""

    def __init__(self, s: Session, pod: Pod, constraint: _ParsedConstraint, table: NodeTable, *, after_releases: bool) -> None:
        topology_count = counter_of(s.world, SelectorView).topology_count(s.world, constraint.target, constraint.scope)
        self._parsed_constraint = constraint
        self._counted_codes: Codes = topology_count.codes
        self._has_node = topology_count.has_node
        self._views: list[Counts] = topology_count.views(after_releases=after_releases)
        self._self_match = int(constraint.target.selection.matches_pod(s.world.facts.namespaces, pod))
        self.codes: Codes = table.label_codes(constraint.target.key)[0]
        self.feasible_rows: BoolColumn = self._feasible_nodes() if constraint.hard else np.zeros(0, dtype=np.bool_)

    def add_pod(self, row: int) -> None:
        code = self._counted_codes[row]
        if code < 0 or not self._self_match:
            return
        for counts in self._views:
            counts[code] += 1
        if self._parsed_constraint.hard:
            self.feasible_rows = self._feasible_nodes()

    def pod_counts(self, rows: RowIndex, candidates: RowIndex) -> FloatColumn:
        """The weighted count of each row's domain: more domains weigh a pod more, a large maxSkew makes all more alike."""
        domains = np.zeros(len(self._has_node), dtype=np.bool_)
        domains[self.codes[candidates]] = True
        weight = math.log(int(domains.sum()) + 2)
        there: FloatColumn = self._views[0][self.codes[rows]].astype(np.float64)
        return there * weight + (self._parsed_constraint.max_skew - 1)

    def reason_text(self, rows: RowIndex) -> str:
        """Why these rows are refused, with the counts of the emptiest domain and of the fullest of these."""
        counts, selector = self._views[-1], self._parsed_constraint.target.selection.selectors[0].labels
        fullest = int(counts[self.codes[rows]].max())
        return (
            f"in a {self._parsed_constraint.target.key} that already has {fullest} matching pods "
            f"({show_selector(selector)}), {self._min_match(counts)} in the emptiest, maxSkew {self._parsed_constraint.max_skew}"
        )

    def _feasible_nodes(self) -> BoolColumn:
        domains = np.ones(len(self._has_node), dtype=np.bool_)
        for counts in self._views:
            domains &= counts + (self._self_match - self._min_match(counts)) <= self._parsed_constraint.max_skew
        domains[-1] = False
        found: BoolColumn = domains[self.codes]
        return found

    def _min_match(self, counts: Counts) -> int:
        there: npt.NDArray[np.int32] = counts[self._has_node]
        return int(there.min()) if len(there) >= max(1, self._parsed_constraint.min_domains) else 0


def _normalize_score(pod_counts: FloatColumn, lacking: BoolColumn) -> FloatColumn:
    """1 for the lowest count, less for others; 0 where a label is missing."""
    there = pod_counts[~lacking]
    if not len(there):
        return np.zeros(len(pod_counts))
    most, minimum = there.max(), there.min()
    score = (most + minimum - pod_counts) / most if most > 0 else np.ones(len(pod_counts))
    return np.where(lacking, 0.0, score)
