"""Fragmentation gradient descent: the node on which the pod leaves the fewest GPUs that the workload cannot use.

After "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._gpu_workload import added_fragments, gpu_workload
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class Fgd:
    """The node on which the pod leaves the fewest GPUs that the workload cannot use.

    What is free of a GPU is a fragment for a kind of pod that requests more of it, more such GPUs than its node has left, or more
    CPU or memory. The score falls with the fragments that the pod adds, on average over all pods that run or wait. Nodes on which
    it adds the same are equal: a `best-fit` of small weight beside it decides among them.
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    name: str = "fgd"

    def score_key(self, s: Session) -> Hashable:
        return gpu_workload(s)

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        workload = gpu_workload(s)
        return added_fragments(s, pod, rows, workload).score if workload.pods else np.full(len(rows), 0.5)
