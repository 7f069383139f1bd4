"""Usage by queue: one set of amounts, changed when a pod moves and never otherwise.

used = reserved + binding + bound + terminating; planned = used - terminating + nominated; requested = all live pods of the
queue, placed or not. Each is kept for preemptible and non-preemptible pods apart, and rolled up the tree: a queue's amounts include
those of its children. A pod that is overdue is in none of them but requested.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from muster.model.pod import Phase
from muster.model.queue import ROOT_QUEUE
from muster.model.topics import Topic
from muster.state.changes import Changes
from muster.state.queue_tree import path_up
from muster.state.resource_columns import Amounts, Columns, widened

LedgerRows = npt.NDArray[np.intp]

# What is kept: each amount for all pods, and some of them for the non-preemptible ones alone. The others follow from these.
_PLANNED, _USED, _RELEASING, _REQUESTED, _NON_PREEMPTIBLE_PLANNED, _NON_PREEMPTIBLE_USED, _NON_PREEMPTIBLE_REQUESTED = range(7)

_ALL: dict[Phase, tuple[int, ...]] = {
    Phase.PENDING: (),
    Phase.NOMINATED: (_PLANNED,),
    Phase.RESERVED: (_PLANNED, _USED),
    Phase.BINDING: (_PLANNED, _USED),
    Phase.BOUND: (_PLANNED, _USED),
    Phase.TERMINATING: (_USED, _RELEASING),
    Phase.OVERDUE: (),
    Phase.MOVING: (_PLANNED,),
}
_NON_PREEMPTIBLE = {_PLANNED: _NON_PREEMPTIBLE_PLANNED, _USED: _NON_PREEMPTIBLE_USED, _REQUESTED: _NON_PREEMPTIBLE_REQUESTED}


def _planes(amounts: tuple[int, ...], *, preemptible: bool) -> LedgerRows:
    non_preemptible = () if preemptible else tuple(_NON_PREEMPTIBLE[amount] for amount in amounts if amount in _NON_PREEMPTIBLE)
    return np.array([[amount] for amount in (*amounts, *non_preemptible)], dtype=np.intp).reshape(-1, 1)


_CHARGED = {(phase, part): _planes(amounts, preemptible=part) for phase, amounts in _ALL.items() for part in (True, False)}


_ASKED = {part: _planes((_REQUESTED,), preemptible=part) for part in (True, False)}


class Ledger:
    def __init__(self, columns: Columns, changes: Changes) -> None:
        self._columns = columns
        self._changes = changes
        self._log = changes.ledger
        columns.on_widen(self._widen)
        self.lay_out({})

    def lay_out(self, parents: Mapping[str, str]) -> None:
        """A row for each queue and for the root, all amounts zero. `parents` maps a queue to its parent, or to the empty text.

        The caller charges every pod again afterwards: a queue that moved takes its usage along.
        """
        self.parents = dict(parents)
        self.names = [ROOT_QUEUE, *sorted(parents)]
        self.row = {key: row for row, key in enumerate(self.names)}
        self._path = {key: (*path_up(key, self.parents), ROOT_QUEUE) for key in parents} | {ROOT_QUEUE: (ROOT_QUEUE,)}
        self._moved: dict[tuple[str, Phase, Phase, bool], tuple[list[Amounts], list[Amounts]]] = {}
        self._rows = {key: np.array([self.row[k] for k in path], dtype=np.intp) for key, path in self._path.items()}
        self._below_root = {key: rows[:-1] for key, rows in self._rows.items()}
        self._amounts: Amounts = np.zeros((7, len(self.names), len(self._columns.names)), dtype=np.int64)
        self._laid_out()

    def __contains__(self, queue: str) -> bool:
        return queue in self.row

    def __len__(self) -> int:
        return len(self.names)

    # -- changing: only as pods move, join and leave --------------------------------------------------------------------------

    def charge(self, queue: str, amounts: Amounts, *, phase: Phase, preemptible: bool, count: int) -> None:
        """Count `count` equal pods in (or out, when negative) in the phase given, in the queue and all above it."""
        charged = _CHARGED[phase, preemptible]
        if len(charged):
            self._amounts[charged, self._rows[queue]] += count * amounts
            self._log.add(queue)

    def change_phase(self, queue: str, amounts: Amounts, *, before: Phase, now: Phase, preemptible: bool) -> None:
        """Count one pod in another phase than before."""
        key = (queue, before, now, preemptible)
        more, less = self._moved.get(key) or self._rows_moved(key)
        for row in more:
            row += amounts
        for row in less:
            row -= amounts
        if more or less:
            self._log.add(queue)

    def _rows_moved(self, key: tuple[str, Phase, Phase, bool]) -> tuple[list[Amounts], list[Amounts]]:
        """The rows that grow, and those that shrink, when a pod of the queue changes from one phase to another."""
        queue, before, now, preemptible = key
        left, joined = (set(_CHARGED[phase, preemptible].ravel().tolist()) for phase in (before, now))
        more, less = (
            [self._amounts[plane, row] for plane in sorted(planes) for row in self._rows[queue].tolist()]
            for planes in (joined - left, left - joined)
        )
        self._moved[key] = (more, less)
        return more, less

    def request(self, queue: str, amounts: Amounts, *, preemptible: bool, count: int) -> None:
        self._amounts[_ASKED[preemptible], self._rows[queue]] += count * amounts
        self._log.add(queue)

    # -- looking at one queue --------------------------------------------------------------------------------------------------

    def used(self, queue: str) -> Amounts:
        return self._of(queue, _USED)

    def planned(self, queue: str) -> Amounts:
        """used - releasing + nominated: what everything but a bind is compared with."""
        return self._of(queue, _PLANNED)

    def planned_list(self, queue: str) -> list[int]:
        """The same as plain integers."""
        planned: list[int] = self._amounts[_PLANNED, self.row[queue]].tolist()
        return planned

    def releasing(self, queue: str) -> Amounts:
        return self._of(queue, _RELEASING)

    def nominated(self, queue: str) -> Amounts:
        nominated: Amounts = self.planned(queue) - self.used(queue) + self.releasing(queue)
        return nominated

    def requested(self, queue: str) -> Amounts:
        return self._of(queue, _REQUESTED)

    def used_part(self, queue: str, *, preemptible: bool) -> Amounts:
        return self._part(queue, _USED, preemptible=preemptible)

    def planned_part(self, queue: str, *, preemptible: bool) -> Amounts:
        return self._part(queue, _PLANNED, preemptible=preemptible)

    def requested_part(self, queue: str, *, preemptible: bool) -> Amounts:
        return self._part(queue, _REQUESTED, preemptible=preemptible)

    def has_non_preemptible(self, queue: str) -> bool:
        """Does anybody who is not preemptible live in this queue or below it?"""
        return bool(np.count_nonzero(self._amounts[_NON_PREEMPTIBLE_REQUESTED, self.row[queue]]))

    def _of(self, queue: str, amount: int) -> Amounts:
        amounts: Amounts = self._amounts[amount, self.row[queue]].copy()
        return amounts

    def _part(self, queue: str, amount: int, *, preemptible: bool) -> Amounts:
        non_preemptible = self._of(queue, _NON_PREEMPTIBLE[amount])
        return self._of(queue, amount) - non_preemptible if preemptible else non_preemptible

    # -- looking at several ----------------------------------------------------------------------------------------------------

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue, its parent, and so on up to the root."""
        return self._path[queue]

    def rows_up(self, queue: str) -> LedgerRows:
        """Rows of the queue, its parent, and so on; the root is left out."""
        return self._below_root[queue]

    def used_in(self, rows: LedgerRows) -> Amounts:
        used: Amounts = self._amounts[_USED].take(rows, axis=0)
        return used

    def planned_in(self, rows: LedgerRows) -> Amounts:
        planned: Amounts = self._amounts[_PLANNED].take(rows, axis=0)
        return planned

    def peak_in(self, rows: LedgerRows) -> Amounts:
        """The larger of used and planned: what one more bind has to fit beside."""
        peak: Amounts = np.maximum(self.planned_in(rows), self.used_in(rows))
        return peak

    def requested_in(self, rows: LedgerRows | None = None) -> Amounts:
        amount = self._amounts[_REQUESTED]
        requested: Amounts = amount.copy() if rows is None else amount.take(rows, axis=0)
        return requested

    def _widen(self, width: int) -> None:
        self._amounts = widened(self._amounts, width)
        self._moved = {}
        self._laid_out()

    def _laid_out(self) -> None:
        """Rows or columns are others now."""
        self._changes.bump(Topic.LEDGER_LAYOUT)
        self._log.drop()
