"""A plugin of your own that says who may never be evicted: pods that somebody is working with.

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
    """Pods with the label `label` stay, unless the gang that asks has at least the priority `unless`."""

    label: str = "example.com/in-use"
    unless: int = 1000
    name: str = "on-call"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        if ask.gang.priority >= self.unless:
            return np.ones(len(victim), dtype=np.bool_)
        # One answer for each seat that is shown, in that order. False is a veto: a whole gang goes whole or not at all.
        return np.array([self.label not in victim_table.pods[at].labels for at in victim.tolist()], dtype=np.bool_)
