"""Fill nodes up before opening new ones, so that large pods still find empty nodes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._gpu_workload import added_fragments, gpu_workload
from muster.plugins._little_left import little_left
from muster.plugins._node_allocation import NodeAllocationScore, mean_allocation
from muster.state.node_table import FloatColumn, NodeRows

# Where the fragments are the same, or nearly so, what is left of the nodes decides.
_AMONG_EQUALS = 0.01


@dataclass(frozen=True)
class Binpack(NodeAllocationScore):
    """Fill nodes up before opening new ones, so that large pods still find empty nodes.

    The score of a node is the weighted mean of how full it would be, over the resources that the pod requests. With `fragments`
    it is that of `fgd` in clusters whose pods ask for GPUs, and that of `best-fit` among nodes that are equal to `fgd`.
    """

    fragments: bool = option(False, "Where pods ask for GPUs, leave the fewest that they cannot use.")
    name: str = "binpack"

    def score_key(self, s: Session) -> Hashable:
        return gpu_workload(s) if self.fragments else None

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        if self.fragments and (workload := gpu_workload(s)).pods:
            added = added_fragments(s, pod, rows, workload)
            score = added.score + _AMONG_EQUALS * little_left(s, added.left, added.gpus_left, self.resources)
            score /= 1.0 + _AMONG_EQUALS
            return score
        full = mean_allocation(s, pod, rows, self.resources)
        return np.zeros(len(rows), dtype=np.float64) if full is None else full
