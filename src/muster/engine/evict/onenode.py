"""Room for one pod: every node that eviction could make fit is looked at, and the one where it costs least is taken.

On a node units go in order (whose budget allows it first, then the less important) until the pod passes all checks; then whoever is
not needed is put back, the most important first. Nodes that cannot win are passed over: what their last unit costs is known before.
"""

from __future__ import annotations

import numpy as np

from muster.engine.evict.bundles import Bundles, bundles
from muster.engine.evict.policy import EvictionPolicy, may_take
from muster.engine.evict.search import NoPlan, Plan, barred_until
from muster.engine.evict.seats import Ints, SeatTable, seat_table
from muster.engine.hooks import Ask, Comparable, Domain
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.columns import Amounts
from muster.state.table import BoolColumn, FloatColumn, RowIndex
from muster.state.trial import Trial

Cost = tuple[Comparable, ...]


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
        self.match: BoolColumn = s.columns(self.pod, soon=True).match & domain.mask(len(s.world.table))
        self.bundles: Bundles = bundles(s, ask, policy, self.seats, domain, self.request)
        self.refusal = ""
        self._guarded: BoolColumn = np.zeros(len(self.bundles), dtype=np.bool_)
        """Units that a disruption budget covers: those are simulated one by one."""
        self._violates = self._violating()
        self._rank = self._ranks()
        self._seats_of_row = self._sorted()
        self._only_room = s.minds_room_only(self.pod)

    # -- who goes first ----------------------------------------------------------------------------------------------------------

    def _violating(self) -> BoolColumn:
        """Units whose going would break a disruption budget, as the budgets stand now."""
        b = self.bundles
        column = np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.budgets:
            column |= plugin.violates(self.s, self.seats, b.seat, b.unit, len(b))
            self._guarded |= plugin.guards(self.s, self.seats, b.seat, b.unit, len(b))
        return column

    def _ranks(self) -> Ints:
        """Position of each unit in the order in which units go: allowed by their budgets first, then the less important."""
        b = self.bundles
        priority = self.seats.gang_priority[b.unit_gang]
        order = np.lexsort((np.arange(len(b)), ~b.unit_spare, priority, self._violates))
        rank = np.empty(len(b), dtype=np.int64)
        rank[order] = np.arange(len(b))
        return rank

    def _sorted(self) -> RowIndex:
        b = self.bundles
        here = np.flatnonzero(b.local & self.match[b.row] & ~b.gone[b.unit])
        return here[np.lexsort((self._rank[b.unit[here]], b.row[here]))]

    # -- which node --------------------------------------------------------------------------------------------------------------

    def best(self) -> Plan | None:
        """The cheapest node, ties by name."""
        found: tuple[Cost, str, Plan] | None = None
        for row in self._candidates():
            plan = self._simulate(row)
            if plan is None:
                continue
            node = self.s.world.table.names[row]
            cost = self._cost(node, plan)
            if found is None or (cost, node) < (found[0], found[1]):
                found = (cost, node, plan)
        return found[2] if found is not None else None

    def _candidates(self) -> list[int]:
        """Nodes that have to be simulated one by one; of those that can be judged all at once only the winner."""
        b = self.bundles
        rows: RowIndex = np.unique(b.row[self._seats_of_row])
        if not self._only_room or self.s.policy.costs_nodes:
            return [int(row) for row in rows]
        guarded = np.zeros(len(self.s.world.table), dtype=np.bool_)
        guarded[b.row[self._seats_of_row[self._guarded[b.unit[self._seats_of_row]]]]] = True
        winner = self._winner(~guarded)
        return [*rows[guarded[rows]].tolist(), *([] if winner is None else [winner])]

    def _winner(self, plain: BoolColumn) -> int | None:
        """Of the nodes where room is all that matters, the cheapest: what `_simulate` and `_cost` would say, for all at once."""
        b, table = self.bundles, self.s.world.table
        here = self._seats_of_row[plain[b.row[self._seats_of_row]]]
        if not len(here):
            return None
        row, unit, freed = _by_row_and_unit(b.row[here], b.unit[here], b.request[here][:, self.asked])
        begin = _begins(row)
        lacking = self.request[self.asked] - (table.allocatable - table.taken)[:, self.asked]
        enough = np.asarray((_running(freed, begin) >= lacking[row]).all(axis=1), dtype=np.bool_)
        end = _first_of_row(row, enough)
        if not len(end):
            return None
        kept = _put_back(freed, begin[end], end, lacking[row[end]])
        return int(row[end][self._cheapest(row[end], unit, begin[end], end, kept)])

    def _cheapest(self, rows: RowIndex, unit: Ints, begin: RowIndex, end: RowIndex, kept: BoolColumn) -> int:
        """Position of the cheapest row. Sums over the units that stay taken on each."""
        key: list[FloatColumn] = []
        for combine, figure in self._unit_figures():
            neutral = 0.0 if combine is np.add else -np.inf
            key.append(_reduce(combine, np.where(kept, figure[unit], neutral), begin, end))
        key[-1] = -key[-1]
        return int(np.lexsort((rows, *key[::-1]))[0])

    def _unit_figures(self) -> list[tuple[np.ufunc, FloatColumn]]:
        """Of each unit, what its victims add to the cost of a node, and how; in the order in which `_cost` compares them."""
        b, seats, units = self.bundles, self.seats, len(self.bundles)
        bound = seats.phase[b.seat] == Phase.BOUND
        pods = np.bincount(b.unit[bound], minlength=units).astype(np.float64)
        hours = np.zeros(len(b.seat))
        for plugin in self.s.policy.losses:
            hours += plugin.lost_hours(self.s, seats, b.seat)
        youngest = np.full(units, -np.inf)
        np.maximum.at(youngest, b.unit[bound], seats.started[b.seat[bound]])
        priority = seats.gang_priority[b.unit_gang].astype(np.float64)
        return [
            (np.add, (~b.unit_spare & ~seats.gang_single[b.unit_gang]).astype(np.float64)),
            (np.maximum, np.where(pods > 0, priority, -np.inf)),
            (np.add, priority * pods),
            (np.add, pods),
            (np.add, np.asarray(np.bincount(b.unit[bound], weights=hours[bound], minlength=units), dtype=np.float64)),
            (np.maximum, youngest),
        ]

    # -- one node ----------------------------------------------------------------------------------------------------------------

    def _simulate(self, row: int) -> Plan | None:
        """Who must leave this node so that the pod passes every check on it; None if that does not help."""
        b = self.bundles
        here = self._seats_of_row[b.row[self._seats_of_row] == row]
        units = list(dict.fromkeys(b.unit[here].tolist()))
        with self.s.trial("simulated", cause="Simulated") as trial:
            taken: dict[int, list[tuple[Pod, Placement]]] = {}
            for unit in units:
                if self._fits(row):
                    break
                if (gone := self._take(trial, unit)) is not None:
                    taken[unit] = gone
            if not self._fits(row):
                return None
            for unit in sorted(taken, key=lambda u: (not self._violates[u], -self._rank[u])):
                mark = trial.mark()
                for pod, placement in taken[unit]:
                    trial.restore(pod, placement)
                if self._fits(row):
                    del taken[unit]
                else:
                    trial.undo_to(mark)
            return self._plan(row, taken)

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
        """Nominated pods that need not yield stand on the node already: they are part of what is taken there."""
        if self._only_room:
            table = self.s.world.table
            return bool((table.taken[row] + self.request <= table.allocatable[row])[self.asked].all())
        return fits_on(self.s, self.pod, self.s.world.table.names[row], soon=True)

    def _plan(self, row: int, taken: dict[int, list[tuple[Pod, Placement]]]) -> Plan:
        b = self.bundles
        going = [pair for unit in sorted(taken) for pair in taken[unit]]
        units, node = list(taken), self.s.world.table.names[row]
        slots = self.s.slots(self.pod, (node,), soon=True)
        return Plan(
            domain=node,
            victims=tuple(pod for pod, placement in going if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            seats=((self.pod, Placement(Phase.NOMINATED, node, self.s.now, slots[0] if slots is not None else ())),),
            cost=float(b.unit_cost[units].sum()),
            worst=int(b.unit_class[units].max(initial=0)),
            broken=sum(not b.unit_spare[unit] and not self.seats.gang_single[b.unit_gang[unit]] for unit in units),
            violations=int(self._violates[units].sum()),
        )

    def _cost(self, node: str, plan: Plan) -> Cost:
        """Budgets broken, gangs broken, the most important victim, all their importance, how many, work lost, the youngest."""
        if self.s.policy.costs_nodes:
            return tuple(plugin.node_cost(self.s, self.pod, node, plan.victims) for plugin in self.s.policy.costs_nodes)
        numbers = np.array([self.seats.index[pod.uid] for pod in plan.victims], dtype=np.intp)
        priority = self.seats.gang_priority[self.seats.gang[numbers]]
        hours: FloatColumn = np.zeros(len(numbers))
        for plugin in self.s.policy.losses:
            hours += plugin.lost_hours(self.s, self.seats, numbers)
        return (
            plan.violations,
            plan.broken,
            int(priority.max(initial=-(2**31))),
            int(priority.sum()),
            len(numbers),
            float(hours.sum()),
            -float(self.seats.started[numbers].max(initial=-np.inf)),
        )


def _by_row_and_unit(row: RowIndex, unit: Ints, request: Amounts) -> tuple[RowIndex, Ints, Amounts]:
    """Seats of one unit on one node as one entry. They stand next to each other already."""
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
