"""Cordoned nodes take nobody new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.selectors import Taint, TaintEffect
from muster.plugins._rows import of_rows
from muster.state.table import BoolColumn, NodeTable, Rows

# What a pod must tolerate to go onto a cordoned node.
CORDONED = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
_MEMO = "unschedulable"


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


@dataclass(frozen=True, slots=True)
class _Open:
    layout: int
    column: BoolColumn


def _open(s: Session, table: NodeTable) -> BoolColumn:
    """Nodes that are not cordoned, worked out once for each layout of the table."""
    found = s.world.memo.get(_MEMO)
    if not isinstance(found, _Open) or found.layout != table.layout:
        column = np.array([not node.unschedulable for node in table.nodes], dtype=np.bool_)
        found = s.world.memo[_MEMO] = _Open(table.layout, column)
    return found.column
