"""What an ask wants, kind by kind, and how many of a kind fit into some amounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.figures import Figures
from muster.engine.evict.seats import Ints
from muster.model.pod import Pod
from muster.state.columns import Amounts
from muster.state.table import RowIndex


@dataclass(slots=True)
class Want:
    """Equal members of the ask: how many, and what each needs."""

    pods: list[Pod]
    request: Amounts
    asked: RowIndex
    rows: RowIndex
    figures: Figures


def seats_in_rows(free: Amounts, want: Want, rows: RowIndex) -> Ints:
    """How many further members of this kind each of these rows could take, by its figures alone."""
    counts = fitting(free, want)
    most = want.figures.most(free, rows, want.pods[0].kind.devices)
    return counts if most is None else np.minimum(counts, most)


def fitting(free: Amounts, want: Want) -> Ints:
    """How often a member of this kind fits into each of these amounts."""
    if not len(free):
        return np.zeros(0, dtype=np.int64)
    counts: Ints = (free[:, want.asked] // want.request[want.asked]).min(axis=1)
    return np.maximum(counts, 0)
