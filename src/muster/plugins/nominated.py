"""A pod is placed on the node that its status nominates, if it fits there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows


@dataclass(frozen=True)
class Nominated:
    """Prefer the node that a pod's status.nominatedNodeName names: 1 for that node, 0 for the others.

    With the default weight it outweighs all other scores.
    """

    weight: float = option(100.0, "How much this score counts beside the others.", minimum=0)
    name: str = "nominated"

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        """Pods of one signature may be nominated to different nodes, so they are placed one by one."""
        return pod.nominated_node is not None and pod.nominated_node in s.world.table.row

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return np.ones(len(rows), dtype=np.bool_)

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        row = rows.table.row.get(pod.nominated_node or "", -1)
        score: FloatColumn = (rows.numbers == row).astype(np.float64)
        return score
