"""What an eviction really costs: the hours of work since the last checkpoint, and the hours to get going again.

Pods declare both by annotation; unknown means that everything since the start is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.seats import SeatTable
from muster.engine.session import Session
from muster.state.table import FloatColumn, RowIndex


@dataclass(frozen=True)
class LostWork:
    """Whoever loses least is evicted first: the hours since the last checkpoint and the hours to get going again count as cost.

    Pods declare both by annotation; unknown means that everything since the start is lost.
    """

    name: str = "lost_work"

    def lost_hours(self, s: Session, seats: SeatTable, seat: RowIndex) -> FloatColumn:
        lost: FloatColumn = (np.maximum(s.now - seats.saved[seat], 0.0) + seats.restart_s[seat]) / 3600.0
        return lost
