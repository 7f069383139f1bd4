"""Room for one pod: every node that eviction could make fit is looked at, and the one where it costs least is taken.

On a node units go in order (whose budget allows it first, then the less important) until the pod passes all checks; then whoever is
not needed is put back, the most important first. Nodes that cannot win are passed over: what their last unit costs is known before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from muster.engine.evict.bundles import Bundles, bundles
from muster.engine.evict.policy import EvictionPolicy
from muster.engine.evict.search import NoPlan, Plan, barred_until
from muster.engine.evict.seats import Ints, SeatTable, seat_table
from muster.engine.hooks import Ask, Comparable
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.columns import Amounts
from muster.state.table import BoolColumn, FloatColumn, RowIndex
from muster.state.trial import Trial

Cost = tuple[Comparable, ...]


def plan_on_one_node(s: Session, ask: Ask, policy: EvictionPolicy, inside: BoolColumn) -> Plan | NoPlan:
    """The cheapest node for the one pod that asks, and who leaves it; or why there is none. The world is as before."""
    search = _OneNode(s, ask, policy, inside)
    if not len(search.bundles):
        return NoPlan(*barred_until(s, search.bundles, policy))
    best = search.best()
    if best is None:
        at = search.bundles.free_at if search.bundles.free_at < np.inf else None
        return NoPlan(search.refusal or "no node has room for it even if everybody left whom it may evict", at)
    return best


class _OneNode:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, inside: BoolColumn) -> None:
        self.s, self.ask = s, ask
        self.pod: Pod = ask.pods[0]
        self.seats: SeatTable = seat_table(s.world)
        self.request: Amounts = s.world.request(self.pod)
        self.asked = np.flatnonzero(self.request)
        self.match: BoolColumn = s.columns(self.pod, soon=True).match & inside
        self.bundles: Bundles = bundles(s, ask, policy, self.seats, inside, self.request)
        self.refusal = ""
        self._violates = self._violating()
        self._rank = self._ranks()
        self._seats_of_row = self._sorted()
        self._only_room = not s.is_entangled(self.pod) and len(s.policy.fits) == 1

    # -- who goes first ----------------------------------------------------------------------------------------------------------

    def _violating(self) -> BoolColumn:
        """Units whose going would break a disruption budget, as the budgets stand now."""
        b = self.bundles
        column = np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.budgets:
            column |= plugin.violates(self.s, self.seats, b.seat, b.unit, len(b))
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
        here = np.flatnonzero(b.local & self.match[b.row])
        return here[np.lexsort((self._rank[b.unit[here]], b.row[here]))]

    # -- which node --------------------------------------------------------------------------------------------------------------

    def best(self) -> Plan | None:
        found: tuple[Cost, str, Plan] | None = None
        for bound, row in self._promising():
            if found is not None and bound > found[0][: len(bound)]:
                break
            plan = self._simulate(row)
            if plan is None:
                continue
            node = self.s.world.table.names[row]
            cost = self._cost(node, plan)
            if found is None or (cost, node) < (found[0], found[1]):
                found = (cost, node, plan)
        return found[2] if found is not None else None

    def _promising(self) -> Iterator[tuple[Cost, int]]:
        """Nodes where the sums allow it, with the least that each can cost, the cheapest first."""
        b, table = self.bundles, self.s.world.table
        here = self._seats_of_row
        if not len(here):
            return
        free = table.allocatable - table.taken
        row, unit = b.row[here], b.unit[here]
        starts = np.concatenate([[True], row[1:] != row[:-1]])
        begin = np.maximum.accumulate(np.where(starts, np.arange(len(row)), 0))
        enough = self._enough(free[row] + _running(b.request[here], begin))
        last = _first_of_row(row, enough)
        spare_only = _running(b.request[here] * b.unit_spare[unit][:, None], begin)
        unbroken = np.zeros(len(table), dtype=np.bool_)
        unbroken[row[self._enough(free[row] + spare_only)]] = True
        key = np.column_stack(
            [self._violates[unit[last]], ~unbroken[row[last]], self.seats.gang_priority[b.unit_gang[unit[last]]]]
        ).astype(np.int64)
        default = not self.s.policy.costs_nodes
        for i in np.lexsort((row[last], key[:, 2], key[:, 1], key[:, 0])).tolist():
            yield tuple(key[i].tolist()) if default else (), int(row[last[i]])

    def _enough(self, free: Amounts) -> BoolColumn:
        return np.asarray((free[:, self.asked] >= self.request[self.asked]).all(axis=1), dtype=np.bool_)

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
        pods = [self.seats.pods[at] for at in self.bundles.seats_of(unit).tolist()]
        for plugin in self.s.policy.limits:
            verdict = plugin.may_take(self.s, self.ask, pods)
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
        units = list(taken)
        return Plan(
            domain=self.s.world.table.names[row],
            victims=tuple(pod for pod, placement in going if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            seats=((self.pod, Placement(Phase.NOMINATED, self.s.world.table.names[row], self.s.now)),),
            cost=float(b.unit_cost[units].sum()),
            classes=tuple(sorted({int(b.unit_class[unit]) for unit in units}, reverse=True)),
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


def _running(request: Amounts, begin: RowIndex) -> Amounts:
    """What all seats of a node up to each one add up to."""
    summed = np.cumsum(request, axis=0)
    running: Amounts = summed - summed[begin] + request[begin]
    return running


def _first_of_row(row: RowIndex, where: BoolColumn) -> RowIndex:
    found = np.flatnonzero(where)
    _, first = np.unique(row[found], return_index=True)
    return found[first]
