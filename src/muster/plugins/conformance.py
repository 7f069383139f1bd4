"""Pods that the cluster itself needs are never victims."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.state.node_table import BoolColumn, RowIndex


@dataclass(frozen=True)
class Conformance:
    """Pods that the cluster itself needs are never victims: critical classes, system namespaces, DaemonSets and mirror pods.

    The engine excludes them already, with or without this plugin; naming it in a policy only makes the rule visible there.
    """

    name: str = "conformance"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        return np.array([not victim_table.pods[at].protected for at in victim.tolist()], dtype=np.bool_)
