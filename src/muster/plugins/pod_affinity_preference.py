"""Preferred inter-pod affinity and anti-affinity, of the pod and of the pods that are placed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.inter_pod_state import InterPodState
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import WILL_COUNT, Codes, SelectorView, TermHolders, TopologyCount
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, NodeTable, RowIndex
from muster.state.pod_terms import WeightedTarget


@dataclass(frozen=True)
class PodAffinityPreference:
    """Prefer nodes by preferred pod affinity and anti-affinity, of the pod and of the placed pods.

    Every pod that a term selects adds the weight of the term to its domain, or subtracts it; the best node gets 1, the worst 0. The
    required affinity of placed pods counts too. Nominated pods count, terminating ones do not.
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    hard_pod_affinity_weight: int = option(1, "The weight of the required affinity of placed pods, 0 to 100.", minimum=0)
    name: str = "pod-affinity-preference"

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        signature = pod.signature
        return bool(signature.affinity.preferred or signature.anti_affinity.preferred) or bool(self._existing_terms(s, pod))

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return np.ones(len(rows), dtype=np.bool_)

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        return self.inter_pod_state(s, pod, rows).score(rows.numbers)

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> _PreferredAffinity:
        inter_pod_state = _PreferredAffinity(len(rows.table))
        for topology_count, term in self._term_counts(s, pod):
            codes = rows.table.label_codes(term.target.key)[0]
            inter_pod_state.add(codes, self._weight(term) * topology_count.counts[WILL_COUNT].astype(np.int64))
        for term in self._self_matching_terms(s, pod):
            inter_pod_state.add_per_pod(rows.table, term.target.key, self._weight(term))
        return inter_pod_state

    def inter_pod_key(self, s: Session, pod: Pod) -> object:
        """Pods of one signature with equal keys are the same to this plugin."""
        return (counter_of(s.world, TermHolders).terms_of(pod), self._self_matching_terms(s, pod), self._existing_terms(s, pod))

    def _term_counts(self, s: Session, pod: Pod) -> Iterator[tuple[TopologyCount, WeightedTarget]]:
        """The pods that the pod's own terms select, and those with terms that select the pod."""
        holders = counter_of(s.world, TermHolders)
        terms = holders.terms_of(pod).preferences
        if terms:
            selector_view = counter_of(s.world, SelectorView)
            yield from ((selector_view.topology_count(s.world, term.target), term) for term in terms)
        yield from ((holders.topology_count(s.world, term), term) for term in self._existing_terms(s, pod))

    def _existing_terms(self, s: Session, pod: Pod) -> list[WeightedTarget]:
        """The terms of placed pods that select this one."""
        terms = counter_of(s.world, TermHolders).weighted
        found = terms.matching(s.world.facts.namespaces, pod.namespace, pod.labels) if terms else []
        return [term for term in found if self._weight(term)]

    def _self_matching_terms(self, s: Session, pod: Pod) -> list[WeightedTarget]:
        """The pod's own terms that select the pod itself, and so every equal one, in both directions."""
        terms = counter_of(s.world, TermHolders).terms_of(pod)
        both = (*terms.preferences, *terms.existing_pod_terms)
        return [term for term in both if self._weight(term) and term.target.selection.matches_pod(s.world.facts.namespaces, pod)]

    def _weight(self, term: WeightedTarget) -> int:
        return self.hard_pod_affinity_weight if term.weight is None else term.weight


class _PreferredAffinity(InterPodState):
    def __init__(self, nodes: int) -> None:
        self._score_sum: npt.NDArray[np.int64] = np.zeros(nodes, dtype=np.int64)
        self._per_pod: list[tuple[Codes, int]] = []

    def add(self, codes: Codes, by_domain: npt.NDArray[np.int64]) -> None:
        """The value of a domain is that of each of its nodes."""
        self._score_sum += by_domain[codes]

    def add_per_pod(self, table: NodeTable, key: str, weight: int) -> None:
        """Every further pod of this signature adds the weight to its domain."""
        self._per_pod.append((table.label_codes(key)[0], weight))

    def score(self, rows: RowIndex) -> FloatColumn:
        found = self._score_sum[rows]
        if not len(found):
            return np.zeros(0)
        minimum, most = int(found.min()), int(found.max())
        return (found - minimum) / (most - minimum) if most > minimum else np.zeros(len(rows))

    def add_pod(self, row: int) -> None:
        for codes, weight in self._per_pod:
            if codes[row] >= 0:
                self._score_sum[codes == codes[row]] += weight
