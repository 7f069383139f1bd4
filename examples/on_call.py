"""A plugin of your own that protects pods from eviction: those that somebody is working with.

Use it in a policy as `./on_call.py:OnCall`, or as `on_call:OnCall` if its folder is on the Python path.
"""

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.state.node_table import BoolColumn, RowIndex


@dataclass(frozen=True)
class OnCall:
    """Pods with the label `label` are not evicted, unless for a gang of at least the priority `unless`."""

    label: str = "example.com/in-use"
    unless: int = 1000
    name: str = "on-call"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        if ask.gang.priority >= self.unless:
            return np.ones(len(victim), dtype=np.bool_)
        # One answer for each of these rows, in that order. False is a veto: it protects the whole gang, too.
        return np.array([self.label not in victim_table.pods[at].labels for at in victim.tolist()], dtype=np.bool_)
