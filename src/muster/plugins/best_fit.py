"""The node on which least would be left: by amounts, not by parts, so that small nodes fill up first."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.device import WHOLE_CORES
from muster.model.pod import Pod
from muster.plugins._free_gpus import free_gpus, gpus_asked
from muster.plugins._little_left import little_left
from muster.plugins._node_allocation import NodeAllocationScore
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class BestFit(NodeAllocationScore):
    """The node on which least would be left, so that large nodes stay free for large pods.

    `binpack` compares how full nodes would be, in parts of each; this compares what would be left of them, in parts of the largest
    node of the cluster. Shared GPUs count by what is left of each.
    """

    name: str = "best-fit"

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        left = rows.allocatable - rows.planned - s.world.request(pod)
        gpus_left: FloatColumn = free_gpus(s, pod, rows).sum(axis=1) / WHOLE_CORES - gpus_asked(pod.signature)
        return little_left(s, left, gpus_left, self.resources)
