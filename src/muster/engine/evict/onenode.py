"""Room for one pod: every node that eviction could make fit is looked at, and the one where it costs least is taken.

On a node units go in order (whose budget allows it first, then the less important) until the pod passes all checks; then whoever is
not needed is put back, the most important first. Where room is all that matters nodes are judged all at once, on a board that is
kept for the asks of a cycle that look alike; elsewhere one by one, in trials.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from muster.engine import quota
from muster.engine.evict.board import board_for
from muster.engine.evict.bundles import Bundles, bundles
from muster.engine.evict.policy import EvictionPolicy, may_take
from muster.engine.evict.search import NoPlan, Plan, barred_until
from muster.engine.evict.seats import SeatTable, among, seat_table
from muster.engine.hooks import Ask, Comparable, Domain, Purpose
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase, Placement, Pod
from muster.state.columns import Amounts
from muster.state.lifecycle import reaches_min
from muster.state.table import BoolColumn, Rows
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
        self.rules = policy.rules(s, ask, self.seats)
        self.bundles: Bundles = bundles(s, ask, policy, self.rules, self.seats, domain, self.request)
        self.refusal = ""
        match: BoolColumn = s.columns(self.pod, soon=True).match & domain.mask(len(s.world.table))
        self.board = board_for(s, self.bundles, self.seats, match, self.asked)
        self._nominating = replace(ask, purpose=Purpose.NOMINATE)
        self._queue_full: Verdict | None = None if (verdict := s.admit(self._nominating)).ok else verdict
        self._only_room = s.minds_room_only(self.pod)
        self._entangled = not self._only_room and s.is_entangled(self.pod)
        self._violates, self._guarded = self._budgets()
        self._claims = self._claims_by_row()

    def _budgets(self) -> tuple[BoolColumn, BoolColumn]:
        """Units whose going would break a disruption budget, as the budgets stand now; and those that are on a node on which more
        could go than a budget allows: those nodes are simulated one by one. Whoever follows a gang counts wherever the gang is."""
        b, leader = self.bundles, self.board.leader
        violates, guarded = np.zeros(len(b), dtype=np.bool_), np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.budgets:
            violates |= plugin.violates(self.s, self.seats, b.seat, b.unit, len(b))
            guarded |= plugin.guards(self.s, self.seats, b.seat, leader[b.unit], len(b))[leader]
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
        if full.amounts is not None and board.followers:
            # What its spare members free in the queue counts only once the gang is known to end.
            plain[b.row[among(list(board.followers), len(b))[b.unit]]] = False
        lacking = self.request[self.asked] - (table.allocatable - table.taken)[:, self.asked]
        rows = self.s.world.changes.rows
        board.judge(b, lacking, full.amounts, plain=plain, position=rows.position, changed=rows.since(board.position))
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
        rows = world.ledger.rows_up(world.facts.members[self.pod.uid].queue)
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
            if fits and self._end_gangs(trial, taken):
                # With them gone too somebody else may not be needed any more: even the rest of their gang, where a queue was full.
                while self._put_back(trial, row, taken, besides=self._following(taken)):
                    pass
                fits = self._fits(row)
            return self._plan(row, taken) if fits else None

    def _following(self, taken: _Taken) -> set[int]:
        """Units that go because their gang goes."""
        followers = self.board.followers
        return {unit for leader in taken.keys() & followers.keys() for unit in followers[leader]}

    def _put_back(self, trial: Trial, row: int, taken: _Taken, *, besides: Collection[int] = ()) -> bool:
        """Whoever is not needed goes back, the most important and those whose budget is broken first. Did anybody?"""
        back = False
        for unit in sorted(taken.keys() - set(besides), key=lambda u: (not self._violates[u], -int(self.board.rank[u]))):
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
        """A gang that goes whole leaves nobody behind: its spare members and its claims go with it. Did anybody? Where a budget
        keeps some, and with all of them the gang has what it needs, it goes on, and they stay."""
        before = len(taken)
        for leader in [unit for unit in taken if unit in self.board.followers]:
            mark = trial.mark()
            units = [unit for unit in self.board.followers[leader] if unit not in taken and not self.bundles.gone[unit]]
            going = self._take_all(trial, units)
            if len(going) < len(units):
                trial.undo_to(mark)
                going = {} if self._goes_on(leader) else self._take_all(trial, units)
            taken.update(going)
        return len(taken) > before

    def _take_all(self, trial: Trial, units: list[int]) -> _Taken:
        """Those of these units who may go."""
        return {unit: gone for unit in units if (gone := self._take(trial, unit)) is not None}

    def _goes_on(self, unit: int) -> bool:
        """Whether its gang has what it needs without those who were told to go."""
        return reaches_min(self.s.world, self.seats.gangs[self.bundles.unit_gang[unit]])

    def _take(self, trial: Trial, unit: int) -> list[tuple[Pod, Placement]] | None:
        pods = [self.seats.pods[at] for at in self.bundles.seats_of(unit, self.seats)]
        verdict = may_take(self.s, self.ask, self.rules, pods)
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
            broken=sum(bool(self.board.breaks[unit]) and not self._goes_on(unit) for unit in units),
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
