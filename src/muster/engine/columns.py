"""What the plugins say of every node for one kind of pod, kept between pods and cycles and refreshed row by row.

Matches are computed once per layout of the table; fit and score only for the rows whose figures changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from muster.model.pod import Pod
from muster.state.table import BoolColumn, FloatColumn, RowIndex, Rows

if TYPE_CHECKING:
    from muster.engine.session import Session

REFUSED = -np.inf


class KindColumns:
    """`value` is the score of each node, or minus infinity where the pod cannot go."""

    def __init__(self, *, soon: bool) -> None:
        self.soon = soon
        self.layout = -1
        self.position = 0
        self.match: BoolColumn = np.zeros(0, dtype=np.bool_)
        self.value: FloatColumn = np.zeros(0, dtype=np.float64)

    def refresh(self, s: Session, pod: Pod) -> None:
        table = s.world.table
        if self.layout != table.layout:
            self._compute_all(s, pod)
            return
        if self.position == table.position:
            return
        changed = table.changed_since(self.position)
        if changed is None or len(changed) > len(table) // 2:
            self._compute_rows(s, pod, None)
        else:
            self._compute_rows(s, pod, np.array(sorted(set(changed)), dtype=np.intp))
        self.position = table.position

    def _compute_all(self, s: Session, pod: Pod) -> None:
        table = s.world.table
        self.match = match_column(s, pod, Rows(table, soon=self.soon))
        self._compute_rows(s, pod, None)
        self.layout, self.position = table.layout, table.position

    def _compute_rows(self, s: Session, pod: Pod, index: RowIndex | None) -> None:
        rows = Rows(s.world.table, index, soon=self.soon)
        if index is None:
            self.value = np.where(self.match, values(s, pod, rows), REFUSED)
        else:
            self.value[index] = np.where(self.match[index], values(s, pod, rows), REFUSED)


def match_column(s: Session, pod: Pod, rows: Rows) -> BoolColumn:
    column = np.ones(len(rows), dtype=np.bool_)
    for plugin in s.policy.matches:
        column &= plugin.match(s, pod, rows)
    return column


def values(s: Session, pod: Pod, rows: Rows) -> FloatColumn:
    """Fit and score together. Both follow from the rows' own figures, so rows with hypothetical pods on them may be asked too."""
    fits = np.ones(len(rows), dtype=np.bool_)
    for fitter in s.policy.fits:
        fits &= fitter.fit(s, pod, rows)
    total = np.zeros(len(rows), dtype=np.float64)
    for scorer in s.policy.scores:
        total += scorer.weight * scorer.score(s, pod, rows)
    return np.where(fits, total, REFUSED)
