"""The cheapest moves that make members fit, by amounts alone.

Few pods: all sets of at most `MAX_TRIED` of them are tried, the cheapest first, each with every way to put its pods elsewhere that
differs; so the first that fits is the best. Many pods: the nodes that are the cheapest to clear for one more member are cleared one
after the other, and what this moves beyond need stays.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from muster.engine.consolidate.movable_pods import GangPrice
from muster.engine.consolidate.move_packing import MemberKind, MovePacking
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

MAX_TRIED = 4
_MAX_SETS = 20_000
_MAX_ROWS = 128
"""Of more nodes not all ways are tried."""
_MAX_RESTARTS = 16
_MAX_IMPROVED = 64

MoveKey = tuple[float, int, int, tuple[int, ...]]
"""Price, gangs, pods, and which: the lower is better."""


@dataclass(frozen=True, slots=True)
class MoveProblem:
    """`free` by row, and columns over the pods that may be moved. `allowed` has the rows that each may be moved to."""

    free: Amounts
    members: Sequence[MemberKind]
    row: RowIndex
    request: Amounts
    price: FloatColumn
    gang: IntColumn
    gangs: Mapping[int, GangPrice]
    allowed: Sequence[BoolColumn]

    def key(self, pods: Sequence[int]) -> MoveKey:
        price, gangs = self.price_of(pods)
        return (price, gangs, len(pods), tuple(sorted(pods)))

    def price_of(self, pods: Sequence[int]) -> tuple[float, int]:
        """What the gangs of these pods lose together, and how many gangs these are."""
        by_gang: dict[int, list[int]] = {}
        for pod in pods:
            by_gang.setdefault(int(self.gang[pod]), []).append(pod)
        total = 0.0
        for gang, theirs in by_gang.items():
            known = self.gangs[gang]
            total += known.whole if len(theirs) > known.surplus else sum(float(self.price[pod]) for pod in theirs)
        return round(total, 9), len(by_gang)


@dataclass(frozen=True, slots=True)
class Moves:
    """Which pods go to which rows."""

    key: MoveKey
    targets: tuple[tuple[int, int], ...]


def cheapest_moves(problem: MoveProblem) -> Iterator[Moves]:
    """Ways to make all members fit, the cheapest first. Whether every check agrees is for the caller to see."""
    cleared = _Clearing(problem).moves()
    for tried in _by_trying(problem):
        if cleared is not None and cleared.key <= tried.key:
            yield cleared
            cleared = None
        yield tried
    if cleared is not None:
        yield cleared


# -- few pods: all sets ------------------------------------------------------------------------------------------------------------


def _by_trying(problem: MoveProblem) -> Iterator[Moves]:
    if len(problem.free) > _MAX_ROWS:
        return
    packing = MovePacking(problem.free, problem.members, problem.row, problem.request, problem.allowed)
    for key in sorted(problem.key(pods) for pods in _sets(_alike(problem))):
        targets = packing.targets(key[-1])
        if targets is not None:
            yield Moves(key, tuple(zip(key[-1], targets, strict=True)))
        if packing.is_exhausted:
            return


def _alike(problem: MoveProblem) -> list[list[int]]:
    """Pods that may be exchanged for each other: on one node, with the same request and price, of one gang or by themselves. The
    cheapest first, as far as all sets of them are few enough."""
    classes: dict[object, list[int]] = {}
    sizes = Counter(problem.gang.tolist())
    for pod in range(len(problem.row)):
        gang = int(problem.gang[pod])
        own = gang if sizes[gang] > 1 else -1
        key = (
            int(problem.row[pod]),
            problem.request[pod].tobytes(),
            float(problem.price[pod]),
            own,
            problem.allowed[pod].tobytes(),
        )
        classes.setdefault(key, []).append(pod)
    ordered = sorted(classes.values(), key=lambda pods: (problem.price_of(pods[:1]), pods[0]))
    most = 0
    while most < len(ordered) and _count_sets(most + 1) <= _MAX_SETS:
        most += 1
    return ordered[:most]


def _count_sets(classes: int) -> int:
    """How many sets there are of pods that are all different."""
    return sum(comb(classes, size) for size in range(1, MAX_TRIED + 1))


def _sets(classes: Sequence[Sequence[int]], size: int = MAX_TRIED) -> Iterator[tuple[int, ...]]:
    """Sets of at most `size` pods; of those that are alike the first ones."""
    for at, pods in enumerate(classes):
        for count in range(1, min(size, len(pods)) + 1):
            chosen = tuple(pods[:count])
            yield chosen
            if count < size:
                yield from ((*chosen, *more) for more in _sets(classes[at + 1 :], size - count))


# -- many pods: node by node -------------------------------------------------------------------------------------------------------


class _Clearing:
    """Members that differ count with the most that any of them requests."""

    def __init__(self, problem: MoveProblem) -> None:
        self._p = problem
        self._request = np.max([kind.request for kind in problem.members], axis=0)
        self._asked = np.flatnonzero(self._request > 0)
        self._rows = np.logical_and.reduce([kind.rows for kind in problem.members])
        self._need = sum(kind.count for kind in problem.members)
        self._banned: set[int] = set()

    def moves(self) -> Moves | None:
        for _ in range(_MAX_RESTARTS):
            chosen = self._choose()
            if not chosen:
                return None
            targets, stuck = self._put_elsewhere(chosen)
            if targets is not None:
                return self._improved(targets)
            self._banned.add(stuck)
        return None

    def _slots(self, free: Amounts) -> IntColumn:
        found: IntColumn = np.maximum((free[:, self._asked] // self._request[self._asked]).min(axis=1), 0)
        return found

    def _choose(self) -> list[int]:
        """The pods of the nodes that are the cheapest to clear, node by node, until all members would fit."""
        slots = self._slots(self._p.free) * self._rows
        missing = self._need - int(slots.sum())
        if missing <= 0:
            return []
        chosen: list[int] = []
        here = self._by_row()
        heap = [entry for row, pods in here.items() if (entry := self._next(row, pods, chosen))]
        heapq.heapify(heap)
        while missing > 0 and heap:
            _, _, row, pods, gain = heapq.heappop(heap)
            chosen.extend(pods)
            missing -= gain
            if entry := self._next(row, here[row], chosen):
                heapq.heappush(heap, entry)
        return chosen if missing <= 0 else []

    def _by_row(self) -> dict[int, list[int]]:
        """The pods of each row, those first that free most for their price."""
        size = (self._p.request[:, self._asked] / self._request[self._asked]).max(axis=1, initial=0.0)
        price = np.array([self._p.price_of([pod])[0] for pod in range(len(size))])
        order = np.lexsort((np.arange(len(size)), price / np.maximum(size, 1e-9), self._p.row))
        found: dict[int, list[int]] = {}
        for pod in order[(size[order] > 0) & self._rows[self._p.row[order]]].tolist():
            if pod not in self._banned:
                found.setdefault(int(self._p.row[pod]), []).append(pod)
        return found

    def _next(self, row: int, pods: Sequence[int], chosen: Sequence[int]) -> tuple[float, int, int, tuple[int, ...], int] | None:
        """The cheapest more pods of the row that make at least one more member fit: price for each, how many, row, pods, gain."""
        free = self._p.free[row] + self._p.request[[pod for pod in chosen if self._p.row[pod] == row]].sum(axis=0)
        left = [pod for pod in pods if pod not in chosen]
        fits = self._fits(free)
        taken: list[int] = []
        for pod in left:
            taken.append(pod)
            if self._fits(free + self._p.request[taken].sum(axis=0)) > fits:
                break
        else:
            return None
        for pod in sorted(taken, key=lambda each: -self._p.price[each]):
            rest = [each for each in taken if each != pod]
            if rest and self._fits(free + self._p.request[rest].sum(axis=0)) > fits:
                taken = rest
        gain = self._fits(free + self._p.request[taken].sum(axis=0)) - fits
        more = self._p.price_of([*chosen, *taken])[0] - (self._p.price_of(chosen)[0] if chosen else 0.0)
        return round(more / gain, 9), len(taken), row, tuple(taken), gain

    def _fits(self, free: Amounts) -> int:
        return int((free[self._asked] // self._request[self._asked]).min())

    def _put_elsewhere(self, chosen: Sequence[int]) -> tuple[list[tuple[int, int]] | None, int]:
        """A row for each, the largest first: where it costs the fewest places for members and leaves least. Or who is stuck."""
        p = self._p
        free = p.free.copy()
        np.add.at(free, p.row[list(chosen)], p.request[list(chosen)])
        slots = self._slots(free) * self._rows
        spare = int(slots.sum()) - self._need
        scale = np.maximum(p.free.max(axis=0), 1)
        size = (p.request / scale).sum(axis=1)
        targets: list[tuple[int, int]] = []
        for pod in sorted(chosen, key=lambda each: (-size[each], each)):
            left = free - p.request[pod]
            rows = np.flatnonzero(p.allowed[pod] & (left >= 0).all(axis=1) & (np.arange(len(free)) != p.row[pod]))
            lost = (slots[rows] - self._slots(left[rows])) * self._rows[rows]
            rows, lost = rows[lost <= spare], lost[lost <= spare]
            if not len(rows):
                return None, pod
            best = int(np.lexsort((rows, (left[rows] / scale).sum(axis=1), lost))[0])
            row = int(rows[best])
            free[row] = left[row]
            slots[row] -= lost[best]
            spare -= int(lost[best])
            targets.append((pod, row))
        return targets, -1

    def _improved(self, targets: list[tuple[int, int]]) -> Moves:
        """Without those whose move the others can do without, the costliest first."""
        pods = [pod for pod, _ in targets]
        for pod in sorted(pods, key=lambda each: (-self._p.price[each], each)) if len(pods) <= _MAX_IMPROVED else ():
            rest = [each for each in pods if each != pod]
            if rest and self._is_enough(rest) and self._p.key(rest) < self._p.key(pods):
                found, _ = self._put_elsewhere(rest)
                if found is not None:
                    pods, targets = rest, found
        return Moves(self._p.key(pods), tuple(sorted(targets)))

    def _is_enough(self, pods: list[int]) -> bool:
        free = self._p.free.copy()
        np.add.at(free, self._p.row[pods], self._p.request[pods])
        return bool((self._slots(free) * self._rows).sum() >= self._need)
