"""A pod that has just started is not evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.pod import Phase
from muster.plugins._option_field import option
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex

EvictingAction = Literal["preempt", "gang-preempt", "gang-reclaim", "job-preempt"]
EVICTING_ACTIONS: tuple[EvictingAction, ...] = get_args(EvictingAction)


@dataclass(frozen=True)
class MinRuntime:
    """A pod that has just started is not evicted."""

    seconds: float = option(60.0, "For how long a pod is protected from its start on.", minimum=0)
    actions: tuple[EvictingAction, ...] = option(EVICTING_ACTIONS, "The actions to which this applies.")
    name: str = "min-runtime"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        return self.evictable_at(s, ask, victim_table, victim) <= s.now

    def evictable_at(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> FloatColumn:
        """From when on each is evictable. A reserved or nominated pod has not started."""
        if ask.action not in self.actions:
            return np.full(len(victim), -np.inf)
        runs = victim_table.phase[victim] == Phase.BOUND
        return np.where(runs, victim_table.started[victim] + self.seconds, -np.inf)
