"""Cordoned nodes take nobody new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.selectors import Taint, TaintEffect
from muster.model.topics import Topic
from muster.plugins._rows import of_rows
from muster.state.derived import Derived
from muster.state.table import BoolColumn, NodeTable, Rows

# What a pod must tolerate to go onto a cordoned node.
CORDONED = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)


@dataclass(frozen=True)
class Unschedulable:
    """A pod stays away from nodes that were cordoned, unless it tolerates the taint node.kubernetes.io/unschedulable:NoSchedule."""

    name: str = "unschedulable"

    def match(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        if any(toleration.tolerates(CORDONED) for toleration in pod.kind.tolerations):
            return np.ones(len(rows), dtype=np.bool_)
        return of_rows(rows, _open(s, rows.table))

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        return f"{nodes(len(rows))} unschedulable"


_OPEN: Derived[BoolColumn] = Derived("nodes that are not cordoned", Topic.NODE_LAYOUT, Topic.NODE_TAINTS)


def _open(s: Session, table: NodeTable) -> BoolColumn:
    """Nodes that are not cordoned."""
    return _OPEN.of(s.world, lambda: np.array([not node.unschedulable for node in table.nodes], dtype=np.bool_))
