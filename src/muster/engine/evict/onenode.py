"""Room for one pod: every node that eviction could make fit is looked at, and the one where it costs least is taken.

On a node units go in order (whose budget allows it first, then the less important) until the pod passes all checks; then whoever is
not needed is put back, the most important first. Where room is all that matters nodes are judged all at once, on a board that is
kept for the asks of a cycle that look alike; elsewhere one by one, in trials.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from muster.engine import quota
from muster.engine.evict.bundles import Bundles, bundles
from muster.engine.evict.policy import EvictionPolicy, may_take
from muster.engine.evict.search import NoPlan, Plan, barred_until
from muster.engine.evict.seats import Ints, SeatTable, seat_table
from muster.engine.hooks import Ask, Comparable, Domain, Purpose
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase, Placement, Pod
from muster.state.columns import Amounts
from muster.state.table import BoolColumn, FloatColumn, RowIndex, Rows
from muster.state.trial import Trial

Cost = tuple[Comparable, ...]
_Taken = dict[int, list[tuple[Pod, Placement]]]
"""Units that were told to go, and where their pods stood."""


def plan_on_one_node(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> Plan | NoPlan:
    """The cheapest node for the one pod that asks, and who leaves it; or why there is none. The world is as before."""
    search = _OneNode(s, ask, policy, domain)
    if not search.bundles.any_left:
        return NoPlan(*barred_until(s, search.bundles, policy))
    best = search.best()
    if best is None:
        at = search.bundles.free_at if search.bundles.free_at < np.inf else None
        return NoPlan(search.refusal or "no node has room for it even if everybody left whom it may evict", at)
    return best


class _OneNode:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> None:
        self.s, self.ask, self.policy = s, ask, policy
        self.pod: Pod = ask.pods[0]
        self.seats: SeatTable = seat_table(s.world)
        self.request: Amounts = s.world.request(self.pod)
        self.asked = np.flatnonzero(self.request)
        self.bundles: Bundles = bundles(s, ask, policy, self.seats, domain, self.request)
        self.refusal = ""
        match: BoolColumn = s.columns(self.pod, soon=True).match & domain.mask(len(s.world.table))
        self.board = _board(s, self.bundles, self.seats, match, self.asked)
        self._nominating = replace(ask, purpose=Purpose.NOMINATE)
        self._queue_full: Verdict | None = None if (verdict := s.admit(self._nominating)).ok else verdict
        self._only_room = s.minds_room_only(self.pod)
        self._entangled = not self._only_room and s.is_entangled(self.pod)
        self._violates, self._guarded = self._budgets()
        self._claims = self._claims_by_row()

    def _budgets(self) -> tuple[BoolColumn, BoolColumn]:
        """Units whose going would break a disruption budget, as the budgets stand now; and those that are on a node on which more
        could go than a budget allows: those nodes are simulated one by one."""
        b = self.bundles
        violates, guarded = np.zeros(len(b), dtype=np.bool_), np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.budgets:
            violates |= plugin.violates(self.s, self.seats, b.seat, b.unit, len(b))
            guarded |= plugin.guards(self.s, self.seats, b.seat, b.unit, len(b))
        return violates, guarded

    def _claims_by_row(self) -> dict[int, list[Pod]]:
        """Who was promised room on each node; asked for only where other pods can be what the pod needs."""
        if not self._entangled:
            return {}
        seats, found = self.seats, dict[int, list[Pod]]()
        used = len(seats.pods)
        for at in np.flatnonzero(seats.alive[:used] & (seats.phase[:used] == Phase.NOMINATED)).tolist():
            found.setdefault(int(seats.row[at]), []).append(seats.pods[at])
        return found

    # -- which node --------------------------------------------------------------------------------------------------------------

    def best(self) -> Plan | None:
        """The cheapest node, ties by name."""
        rows, winner = self._candidates()
        found = self._cheapest([*rows, *([] if winner is None else [winner])])
        if found is None and winner is not None:
            # A queue refused what the figures allowed.
            found = self._cheapest(self.board.rows_of(self.bundles, self._rows_with_enough()))
        return found

    def _cheapest(self, rows: list[int]) -> Plan | None:
        found: tuple[Cost, str, Plan] | None = None
        for row in rows:
            plan = self._simulate(row)
            if plan is None:
                continue
            node = self.s.world.table.names[row]
            cost = self._cost(node, plan)
            if found is None or (cost, node) < (found[0], found[1]):
                found = (cost, node, plan)
        return found[2] if found is not None else None

    def _candidates(self) -> tuple[list[int], int | None]:
        """Nodes that have to be simulated one by one; and of those that can be judged all at once the winner."""
        b, board, table = self.bundles, self.board, self.s.world.table
        if not self._only_room or self.s.policy.costs_nodes or not (full := self._queue_lacks()).known:
            return board.rows_of(b, self._rows_with_enough()), None
        plain = np.ones(len(table), dtype=np.bool_)
        plain[b.row[self._guarded[b.unit]]] = False
        plain[board.mixed] = False
        lacking = self.request[self.asked] - (table.allocatable - table.taken)[:, self.asked]
        board.judge(b, lacking, full.amounts, plain=plain, position=table.position, changed=table.changed_since(board.position))
        return board.rows_of(b, ~plain & self._rows_with_enough()), board.winner()

    def _rows_with_enough(self) -> BoolColumn:
        """Nodes on which the figures would be right if everybody went who may go. Fewer are worth a trial."""
        b, table = self.bundles, self.s.world.table
        free = (table.allocatable - table.taken)[:, self.asked]
        here = b.local & ~b.gone[b.unit]
        for at, column in enumerate(self.asked.tolist()):
            free[:, at] += np.bincount(b.row[here], weights=b.request[here, column], minlength=len(free)).astype(np.int64)
        return np.asarray((free >= self.request[self.asked]).all(axis=1), dtype=np.bool_)

    def _queue_lacks(self) -> _Lacks:
        """What must become free in the pod's own queue. Not known as figures where a unit may be charged to several queues."""
        if self._queue_full is None:
            return _Lacks(None)
        if self.seats.mixed or len({role.queue for role in self.ask.gang.roles}) > 1:
            return _Lacks(None, known=False)
        world = self.s.world
        rows = world.ledger.rows_up(world.members[self.pod.uid].queue)
        most = quota.limits(world).rows.take(rows, axis=0)[:, self.asked]
        lacks = (world.ledger.taken_in(rows)[:, self.asked] + self.request[self.asked] - most).max(axis=0)
        return _Lacks(np.asarray(lacks, dtype=np.int64))

    # -- one node ----------------------------------------------------------------------------------------------------------------

    def _simulate(self, row: int) -> Plan | None:
        """Who must leave this node so that the pod passes every check on it; None if that does not help."""
        rank = self.board.rank
        units = sorted(self.board.units_on(row, self.bundles), key=lambda u: (bool(self._violates[u]), int(rank[u])))
        with self.s.trial("simulated", cause="Simulated") as trial:
            taken: _Taken = {}
            fits = self._fits(row)
            for unit in units:
                if fits:
                    break
                if (gone := self._take(trial, unit)) is not None:
                    taken[unit] = gone
                    fits = self._fits(row)
            if not fits and not self._entangled:
                return None
            # Where other pods can be what the pod needs, one of those who went may have to come back before it passes at all; and
            # once that one is back, others may follow who could not before.
            while self._put_back(trial, row, taken):
                fits = True
                if not self._entangled:
                    break
            if fits and self._end_gangs(trial, taken) and self._entangled:
                fits = self._fits(row)
            return self._plan(row, taken) if fits else None

    def _put_back(self, trial: Trial, row: int, taken: _Taken) -> bool:
        """Whoever is not needed goes back, the most important and those whose budget is broken first. Did anybody?"""
        back = False
        for unit in sorted(taken, key=lambda u: (not self._violates[u], -int(self.board.rank[u]))):
            mark = trial.mark()
            for pod, placement in taken[unit]:
                trial.restore(pod, placement)
            if self._fits(row):
                back = True
                del taken[unit]
            else:
                trial.undo_to(mark)
        return back

    def _end_gangs(self, trial: Trial, taken: _Taken) -> bool:
        """A gang that goes whole leaves nobody behind: its spare members and its claims go with it. Was there anybody?"""
        followers = [other for unit in taken for other in self.board.followers.get(unit, ()) if other not in taken]
        for unit in followers:
            if not self.bundles.gone[unit] and (gone := self._take(trial, unit)) is not None:
                taken[unit] = gone
        return bool(followers)

    def _take(self, trial: Trial, unit: int) -> list[tuple[Pod, Placement]] | None:
        pods = [self.seats.pods[at] for at in self.bundles.seats_of(unit, self.seats)]
        verdict = may_take(self.s, self.ask, self.policy, pods)
        if not verdict.ok:
            self.refusal = self.refusal or verdict.why
            return None
        before = [(pod, self.s.world.placement(pod)) for pod in pods]
        for pod, placement in before:
            if placement.phase is Phase.BOUND:
                trial.evict(pod)
            else:
                trial.release(pod)
        return before

    def _fits(self, row: int) -> bool:
        """With those who were promised room there and need not yield, which the figures contain; and again without them, because
        they may never come."""
        table = self.s.world.table
        if not (table.taken[row] + self.request <= table.allocatable[row])[self.asked].all():
            return False
        if not self._only_room and not (self._passes(row) and self._passes_without_claims(row)):
            return False
        if self._queue_full is None:
            return True
        verdict = self.s.admit(self._nominating)
        self.refusal = self.refusal if verdict.ok else verdict.why
        return verdict.ok

    def _passes(self, row: int) -> bool:
        s, pod = self.s, self.pod
        rows = Rows(s.world.table, np.array([row], dtype=np.intp), soon=True)
        if not all(bool(plugin.fit(s, pod, rows)[0]) for plugin in s.policy.fits):
            return False
        return all(bool(p.fit_among(s, pod, rows)[0]) for p in s.policy.entangles if p.entangled(s, pod))

    def _passes_without_claims(self, row: int) -> bool:
        promised = [pod for pod in self._claims.get(row, ()) if self.s.world.phase(pod) is Phase.NOMINATED]
        if not promised:
            return True
        with self.s.trial("simulated", cause="Simulated") as trial:
            for pod in promised:
                trial.release(pod)
            return self._passes(row)

    def _plan(self, row: int, taken: _Taken) -> Plan:
        b = self.bundles
        going = [pair for unit in sorted(taken) for pair in taken[unit]]
        units, node = list(taken), self.s.world.table.names[row]
        slots = self.s.slots(self.pod, (node,), soon=True)
        victims = tuple(pod for pod, placement in going if placement.phase is Phase.BOUND)
        return Plan(
            domain=node,
            victims=victims,
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            seats=((self.pod, Placement(Phase.NOMINATED, node, self.s.now, slots[0] if slots is not None else ())),),
            cost=float(b.unit_cost[units].sum()),
            worst=int(b.unit_class[units].max(initial=0)),
            broken=int(self.board.breaks[units].sum()),
            violations=sum(plugin.beyond(self.s, victims) for plugin in self.s.policy.budgets),
        )

    def _cost(self, node: str, plan: Plan) -> Cost:
        """Budgets broken, gangs broken, the most important victim, all their importance, how many, work lost, the youngest."""
        if self.s.policy.costs_nodes:
            return tuple(plugin.node_cost(self.s, self.pod, node, plan.victims) for plugin in self.s.policy.costs_nodes)
        numbers = np.array([self.seats.index[pod.uid] for pod in plan.victims], dtype=np.intp)
        priority = self.seats.gang_priority[self.seats.gang[numbers]]
        hours = sum((plugin.lost_hours(self.s, self.seats, numbers) for plugin in self.s.policy.losses), np.zeros(len(numbers)))
        return (
            plan.violations,
            plan.broken,
            int(priority.max(initial=_NOBODY)),
            int(priority.sum()),
            len(numbers),
            round(float(hours.sum()), 9),
            -float(self.seats.started[numbers].max(initial=-np.inf)),
        )


_NOBODY = -(2**31)


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What the queue lacks, by column that is asked for; None where it lacks nothing."""

    amounts: Amounts | None
    known: bool = True


# -- all nodes at once -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Board:
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


def _board(s: Session, b: Bundles, seats: SeatTable, match: BoolColumn, asked: RowIndex) -> _Board:
    """The board for these units and nodes: the one of an ask before that looked alike, or a new one."""
    kept = s.scratch.get("board")
    if isinstance(kept, _Board) and kept.bundles is b and np.array_equal(kept.match, match):
        return kept
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
    figures = _unit_figures(s, b, seats, breaks, followers)
    nodes = len(match)
    nothing = np.zeros(nodes, dtype=np.bool_)
    board = _Board(
        b, match, rank, breaks, followers, _mixed(row, unit, followers), row, unit, freed, whole, figures,
        cost=np.zeros((len(figures), nodes)), possible=nothing.copy(), plain=nothing, gone=b.gone.copy(),
    )  # fmt: skip
    s.scratch["board"] = board
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


def _mixed(row: RowIndex, unit: Ints, followers: dict[int, list[int]]) -> RowIndex:
    if not followers:
        return np.zeros(0, dtype=np.intp)
    leader = np.full(int(unit.max(initial=-1)) + 1, -1, dtype=np.int64)
    for first, others in followers.items():
        leader[[other for other in others if other < len(leader)]] = first
    leads = {(r, u) for r, u in zip(row.tolist(), unit.tolist(), strict=True) if u in followers}
    follows = zip(row.tolist(), leader[unit].tolist(), strict=True)
    return np.array(sorted({r for r, u in follows if (r, u) in leads}), dtype=np.intp)


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
