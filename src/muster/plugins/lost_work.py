"""What an eviction costs: the hours of work since the last checkpoint, and the hours to restart.

Pods declare both by annotation; unknown means that everything since the start is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
        return lost
