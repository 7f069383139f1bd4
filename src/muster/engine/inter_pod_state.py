"""How a check over other pods keeps up while equal pods get their nodes one after the other, before any of them is moved."""

from __future__ import annotations

from muster.state.node_table import BoolColumn, FloatColumn, RowIndex


class InterPodState:
    """What one plugin says of the next of several equal pods. It starts from the world as it stands; `add_pod` tells it where the
    last one went. Moving the pods for real and asking again would give the same answers."""

    def feasible_rows(self) -> BoolColumn | None:
        """All rows: where the next one may be placed. None: anywhere."""

    def score(self, rows: RowIndex) -> FloatColumn | None:
        """The score of the next one on each of these rows, 0 to 1. None: no opinion."""

    def add_pod(self, row: int) -> None:
        """One more was placed on this row."""
