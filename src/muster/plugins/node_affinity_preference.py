"""Preferred node affinity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.state.derived.node_term_matches import matches_term
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class NodeAffinityPreference:
    """Prefer nodes that match the preferred terms of a pod's node affinity.

    The score of a node is the sum of the weights of the terms that match it, divided by the sum of all. An empty term is ignored.
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    name: str = "node-affinity-preference"

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        preferred = [
            (each.weight, each.term) for each in pod.signature.node_affinity.preferred if each.term.expressions or each.term.fields
        ]
        most = sum(weight for weight, _ in preferred)
        if most <= 0:
            return np.zeros(len(rows), dtype=np.float64)
        matched = np.zeros(len(rows), dtype=np.int64)
        for weight, term in preferred:
            matched += weight * rows.pick(matches_term(rows.table, term))
        share: FloatColumn = matched / most
        return share
