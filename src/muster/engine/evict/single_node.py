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
from muster.engine.evict.eviction_policy import EvictionPolicy, allows_eviction
from muster.engine.evict.eviction_units import EvictionUnits, eviction_units
from muster.engine.evict.node_costs import node_costs_for
from muster.engine.evict.victim_search import NoPlan, Plan, why_no_victims
from muster.engine.evict.victims import VictimTable, mask_of, victim_table_of
from muster.engine.hooks import Ask, Comparable, Domain, Purpose
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase, Placement, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

NodeCost = tuple[Comparable, ...]
_Selected = dict[int, list[tuple[Pod, Placement]]]
"""Units that were told to go, and where their pods stood."""


def plan_on_one_node(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> Plan | NoPlan:
    """The cheapest node for the one pod that asks, and who leaves it; or why there is none. The world is as before."""
    search = _SingleNodeSearch(s, ask, policy, domain)
    if not search.eviction_units.any_left:
        return NoPlan(*why_no_victims(s, search.eviction_units, policy))
    best = search.best()
    if best is None:
        at = search.eviction_units.evictable_at if search.eviction_units.evictable_at < np.inf else None
        return NoPlan(search.refusal or "no node has room for it even if everybody left whom it may evict", at)
    return best


class _SingleNodeSearch:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> None:
        self.s, self.ask, self.policy = s, ask, policy
        self.pod: Pod = ask.pods[0]
        self.victim_table: VictimTable = victim_table_of(s.world)
        self.request: Amounts = s.world.request(self.pod)
        self.requested = np.flatnonzero(self.request)
        self.rules = policy.rules(s, ask, self.victim_table)
        self.eviction_units: EvictionUnits = eviction_units(s, ask, policy, self.rules, self.victim_table, domain, self.request)
        self.refusal = ""
        match: BoolColumn = s.node_scores(self.pod, after_releases=True).match & domain.mask(len(s.world.table))
        self.node_costs = node_costs_for(s, self.eviction_units, self.victim_table, match, self.requested)
        self._nominating = replace(ask, purpose=Purpose.NOMINATE)
        self._queue_full: Verdict | None = None if (verdict := s.admit(self._nominating)).ok else verdict
        self._needs_capacity_only = s.needs_capacity_only(self.pod)
        self._has_inter_pod_constraints = not self._needs_capacity_only and s.has_inter_pod_constraints(self.pod)
        self._violates, self._may_exceed_budget = self._budgets()
        self._nominated = self._nominated_by_row()

    def _budgets(self) -> tuple[BoolColumn, BoolColumn]:
        """Units whose going would break a disruption budget, as the budgets stand now; and those that are on a node on which more
        could go than a budget allows: those nodes are simulated one by one. Whoever follows a gang counts wherever the gang is."""
        b, gang_unit = self.eviction_units, self.node_costs.gang_unit
        violates, guarded = np.zeros(len(b), dtype=np.bool_), np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.checks_budgets:
            violates |= plugin.violates_budget(self.s, self.victim_table, b.victim, b.unit, len(b))
            guarded |= plugin.may_exceed_budget(self.s, self.victim_table, b.victim, gang_unit[b.unit], len(b))[gang_unit]
        return violates, guarded

    def _nominated_by_row(self) -> dict[int, list[Pod]]:
        """Who was promised room on each node; asked for only where other pods can be what the pod needs."""
        if not self._has_inter_pod_constraints:
            return {}
        victim_table, found = self.victim_table, dict[int, list[Pod]]()
        used = len(victim_table.pods)
        for at in np.flatnonzero(victim_table.alive[:used] & (victim_table.phase[:used] == Phase.NOMINATED)).tolist():
            found.setdefault(int(victim_table.row[at]), []).append(victim_table.pods[at])
        return found

    # -- which node --------------------------------------------------------------------------------------------------------------

    def best(self) -> Plan | None:
        """The cheapest node, ties by name."""
        rows, cheapest_row = self._candidates()
        found = self._cheapest([*rows, *([] if cheapest_row is None else [cheapest_row])])
        if found is None and cheapest_row is not None:
            # A queue refused what the figures allowed.
            found = self._cheapest(self.node_costs.candidate_rows(self.eviction_units, self._rows_with_enough()))
        return found

    def _cheapest(self, rows: list[int]) -> Plan | None:
        found: tuple[NodeCost, str, Plan] | None = None
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
        b, node_costs, table = self.eviction_units, self.node_costs, self.s.world.table
        if not self._needs_capacity_only or self.s.policy.costs_nodes or not (full := self._queue_shortfall()).known:
            return node_costs.candidate_rows(b, self._rows_with_enough()), None
        in_bulk = np.ones(len(table), dtype=np.bool_)
        in_bulk[b.row[self._may_exceed_budget[b.unit]]] = False
        in_bulk[node_costs.overlapping_rows] = False
        if full.amounts is not None and node_costs.surplus_units:
            # What its spare members free in the queue counts only once the gang is known to end.
            in_bulk[b.row[mask_of(list(node_costs.surplus_units), len(b))[b.unit]]] = False
        lacking = self.request[self.requested] - (table.allocatable - table.planned)[:, self.requested]
        rows = self.s.world.changes.rows
        node_costs.update(
            b, lacking, full.amounts, in_bulk=in_bulk, position=rows.position, changed=rows.since(node_costs.position)
        )
        return node_costs.candidate_rows(b, ~in_bulk & self._rows_with_enough()), node_costs.cheapest_row()

    def _rows_with_enough(self) -> BoolColumn:
        """Nodes on which the figures would be right if everybody went who may go. Fewer are worth a trial."""
        b, table = self.eviction_units, self.s.world.table
        free = (table.allocatable - table.planned)[:, self.requested]
        here = b.in_domain & ~b.evicted[b.unit]
        for at, column in enumerate(self.requested.tolist()):
            free[:, at] += np.bincount(b.row[here], weights=b.request[here, column], minlength=len(free)).astype(np.int64)
        return np.asarray((free >= self.request[self.requested]).all(axis=1), dtype=np.bool_)

    def _queue_shortfall(self) -> _QueueShortfall:
        """What must become free in the pod's own queue. Not known as figures where a unit may be charged to several queues."""
        if self._queue_full is None:
            return _QueueShortfall(None)
        if self.victim_table.multi_queue or len({role.queue for role in self.ask.gang.roles}) > 1:
            return _QueueShortfall(None, known=False)
        world = self.s.world
        rows = world.ledger.rows_up(world.facts.members[self.pod.uid].queue)
        most = quota.limits(world).rows.take(rows, axis=0)[:, self.requested]
        lacks = (world.ledger.planned_in(rows)[:, self.requested] + self.request[self.requested] - most).max(axis=0)
        return _QueueShortfall(np.asarray(lacks, dtype=np.int64))

    # -- one node ----------------------------------------------------------------------------------------------------------------

    def _simulate(self, row: int) -> Plan | None:
        """Who must leave this node so that the pod passes every check on it; None if that does not help."""
        rank = self.node_costs.rank
        units = sorted(self.node_costs.units_on(row, self.eviction_units), key=lambda u: (bool(self._violates[u]), int(rank[u])))
        with self.s.trial("simulated", cause="Simulated") as trial:
            taken: _Selected = {}
            fits = self._fits(row)
            for unit in units:
                if fits:
                    break
                if (evicted := self._evict_unit(trial, unit)) is not None:
                    taken[unit] = evicted
                    fits = self._fits(row)
            if not fits and not self._has_inter_pod_constraints:
                return None
            # Where other pods can be what the pod needs, one of those who went may have to come back before it passes at all; and
            # once that one is back, others may follow who could not before.
            while self._reprieve(trial, row, taken):
                fits = True
                if not self._has_inter_pod_constraints:
                    break
            if fits and self._evict_rest_of_gangs(trial, taken):
                # With them gone too somebody else may not be needed any more: even the rest of their gang, where a queue was full.
                while self._reprieve(trial, row, taken, besides=self._surplus_of_selected(taken)):
                    pass
                fits = self._fits(row)
            return self._plan(row, taken) if fits else None

    def _surplus_of_selected(self, taken: _Selected) -> set[int]:
        """Units that go because their gang goes."""
        surplus_units = self.node_costs.surplus_units
        return {unit for gang_unit in taken.keys() & surplus_units.keys() for unit in surplus_units[gang_unit]}

    def _reprieve(self, trial: Trial, row: int, taken: _Selected, *, besides: Collection[int] = ()) -> bool:
        """Whoever is not needed goes back, the most important and those whose budget is broken first. Did anybody?"""
        back = False
        for unit in sorted(taken.keys() - set(besides), key=lambda u: (not self._violates[u], -int(self.node_costs.rank[u]))):
            mark = trial.mark()
            for pod, placement in taken[unit]:
                trial.restore(pod, placement)
            if self._fits(row):
                back = True
                del taken[unit]
            else:
                trial.undo_to(mark)
        return back

    def _evict_rest_of_gangs(self, trial: Trial, taken: _Selected) -> bool:
        """A gang that goes whole leaves nobody behind: its spare members and its claims go with it. Did anybody? Where a budget
        keeps some, and with all of them the gang has what it needs, it goes on, and they stay."""
        before = len(taken)
        for gang_unit in [unit for unit in taken if unit in self.node_costs.surplus_units]:
            mark = trial.mark()
            units = [
                unit
                for unit in self.node_costs.surplus_units[gang_unit]
                if unit not in taken and not self.eviction_units.evicted[unit]
            ]
            going = self._evict_all(trial, units)
            if len(going) < len(units):
                trial.undo_to(mark)
                going = {} if self._keeps_min(gang_unit) else self._evict_all(trial, units)
            taken.update(going)
        return len(taken) > before

    def _evict_all(self, trial: Trial, units: list[int]) -> _Selected:
        """Those of these units who may go."""
        return {unit: evicted for unit in units if (evicted := self._evict_unit(trial, unit)) is not None}

    def _keeps_min(self, unit: int) -> bool:
        """Whether its gang has what it needs without those who were told to go."""
        return reaches_min(self.s.world, self.victim_table.gangs[self.eviction_units.unit_gang[unit]])

    def _evict_unit(self, trial: Trial, unit: int) -> list[tuple[Pod, Placement]] | None:
        pods = [self.victim_table.pods[at] for at in self.eviction_units.victims_of(unit, self.victim_table)]
        verdict = allows_eviction(self.s, self.ask, self.rules, pods)
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
        if not (table.planned[row] + self.request <= table.allocatable[row])[self.requested].all():
            return False
        if not self._needs_capacity_only and not (self._passes(row) and self._passes_without_nominated(row)):
            return False
        if self._queue_full is None:
            return True
        verdict = self.s.admit(self._nominating)
        self.refusal = self.refusal if verdict.ok else verdict.why
        return verdict.ok

    def _passes(self, row: int) -> bool:
        s, pod = self.s, self.pod
        rows = NodeRows(s.world.table, np.array([row], dtype=np.intp), after_releases=True)
        if not all(bool(plugin.fit(s, pod, rows)[0]) for plugin in s.policy.fits):
            return False
        return all(bool(p.fit_inter_pod(s, pod, rows)[0]) for p in s.policy.inter_pod_fits if p.has_inter_pod_constraints(s, pod))

    def _passes_without_nominated(self, row: int) -> bool:
        promised = [pod for pod in self._nominated.get(row, ()) if self.s.world.phase(pod) is Phase.NOMINATED]
        if not promised:
            return True
        with self.s.trial("simulated", cause="Simulated") as trial:
            for pod in promised:
                trial.release(pod)
            return self._passes(row)

    def _plan(self, row: int, taken: _Selected) -> Plan:
        b = self.eviction_units
        going = [pair for unit in sorted(taken) for pair in taken[unit]]
        units, node = list(taken), self.s.world.table.names[row]
        slots = self.s.slots(self.pod, (node,), after_releases=True)
        victims = tuple(pod for pod, placement in going if placement.phase is Phase.BOUND)
        return Plan(
            domain=node,
            victims=victims,
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            placements=((self.pod, Placement(Phase.NOMINATED, node, self.s.now, slots[0] if slots is not None else ())),),
            cost=float(b.unit_cost[units].sum()),
            worst_class=int(b.unit_class[units].max(initial=0)),
            gangs_ended=sum(bool(self.node_costs.ends_gang[unit]) and not self._keeps_min(unit) for unit in units),
            violations=sum(plugin.budget_violations(self.s, victims) for plugin in self.s.policy.checks_budgets),
        )

    def _cost(self, node: str, plan: Plan) -> NodeCost:
        """Budgets broken, gangs broken, the most important victim, all their importance, how many, work lost, the youngest."""
        if self.s.policy.costs_nodes:
            return tuple(plugin.node_cost(self.s, self.pod, node, plan.victims) for plugin in self.s.policy.costs_nodes)
        numbers = np.array([self.victim_table.index[pod.uid] for pod in plan.victims], dtype=np.intp)
        priority = self.victim_table.gang_priority[self.victim_table.gang[numbers]]
        hours = sum(
            (plugin.lost_hours(self.s, self.victim_table, numbers) for plugin in self.s.policy.counts_lost_hours),
            np.zeros(len(numbers)),
        )
        return (
            plan.violations,
            plan.gangs_ended,
            int(priority.max(initial=_NO_PRIORITY)),
            int(priority.sum()),
            len(numbers),
            round(float(hours.sum()), 9),
            -float(self.victim_table.started[numbers].max(initial=-np.inf)),
        )


_NO_PRIORITY = -(2**31)


@dataclass(frozen=True, slots=True)
class _QueueShortfall:
    """What the queue lacks, by column that is asked for; None where it lacks nothing."""

    amounts: Amounts | None
    known: bool = True
