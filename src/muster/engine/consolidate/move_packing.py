"""Whether pods can be put elsewhere so that all members fit: every way that differs is tried, on plain integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.state.node_table import BoolColumn, RowIndex
from muster.state.resource_columns import Amounts

_MAX_STEPS = 30_000
"""For all sets of one search together."""

_Free = dict[int, list[int]]
"""What is free on rows where it is not what was free before."""


@dataclass(frozen=True, slots=True)
class MemberKind:
    """Equal members that need nodes: what each requests, how many there are, and which rows they may use."""

    request: Amounts
    count: int
    rows: BoolColumn


class MovePacking:
    def __init__(
        self, free: Amounts, members: Sequence[MemberKind], row: RowIndex, request: Amounts, allowed: Sequence[BoolColumn]
    ) -> None:
        used = np.flatnonzero((request > 0).any(axis=0) | np.any([kind.request > 0 for kind in members], axis=0))
        self._free: list[list[int]] = free[:, used].tolist()
        # The kind of which there are most comes last: its members are counted and not tried one by one.
        ordered = sorted(members, key=lambda kind: kind.count)
        self._members = [(kind.request[used].tolist(), kind.count, kind.rows.tolist()) for kind in ordered]
        self._row, self._request = row.tolist(), request[:, used].tolist()
        self._allowed = [np.flatnonzero(rows).tolist() for rows in allowed]
        scale = np.maximum(free[:, used].max(axis=0), 1)
        self._size = (request[:, used] / scale).sum(axis=1).tolist()
        self._kind = _kinds_of_rows([*(kind.rows for kind in members), *allowed])
        self._counted = [self._fits(free_here, at) for at, free_here in enumerate(self._free)] if len(self._members) == 1 else []
        self._total = sum(self._counted)
        self._left = _MAX_STEPS

    @property
    def is_exhausted(self) -> bool:
        return self._left <= 0

    def targets(self, pods: Sequence[int]) -> list[int] | None:
        """A row for each of these pods, so that all members fit then; None where there is none."""
        free: _Free = {}
        for pod in pods:
            _add(self._at(free, self._row[pod]), self._request[pod], free, self._row[pod])
        if not self._may_fit(free):
            return None
        order = sorted(pods, key=lambda pod: (-self._size[pod], pod))
        found: dict[int, int] = {}
        return [found[pod] for pod in pods] if self._place(order, 0, free, found) else None

    def _place(self, order: Sequence[int], at: int, free: _Free, found: dict[int, int]) -> bool:
        if at == len(order):
            return len(self._members) == 1 or self._members_fit(0, self._members[0][1], 0, free)
        pod = order[at]
        for row in self._rows_for(pod, free):
            self._left -= 1
            if self._left <= 0:
                return False
            before = self._at(free, row)
            free[row] = [have - want for have, want in zip(before, self._request[pod], strict=True)]
            found[pod] = row
            if self._may_fit(free) and self._place(order, at + 1, free, found):
                return True
            free[row] = before
        return False

    def _rows_for(self, pod: int, free: _Free) -> list[int]:
        """The rows that take it, one of those that are alike: where it leaves least first."""
        request, own = self._request[pod], self._row[pod]
        different: dict[tuple[int, tuple[int, ...]], int] = {}
        for row in self._allowed[pod]:
            here = self._at(free, row)
            if row != own and all(have >= want for have, want in zip(here, request, strict=True)):
                different.setdefault((self._kind[row], tuple(here)), row)
        return [row for _, row in sorted(different.items(), key=lambda each: (self._is_wanted(each[1]), sum(each[0][1]), each[1]))]

    def _is_wanted(self, row: int) -> bool:
        return any(rows[row] for _, _, rows in self._members)

    def _may_fit(self, free: _Free) -> bool:
        """Of equal members: do they all fit? Of others nothing is known before they are placed."""
        if len(self._members) > 1:
            return True
        changed = sum(self._fits(here, row) - self._counted[row] for row, here in free.items())
        return self._total + changed >= self._members[0][1]

    def _fits(self, here: Sequence[int], row: int, kind: int = 0) -> int:
        request, count, rows = self._members[kind]
        if not rows[row]:
            return 0
        return max(0, min((have // want for have, want in zip(here, request, strict=True) if want), default=count))

    def _members_fit(self, kind: int, count: int, first: int, free: _Free) -> bool:
        """So many members of this kind, on rows from `first` on, and all of the kinds after it."""
        if kind == len(self._members) - 1:
            return sum(self._fits(self._at(free, row), row, kind) for row in range(len(self._free))) >= count
        if not count:
            return self._members_fit(kind + 1, self._members[kind + 1][1], 0, free)
        request = self._members[kind][0]
        tried: set[tuple[int, tuple[int, ...]]] = set()
        for row in range(first, len(self._free)):
            before = self._at(free, row)
            alike = (self._kind[row], tuple(before))
            if alike in tried or self._fits(before, row, kind) <= 0:
                continue
            tried.add(alike)
            self._left -= 1
            if self._left <= 0:
                return False
            free[row] = [have - want for have, want in zip(before, request, strict=True)]
            done = self._members_fit(kind, count - 1, row, free)
            free[row] = before
            if done:
                return True
        return False

    def _at(self, free: _Free, row: int) -> list[int]:
        here = free.get(row)
        return self._free[row] if here is None else here


def _add(here: Sequence[int], request: Sequence[int], free: _Free, row: int) -> None:
    free[row] = [have + more for have, more in zip(here, request, strict=True)]


def _kinds_of_rows(masks: Sequence[BoolColumn]) -> list[int]:
    """A number for each row: equal where all of these agree."""
    kinds: dict[bytes, int] = {}
    stacked = np.ascontiguousarray(np.stack(masks, axis=1))
    return [kinds.setdefault(row.tobytes(), len(kinds)) for row in stacked]
