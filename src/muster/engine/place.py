"""Where members go: the one way to place, for every action.

Members are placed in the order given, each on the node with the best score, ties by name. Equal members in a row are placed
together: the outcome is the same as one by one, because a score depends on its own row alone, and a row can be asked what it
would say after one, two, three more of them. Members whose place depends on other pods (affinity, spread, devices) go one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.columns import REFUSED, values
from muster.engine.hooks import Domain
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.table import FloatColumn, RowIndex, Rows
from muster.state.trial import Trial
from muster.state.world import Member

# How many (node, further pods) pairs the plugins are asked about at once when equal pods are placed together.
_BATCH = 8192


@dataclass(frozen=True, slots=True)
class Placed:
    """How many were placed, and who was refused first."""

    count: int
    first_refused: Pod | None


def place(s: Session, trial: Trial, pods: Sequence[Pod], *, domain: Domain, phase: Phase) -> Placed:
    """Place as many of these as fit, in order; each is tried once."""
    soon = phase is Phase.NOMINATED
    count, first_refused = 0, None
    for run in _runs(s, pods):
        together = len(run) > 1 or not s.policy.entangles or not s.is_entangled(run[0])
        seated = (
            _place_equal(s, trial, run, domain, phase, soon=soon)
            if together
            else _place_one(s, trial, run[0], domain, phase, soon=soon)
        )
        count += seated
        if seated < len(run) and first_refused is None:
            first_refused = run[seated]
    return Placed(count, first_refused)


def fits_on(s: Session, pod: Pod, node: str, *, soon: bool) -> bool:
    """Would every check let the pod onto this node as the world stands?"""
    row = s.world.table.row.get(node)
    if row is None:
        return False
    rows = Rows(s.world.table, np.array([row], dtype=np.intp), soon=soon)
    checks = [plugin.match(s, pod, rows) for plugin in s.policy.matches]
    checks += [plugin.fit(s, pod, rows) for plugin in s.policy.fits]
    checks += [plugin.fit_among(s, pod, rows) for plugin in s.policy.entangles if plugin.entangled(s, pod)]
    return all(bool(column[0]) for column in checks)


def _runs(s: Session, pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
    """Stretches of interchangeable members: the same kind, role and queue, and nothing that entangles them with others."""
    start = 0
    members = s.world.members
    for end in range(1, len(pods) + 1):
        if end < len(pods) and _alike(s, pods[start], pods[end], members):
            continue
        yield pods[start:end]
        start = end


def _alike(s: Session, a: Pod, b: Pod, members: Mapping[str, Member]) -> bool:
    if a.kind is not b.kind and a.kind != b.kind:
        return False
    if members[a.uid] is not members[b.uid] and members[a.uid] != members[b.uid]:
        return False
    return not s.policy.entangles or not (s.is_entangled(a) or s.is_entangled(b))


def _place_one(s: Session, trial: Trial, pod: Pod, domain: Domain, phase: Phase, *, soon: bool) -> int:
    """A pod whose place depends on more than each row's figures."""
    value = _within(s.columns(pod, soon=soon).value, domain).copy()
    candidates = np.flatnonzero(value > REFUSED)
    rows = Rows(s.world.table, candidates, soon=soon)
    fits = np.ones(len(candidates), dtype=np.bool_)
    for plugin in s.policy.entangles:
        if plugin.entangled(s, pod):
            fits &= plugin.fit_among(s, pod, rows)
    if not fits.any():
        return 0
    total = value[candidates]
    for scorer in s.policy.scores_among:
        total += scorer.weight * scorer.score_among(s, pod, rows)
    best = int(np.argmax(np.where(fits, total, REFUSED)))
    trial.place(pod, s.world.table.names[candidates[best]], phase=phase)
    return 1


def _place_equal(s: Session, trial: Trial, pods: Sequence[Pod], domain: Domain, phase: Phase, *, soon: bool) -> int:
    value = _within(s.columns(pods[0], soon=soon).value, domain)
    if len(pods) == 1:
        row = int(np.argmax(value)) if len(value) else 0
        if not len(value) or value[row] == REFUSED:
            return 0
        trial.place(pods[0], s.world.table.names[row], phase=phase)
        return 1
    picked = _pick(s, pods[0], value, len(pods), soon=soon)
    if picked:
        names = s.world.table.names
        trial.place_many(pods[: len(picked)], [names[row] for row in picked], phase=phase)
    return len(picked)


def _within(value: FloatColumn, domain: Domain) -> FloatColumn:
    if domain.rows is None:
        return value
    inside = np.full(len(value), REFUSED)
    inside[domain.rows] = value[domain.rows]
    return inside


def _pick(s: Session, pod: Pod, value: FloatColumn, wanted: int, *, soon: bool) -> list[int]:
    """The rows that `wanted` equal pods take one after the other, best first, ties by row.

    A pod goes to the row whose next seat has the highest score. No row outside the `wanted` best can ever come first: one of those
    is always left untouched until the last pod.
    """
    rows = best_rows(value, wanted)
    seats = _Seats(s, pod, rows, wanted=wanted, soon=soon)
    heap = [(-float(value[row]), int(row)) for row in rows]
    heapq.heapify(heap)
    picked: list[int] = []
    while heap and len(picked) < wanted:
        row = heap[0][1]
        picked.append(row)
        following = seats.after_taking(row)
        if following == REFUSED:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-following, row))
    return picked


def best_rows(value: FloatColumn, wanted: int) -> RowIndex:
    """The rows with the highest values, at most `wanted`, equal ones in row order; refused rows never."""
    open_rows = np.flatnonzero(value > REFUSED)
    if len(open_rows) <= wanted:
        return open_rows
    least = np.partition(value[open_rows], len(open_rows) - wanted)[len(open_rows) - wanted]
    above = open_rows[value[open_rows] > least]
    level = open_rows[value[open_rows] == least]
    return np.sort(np.concatenate([above, level[: wanted - len(above)]]))


class _Seats:
    """The scores of further seats on rows, computed for many rows and seats at a time."""

    def __init__(self, s: Session, pod: Pod, rows: RowIndex, *, wanted: int, soon: bool) -> None:
        self._s, self._pod, self._soon = s, pod, soon
        self._request = s.world.request(pod)
        self._ahead: dict[int, list[float]] = {}
        self._taken: dict[int, int] = {}
        self._depth = max(1, min(64, 2 * -(-wanted // max(1, len(rows)))))
        self._queue = rows.tolist()
        self._next = 0

    def after_taking(self, row: int) -> float:
        """Take one seat on the row; the score of its next seat, or minus infinity."""
        taken = self._taken[row] = self._taken.get(row, 0) + 1
        ahead = self._ahead.get(row)
        if ahead is None:
            self._look_ahead(row)
            ahead = self._ahead[row]
        elif taken > len(ahead):
            ahead.extend(self._ask([row], start=len(ahead) + 1, depth=min(_BATCH, 4 * len(ahead)))[0])
        return ahead[taken - 1]

    def _look_ahead(self, row: int) -> None:
        """Ask about this row and, in the same breath, about others that were not asked about yet."""
        others = self._queue[self._next : self._next + max(1, _BATCH // self._depth)]
        self._next += len(others)
        asked = list(dict.fromkeys([row, *(other for other in others if other not in self._ahead)]))
        for each, scores in zip(asked, self._ask(asked, start=1, depth=self._depth), strict=True):
            self._ahead[each] = scores

    def _ask(self, rows: Sequence[int], *, start: int, depth: int) -> list[list[float]]:
        """For each row, the scores after `start`, `start` + 1, ... further pods."""
        index = np.repeat(np.array(rows, dtype=np.intp), depth)
        extra = np.tile(np.arange(start, start + depth, dtype=np.int64), len(rows))
        view = Rows(self._s.world.table, index, soon=self._soon, extra=extra, request=self._request)
        answer: list[list[float]] = values(self._s, self._pod, view).reshape(len(rows), depth).tolist()
        return answer
