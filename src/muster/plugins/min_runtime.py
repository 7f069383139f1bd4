"""Who has just started is left alone: work that is thrown away before it had a chance helps nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from muster.engine.evict.seats import SeatTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.pod import Phase
from muster.plugins._options import option
from muster.state.table import BoolColumn, FloatColumn, RowIndex

Action = Literal["preempt", "gang-preempt", "gang-reclaim", "job-preempt"]
ALL_ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True)
class MinRuntime:
    """Who has just started is left alone: work that is thrown away before it had a chance helps nobody."""

    seconds: float = option(60.0, "So long a pod runs undisturbed.", least=0)
    actions: tuple[Action, ...] = option(ALL_ACTIONS, "The actions to which this applies.")
    name: str = "min_runtime"

    def evictable(self, s: Session, ask: Ask, seats: SeatTable, seat: RowIndex) -> BoolColumn:
        return self.free_at(s, ask, seats, seat) <= s.now

    def free_at(self, s: Session, ask: Ask, seats: SeatTable, seat: RowIndex) -> FloatColumn:
        """From when on each of these may be taken. What is only claimed has not started."""
        if ask.action not in self.actions:
            return np.full(len(seat), -np.inf)
        runs = seats.phase[seat] == Phase.BOUND
        return np.where(runs, seats.started[seat] + self.seconds, -np.inf)
