"""The node on which least would be left: by amounts, not by parts, so that small nodes fill up first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.device import WHOLE_CORES
from muster.model.pod import Pod
from muster.model.resource_amounts import GPU
from muster.model.topics import Topic
from muster.plugins._free_gpus import free_gpus, gpus_asked, most_gpus
from muster.plugins._node_allocation import NodeAllocationScore
from muster.state.derived_values import Derived
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class BestFit(NodeAllocationScore):
    """The node on which least would be left, so that large nodes stay free for large pods.

    `binpack` compares how full nodes would be, in parts of each; this compares what would be left of them, in parts of the largest
    node of the cluster. Shared GPUs count by what is left of each.
    """

    name: str = "best-fit"

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        left = np.zeros(len(rows), dtype=np.float64)
        total = 0.0
        for name, weight in self.resources.items():
            largest = _largest(s, name)
            if weight and largest:
                left += weight * np.clip(_left(s, pod, rows, name) / largest, 0.0, 1.0)
                total += weight
        found: FloatColumn = 1.0 - left / total if total else left
        return found


def _left(s: Session, pod: Pod, rows: NodeRows, resource: str) -> FloatColumn:
    """How much of a resource each row would have left with the pod on it."""
    if resource == GPU:
        left: FloatColumn = free_gpus(s, pod, rows).sum(axis=1) / WHOLE_CORES - gpus_asked(pod.signature)
        return left
    column = s.world.columns.position[resource]
    amounts: FloatColumn = (rows.allocatable[:, column] - rows.planned[:, column] - s.world.request(pod)[column]).astype(np.float64)
    return amounts


_LARGEST: Derived[int] = Derived("the most of a resource that a node has", Topic.NODE_LAYOUT, Topic.ALLOCATABLE)


def _largest(s: Session, resource: str) -> int:
    if resource == GPU:
        return most_gpus(s)
    column = s.world.columns.position.get(resource)
    return _LARGEST.of(
        s.world, lambda: 0 if column is None else int(s.world.table.allocatable[:, column].max(initial=0)), key=resource
    )
