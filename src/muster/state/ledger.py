"""Usage by queue: one set of figures, changed when a pod moves and never otherwise.

used = held + binding + bound + leaving; promised = nominated; requested = all that live in the queue, placed or not. Each is kept
for preemptible and non-preemptible pods apart, and rolled up the tree: a queue's figures include those of its children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from muster.model.pod import Phase
from muster.model.queue import ROOT_QUEUE
from muster.state.columns import Amounts, Columns, widened

USED, LEAVING, PROMISED, REQUESTED = range(4)
PREEMPTIBLE, NON_PREEMPTIBLE = range(2)

_FIGURES: dict[Phase, tuple[int, ...]] = {
    Phase.PENDING: (),
    Phase.NOMINATED: (PROMISED,),
    Phase.HELD: (USED,),
    Phase.BINDING: (USED,),
    Phase.BOUND: (USED,),
    Phase.LEAVING: (USED, LEAVING),
    Phase.OVERDUE: (),
}


class Ledger:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._row: dict[str, int] = {ROOT_QUEUE: 0}
        self._path: dict[str, npt.NDArray[np.intp]] = {ROOT_QUEUE: np.zeros(1, dtype=np.intp)}
        self._figures: Amounts = np.zeros((1, 4, 2, len(columns.names)), dtype=np.int64)
        columns.on_widen(self._widen)

    def lay_out(self, parents: Mapping[str, str]) -> None:
        """A row for each queue and for the root, all figures zero. `parents` maps a queue to its parent, or to the empty text.

        The caller charges every pod again afterwards: a queue that moved takes its usage along.
        """
        keys = sorted(key for key in parents if key != ROOT_QUEUE)
        self._row = {key: row for row, key in enumerate([ROOT_QUEUE, *keys])}
        self._path = {key: np.array(self._rows_up(key, parents), dtype=np.intp) for key in self._row}
        self._figures = np.zeros((len(self._row), 4, 2, len(self._columns.names)), dtype=np.int64)

    def _rows_up(self, key: str, parents: Mapping[str, str]) -> list[int]:
        rows: list[int] = []
        while key and key != ROOT_QUEUE and self._row[key] not in rows:
            rows.append(self._row[key])
            key = parents.get(key, "")
        return [*rows, 0]

    def __contains__(self, queue: str) -> bool:
        return queue in self._row

    def queues(self) -> Iterable[str]:
        return self._row.keys()

    def charge(self, queue: str, amounts: Amounts, *, phase: Phase, preemptible: bool, count: int) -> None:
        """Count `count` equal pods in (or out, when negative) in the phase given, in the queue and all above it."""
        for figure in _FIGURES[phase]:
            self._figures[self._path[queue], figure, 0 if preemptible else 1] += count * amounts

    def request(self, queue: str, amounts: Amounts, *, preemptible: bool, count: int) -> None:
        self._figures[self._path[queue], REQUESTED, 0 if preemptible else 1] += count * amounts

    def used(self, queue: str) -> Amounts:
        return self._sum(queue, USED)

    def leaving(self, queue: str) -> Amounts:
        return self._sum(queue, LEAVING)

    def promised(self, queue: str) -> Amounts:
        return self._sum(queue, PROMISED)

    def requested(self, queue: str) -> Amounts:
        return self._sum(queue, REQUESTED)

    def taken(self, queue: str) -> Amounts:
        """used - leaving + promised: what everything but a bind looks at."""
        figures = self._figures[self._row[queue]]
        taken: Amounts = figures[USED].sum(axis=0) - figures[LEAVING].sum(axis=0) + figures[PROMISED].sum(axis=0)
        return taken

    def part(self, queue: str, figure: int, *, preemptible: bool) -> Amounts:
        part: Amounts = self._figures[self._row[queue], figure, 0 if preemptible else 1]
        return part

    def path(self, queue: str) -> list[str]:
        """The queue, its parent, and so on up to the root."""
        names = list(self._row)
        return [names[row] for row in self._path[queue]]

    def _sum(self, queue: str, figure: int) -> Amounts:
        total: Amounts = self._figures[self._row[queue], figure].sum(axis=0)
        return total

    def _widen(self, width: int) -> None:
        self._figures = widened(self._figures, width)
