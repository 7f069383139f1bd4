"""Fill nodes up before opening new ones, so that large pods still find empty nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._node_allocation import NodeAllocationScore, mean_allocation
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class Binpack(NodeAllocationScore):
    """Fill nodes up before opening new ones, so that large pods still find empty nodes.

    The score of a node is the weighted mean of how full it would be, over the resources that the pod requests.
    """

    name: str = "binpack"

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        full = mean_allocation(s, pod, rows, self.resources)
        return np.zeros(len(rows), dtype=np.float64) if full is None else full
