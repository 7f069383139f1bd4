"""Other pods that a pod would rather be near or far from: preferred inter-pod affinity and anti-affinity, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.inter_pod_state import InterPodState
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._option_field import option
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import WILL_COUNT, Codes, SelectorView, TermHolders, TopologyCount
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, NodeTable, RowIndex
from muster.state.pod_terms import WeightedTarget


@dataclass(frozen=True)
class PodAffinityPreference:
    """Prefer nodes by the pods near them: the preferred pod affinity and anti-affinity of the pod, and of the pods that are there.

    Every pod that a term means adds the weight of the term to its domain, or takes it away; the best node gets 1, the worst 0. What
    pods that are there require to be near them counts too. Who will be there counts, and not who is leaving.
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
        every = np.arange(len(rows.table)) if rows.index is None else rows.index
        return self.inter_pod_state(s, pod, rows).score(every)

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> _PreferredAffinity:
        inter_pod_state = _PreferredAffinity(len(rows.table))
        for topology_count, pull in self._term_counts(s, pod):
            codes = rows.table.label_codes(pull.target.key)[0]
            inter_pod_state.add(codes, self._weight(pull) * topology_count.counts[WILL_COUNT].astype(np.int64))
        for pull in self._self_matching_terms(s, pod):
            inter_pod_state.add_per_pod(rows.table, pull.target.key, self._weight(pull))
        return inter_pod_state

    def inter_pod_key(self, s: Session, pod: Pod) -> object:
        """Pods of one kind with equal stamps are the same to this check."""
        return (counter_of(s.world, TermHolders).terms_of(pod), self._self_matching_terms(s, pod), self._existing_terms(s, pod))

    def _term_counts(self, s: Session, pod: Pod) -> Iterator[tuple[TopologyCount, WeightedTarget]]:
        """Who is meant by the pod's own terms, and who holds terms that mean the pod."""
        holders = counter_of(s.world, TermHolders)
        pulls = holders.terms_of(pod).preferences
        if pulls:
            looks = counter_of(s.world, SelectorView)
            yield from ((looks.topology_count(s.world, pull.target), pull) for pull in pulls)
        yield from ((holders.topology_count(s.world, pull), pull) for pull in self._existing_terms(s, pod))

    def _existing_terms(self, s: Session, pod: Pod) -> list[WeightedTarget]:
        """The terms of placed pods that mean this one."""
        pulls = counter_of(s.world, TermHolders).weighted
        found = pulls.matching(s.world.facts.namespaces, pod.namespace, pod.labels) if pulls else []
        return [pull for pull in found if self._weight(pull)]

    def _self_matching_terms(self, s: Session, pod: Pod) -> list[WeightedTarget]:
        """The pod's own terms that mean the pod itself, and so every equal one: as it looks at them, and as they look at it."""
        wants = counter_of(s.world, TermHolders).terms_of(pod)
        both = (*wants.preferences, *wants.existing_pod_terms)
        return [pull for pull in both if self._weight(pull) and pull.target.selection.matches_pod(s.world.facts.namespaces, pod)]

    def _weight(self, pull: WeightedTarget) -> int:
        return self.hard_pod_affinity_weight if pull.weight is None else pull.weight


class _PreferredAffinity(InterPodState):
    def __init__(self, nodes: int) -> None:
        self._score_sum: npt.NDArray[np.int64] = np.zeros(nodes, dtype=np.int64)
        self._per_pod: list[tuple[Codes, int]] = []

    def add(self, codes: Codes, by_domain: npt.NDArray[np.int64]) -> None:
        """What is said in each domain is said of each of its nodes."""
        self._score_sum += by_domain[codes]

    def add_per_pod(self, table: NodeTable, key: str, weight: int) -> None:
        """Every further pod of this kind adds the weight to its domain."""
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
