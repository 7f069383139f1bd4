"""No pod is placed on a cordoned node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.topics import Topic
from muster.plugins._untolerated_taints import UNSCHEDULABLE_TAINT
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, NodeRows, NodeTable


@dataclass(frozen=True)
class Unschedulable:
    """A pod is not placed on a cordoned node unless it tolerates the taint node.kubernetes.io/unschedulable:NoSchedule."""

    name: str = "unschedulable"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        if any(toleration.tolerates(UNSCHEDULABLE_TAINT) for toleration in pod.signature.tolerations):
            return np.ones(len(rows), dtype=np.bool_)
        return rows.pick(_schedulable(s, rows.table))

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        return f"{nodes(len(rows))} unschedulable"


_SCHEDULABLE: Derived[BoolColumn] = Derived("nodes that are not cordoned", Topic.NODE_LAYOUT, Topic.NODE_TAINTS)


def _schedulable(s: Session, table: NodeTable) -> BoolColumn:
    """Nodes that are not cordoned."""
    return _SCHEDULABLE.of(s.world, lambda: np.array([not node.unschedulable for node in table.nodes], dtype=np.bool_))
