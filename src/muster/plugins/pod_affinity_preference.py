"""Other pods that a pod would rather be near or far from: preferred inter-pod affinity and anti-affinity, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.gates import Gate
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._options import option
from muster.state.census import TO_BE_THERE, Codes, Holders, Looks, Tally
from muster.state.follow import following
from muster.state.table import BoolColumn, FloatColumn, NodeTable, RowIndex, Rows
from muster.state.terms import Pull


@dataclass(frozen=True)
class PodAffinityPreference:
    """Prefer nodes by the pods near them: the preferred pod affinity and anti-affinity of the pod, and of the pods that are there.

    Every pod that a term means adds the weight of the term to its domain, or takes it away; the best node gets 1, the worst 0. What
    pods that are there require to be near them counts too. Who will be there counts, and not who is leaving.
    """

    weight: float = option(1.0, "How much this score counts beside the others.", least=0)
    hard_weight: int = option(1, "The weight of what pods that are there require to be near them, 0 to 100.", least=0)
    name: str = "pod_affinity_preference"

    def entangled(self, s: Session, pod: Pod) -> bool:
        kind = pod.kind
        return bool(kind.affinity.preferred or kind.anti_affinity.preferred) or bool(self._pulled_by(s, pod))

    def fit_among(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        return np.ones(len(rows), dtype=np.bool_)

    def score_among(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn:
        every = np.arange(len(rows.table)) if rows.index is None else rows.index
        return self.gate(s, pod, rows).score(every)

    def gate(self, s: Session, pod: Pod, rows: Rows) -> _Gate:
        gate = _Gate(len(rows.table))
        for tally, pull in self._tallies(s, pod):
            codes = rows.table.label_codes(pull.aim.key)[0]
            gate.add(codes, self._weight(pull) * tally.counts[TO_BE_THERE].astype(np.int64))
        for pull in self._own(s, pod):
            gate.repeat(rows.table, pull.aim.key, self._weight(pull))
        return gate

    def stamp(self, s: Session, pod: Pod) -> object:
        """Pods of one kind with equal stamps are the same to this check."""
        return (following(s.world, Holders).wants(pod), self._own(s, pod), self._pulled_by(s, pod))

    def _tallies(self, s: Session, pod: Pod) -> Iterator[tuple[Tally, Pull]]:
        """Who is meant by the pod's own terms, and who holds terms that mean the pod."""
        holders = following(s.world, Holders)
        pulls = holders.wants(pod).pulls
        if pulls:
            looks = following(s.world, Looks)
            yield from ((looks.tally(s.world, pull.aim), pull) for pull in pulls)
        yield from ((holders.tally(s.world, pull), pull) for pull in self._pulled_by(s, pod))

    def _pulled_by(self, s: Session, pod: Pod) -> list[Pull]:
        """The terms of placed pods that mean this one."""
        pulls = following(s.world, Holders).pulls
        found = pulls.meaning(s.world.facts.namespaces, pod.namespace, pod.labels) if pulls else []
        return [pull for pull in found if self._weight(pull)]

    def _own(self, s: Session, pod: Pod) -> list[Pull]:
        """The pod's own terms that mean the pod itself, and so every equal one: as it looks at them, and as they look at it."""
        wants = following(s.world, Holders).wants(pod)
        both = (*wants.pulls, *wants.gives)
        return [pull for pull in both if self._weight(pull) and pull.aim.selection.means_pod(s.world.facts.namespaces, pod)]

    def _weight(self, pull: Pull) -> int:
        return self.hard_weight if pull.weight is None else pull.weight


class _Gate(Gate):
    def __init__(self, nodes: int) -> None:
        self._sum: npt.NDArray[np.int64] = np.zeros(nodes, dtype=np.int64)
        self._repeats: list[tuple[Codes, int]] = []

    def add(self, codes: Codes, by_domain: npt.NDArray[np.int64]) -> None:
        """What is said in each domain is said of each of its nodes."""
        self._sum += by_domain[codes]

    def repeat(self, table: NodeTable, key: str, weight: int) -> None:
        """Every further pod of this kind adds the weight to its domain."""
        self._repeats.append((table.label_codes(key)[0], weight))

    def score(self, rows: RowIndex) -> FloatColumn:
        found = self._sum[rows]
        if not len(found):
            return np.zeros(0)
        least, most = int(found.min()), int(found.max())
        return (found - least) / (most - least) if most > least else np.zeros(len(rows))

    def take(self, row: int) -> None:
        for codes, weight in self._repeats:
            if codes[row] >= 0:
                self._sum[codes == codes[row]] += weight
