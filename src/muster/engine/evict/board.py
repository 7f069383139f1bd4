"""What making room for one pod costs on every node, all nodes at once, for asks of one cycle that look alike."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from muster.engine.evict.bundles import Bundles
from muster.engine.evict.seats import Ints, SeatTable
from muster.engine.session import Session
from muster.model.pod import Phase
from muster.model.topics import Topic
from muster.state.columns import Amounts
from muster.state.derived import Derived
from muster.state.table import BoolColumn, FloatColumn, RowIndex


@dataclass(slots=True)
class Board:
    """What making room on each node costs, for asks of one cycle that look alike. Only nodes on which something changed since the
    last ask are judged anew."""

    bundles: Bundles
    match: BoolColumn
    rank: Ints
    """Position of each unit in the order in which units go: the less important first."""
    breaks: BoolColumn
    """Units that are gangs of several members: these end."""
    followers: dict[int, list[int]]
    """Of a gang that goes whole, the units of its spare members: they go with it, and its figures contain theirs."""
    leader: Ints
    """Of each unit, the gang that it goes with in this way; its own number where there is none."""
    mixed: RowIndex
    """Nodes with both on them: there the figures would count somebody twice."""
    row: RowIndex
    """Entries: what one unit has on one node, nodes one after the other, and on each its units in order."""
    unit: Ints
    freed: Amounts
    whole: Amounts
    """Of each unit: what it frees in its queue, on all nodes together."""
    figures: tuple[tuple[np.ufunc, FloatColumn], ...]
    """Of each unit, what its victims add to the cost of a node, and how; in the order in which costs are compared."""
    cost: FloatColumn
    possible: BoolColumn
    plain: BoolColumn
    gone: BoolColumn
    position: int = -1
    lacks: list[int] | None = field(default=None)

    def units_on(self, row: int, b: Bundles) -> list[int]:
        begin, end = np.searchsorted(self.row, (row, row + 1))
        return [unit for unit in self.unit[begin:end].tolist() if not b.gone[unit]]

    def rows_of(self, b: Bundles, among: BoolColumn) -> list[int]:
        """Nodes with somebody who may go, of these."""
        rows: RowIndex = self.row[~b.gone[self.unit]]
        found: list[int] = np.unique(rows[among[rows]]).tolist()
        return found

    def judge(
        self, b: Bundles, lacking: Amounts, full: Amounts | None, *, plain: BoolColumn, position: int, changed: list[int] | None
    ) -> None:
        """Bring the costs up to date. `full`: what the queue lacks, which every node must free as well."""
        lacks = None if full is None else full.tolist()
        stale = self.plain != plain
        if self.position < 0 or changed is None or lacks != self.lacks:
            stale[:] = True
        else:
            stale[changed] = True
            stale[b.row[b.gone[b.unit] & ~self.gone[b.unit]]] = True
        self.plain, self.gone, self.position, self.lacks = plain, b.gone.copy(), position, lacks
        self.possible[stale] = False
        here = np.flatnonzero((stale & plain)[self.row] & ~b.gone[self.unit])
        if len(here):
            self._judge(here, lacking, full)

    def _judge(self, here: RowIndex, lacking: Amounts, full: Amounts | None) -> None:
        row, unit, freed = self.row[here], self.unit[here], self.freed[here]
        lacking = lacking[row]
        if full is not None:
            freed = np.hstack([freed, self.whole[unit]])
            lacking = np.hstack([lacking, np.broadcast_to(full, (len(row), len(full)))])
        begin = _begins(row)
        enough = np.asarray((_running(freed, begin) >= lacking).all(axis=1), dtype=np.bool_)
        end = _first_of_row(row, enough)
        if not len(end):
            return
        kept = _put_back(freed, begin[end], end, lacking[end])
        rows = row[end]
        self.possible[rows] = True
        for at, (combine, figure) in enumerate(self.figures):
            neutral = 0.0 if combine is np.add else -np.inf
            self.cost[at, rows] = np.round(_reduce(combine, np.where(kept, figure[unit], neutral), begin[end], end), 9)
        self.cost[-1, rows] *= -1.0

    def winner(self) -> int | None:
        """The cheapest node, ties by name."""
        rows = np.flatnonzero(self.possible)
        for figure in self.cost if len(rows) else ():
            mine = figure[rows]
            rows = rows[mine == mine.min()]
        return int(rows[0]) if len(rows) else None


@dataclass(slots=True)
class _Kept:
    """The board of the last ask of this cycle."""

    board: Board | None = None


_KEPT: Derived[_Kept] = Derived("board of nodes", Topic.CYCLE)


def board_for(s: Session, b: Bundles, seats: SeatTable, match: BoolColumn, asked: RowIndex) -> Board:
    """The board for these units and nodes: the one of an ask before that looked alike, or a new one."""
    kept = _KEPT.of(s.world, _Kept)
    if kept.board is not None and kept.board.bundles is b and np.array_equal(kept.board.match, match):
        return kept.board
    rank = np.empty(len(b), dtype=np.int64)
    rank[np.lexsort((np.arange(len(b)), ~b.unit_spare, seats.gang_priority[b.unit_gang]))] = np.arange(len(b))
    here = np.flatnonzero(b.local & match[b.row])
    here = here[np.lexsort((rank[b.unit[here]], b.row[here]))]
    row, unit, freed = _by_row_and_unit(b.row[here], b.unit[here], b.request[here][:, asked])
    whole = np.zeros((len(b), len(asked)), dtype=np.int64)
    np.add.at(whole, b.unit, b.request[:, asked])
    followers = _followers(s, b, seats)
    breaks = ~b.unit_spare & (np.bincount(b.unit, minlength=len(b)) > 1)
    breaks[list(followers)] = True
    leader = np.arange(len(b))
    for first, others in followers.items():
        leader[others] = first
    figures = _unit_figures(s, b, seats, breaks, followers)
    nodes = len(match)
    nothing = np.zeros(nodes, dtype=np.bool_)
    board = Board(
        b, match, rank, breaks, followers, leader, _mixed(row, unit, leader), row, unit, freed, whole, figures,
        cost=np.zeros((len(figures), nodes)), possible=nothing.copy(), plain=nothing, gone=b.gone.copy(),
    )  # fmt: skip
    kept.board = board
    return board


def _followers(s: Session, b: Bundles, seats: SeatTable) -> dict[int, list[int]]:
    """By unit that is a whole gang: the units of the same gang that can go alone as well. None where only what is here goes."""
    if s.policy.settings.whole_gang == "domain":
        return {}
    whole = ~b.unit_spare & ~seats.gang_single[b.unit_gang]
    leader = np.full(len(seats.gangs), -1, dtype=np.int64)
    leader[b.unit_gang[whole]] = np.flatnonzero(whole)
    found: dict[int, list[int]] = {}
    for unit in np.flatnonzero(b.unit_spare & (leader[b.unit_gang] >= 0)).tolist():
        found.setdefault(int(leader[b.unit_gang[unit]]), []).append(unit)
    return found


def _mixed(row: RowIndex, unit: Ints, leader: Ints) -> RowIndex:
    """Nodes with a gang and somebody who goes with it."""
    follows = np.flatnonzero(leader[unit] != unit)
    there = set(zip(row.tolist(), unit.tolist(), strict=True)) if len(follows) else set()
    pairs = zip(row[follows].tolist(), leader[unit[follows]].tolist(), strict=True)
    return np.array(sorted({at for at, first in pairs if (at, first) in there}), dtype=np.intp)


def _unit_figures(
    s: Session, b: Bundles, seats: SeatTable, breaks: BoolColumn, followers: dict[int, list[int]]
) -> tuple[tuple[np.ufunc, FloatColumn], ...]:
    units = len(b)
    bound = seats.phase[b.seat] == Phase.BOUND
    pods = np.bincount(b.unit[bound], minlength=units).astype(np.float64)
    hours = np.zeros(len(b.seat))
    for plugin in s.policy.losses:
        hours += plugin.lost_hours(s, seats, b.seat)
    youngest = np.full(units, -np.inf)
    np.maximum.at(youngest, b.unit[bound], seats.started[b.seat[bound]])
    lost = np.asarray(np.bincount(b.unit[bound], weights=hours[bound], minlength=units), dtype=np.float64)
    for unit, others in followers.items():
        pods[unit] += pods[others].sum()
        lost[unit] += lost[others].sum()
        youngest[unit] = max(youngest[unit], youngest[others].max())
    priority = seats.gang_priority[b.unit_gang].astype(np.float64)
    return (
        (np.add, breaks.astype(np.float64)),
        (np.maximum, np.where(pods > 0, priority, -np.inf)),
        (np.add, priority * pods),
        (np.add, pods),
        (np.add, lost),
        (np.maximum, youngest),
    )


def _by_row_and_unit(row: RowIndex, unit: Ints, request: Amounts) -> tuple[RowIndex, Ints, Amounts]:
    """Seats of one unit on one node as one entry. They stand next to each other already."""
    if not len(row):
        return row, unit, request
    at = np.flatnonzero(np.concatenate([[True], (row[1:] != row[:-1]) | (unit[1:] != unit[:-1])]))
    return row[at], unit[at], np.add.reduceat(request, at, axis=0)


def _begins(row: RowIndex) -> RowIndex:
    """For each entry, where the stretch of its node begins."""
    starts = np.concatenate([[True], row[1:] != row[:-1]])
    begins: RowIndex = np.maximum.accumulate(np.where(starts, np.arange(len(row)), 0))
    return begins


def _put_back(freed: Amounts, begin: RowIndex, end: RowIndex, lacking: Amounts) -> BoolColumn:
    """Which entries stay taken on each node: from the most important on, whoever is not needed goes back."""
    kept = np.zeros(len(freed), dtype=np.bool_)
    sums = np.cumsum(freed, axis=0)
    total = sums[end] - sums[begin] + freed[begin]
    for step in range(int((end - begin).max()) + 1):
        live = np.flatnonzero(end - step >= begin)
        at = end[live] - step
        without = total[live] - freed[at]
        spared = (without >= lacking[live]).all(axis=1)
        total[live[spared]] = without[spared]
        kept[at[~spared]] = True
    return kept


def _reduce(combine: np.ufunc, values: FloatColumn, begin: RowIndex, end: RowIndex) -> FloatColumn:
    """Combine the values from `begin` to `end`, both included, of each stretch."""
    padded = np.concatenate([values, [0.0]])
    bounds = np.column_stack([begin, end + 1]).ravel()
    reduced: FloatColumn = combine.reduceat(padded, bounds)[::2]
    return reduced


def _running(request: Amounts, begin: RowIndex) -> Amounts:
    """What all seats of a node up to each one add up to."""
    summed = np.cumsum(request, axis=0)
    running: Amounts = summed - summed[begin] + request[begin]
    return running


def _first_of_row(row: RowIndex, where: BoolColumn) -> RowIndex:
    found = np.flatnonzero(where)
    _, first = np.unique(row[found], return_index=True)
    return found[first]
