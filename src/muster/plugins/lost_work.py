"""What an eviction costs, in hours of work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.eviction_history import gang_losses
from muster.engine.evict.victims import VictimTable
from muster.engine.session import Session
from muster.state.node_table import FloatColumn, RowIndex


@dataclass(frozen=True)
class LostWork:
    """The pods that lose least are evicted first: the hours since the last checkpoint and the hours to restart count as cost.

    Pods declare both by annotation; unknown means that everything since the start is lost.
    """

    name: str = "lost-work"

    def lost_hours(self, s: Session, victim_table: VictimTable, victim: RowIndex) -> FloatColumn:
        lost: FloatColumn = (np.maximum(s.now - victim_table.saved[victim], 0.0) + victim_table.restart_s[victim]) / 3600.0
        earlier = np.zeros(len(victim_table.gangs))
        for number, losses in gang_losses(s, victim_table):
            earlier[number] = losses.hours
        return lost + earlier[victim_table.gang[victim]]
