"""The search on single nodes: every node on which eviction could make one pod fit is a domain of its own, and the cheapest wins.

On a node units are evicted in order (whose budget allows it first, then by priority) until the pod passes all filters; then
whatever is not needed is put back, the highest priority first. Where free capacity is all that the pod needs, node costs estimate
all nodes at once and only the cheapest is simulated; elsewhere every node is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from muster.engine import quota
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import EvictionPolicy
from muster.engine.evict.node_costs import NodeCosts, build_node_costs
from muster.engine.evict.victim_search import ActionCache, VictimSearch, VictimSelection
from muster.engine.evict.victims import mask_of
from muster.engine.hooks import Ask, Comparable, Domain, Purpose
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.resource_columns import Amounts

NodeCost = tuple[Comparable, ...]
_NO_PRIORITY = -(2**31)


def plan_on_one_node(
    s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain, cache: ActionCache | None = None
) -> Plan | NoPlan:
    """The cheapest node for the one pod of the ask, and who is evicted from it; or why there is none. The world is as before."""
    search = VictimSearch(s, ask, policy, domain, need=s.world.request(ask.pods[0]), cache=cache)
    if not search.units.any_left:
        return search.no_victims()
    best = _NodeSearch(search).cheapest()
    if best is None:
        return search.no_plan(search.refusal or "no node fits it even with every evictable pod evicted")
    return best


class _NodeSearch:
    """Which nodes are tried, and which of them is the cheapest."""

    def __init__(self, search: VictimSearch) -> None:
        s = search.s
        self.s, self.search, self.units = s, search, search.units
        self.pod: Pod = search.ask.pods[0]
        self.request: Amounts = s.world.request(self.pod)
        self.requested = np.flatnonzero(self.request)
        self.node_costs = self._node_costs()
        self.nominating = replace(search.ask, purpose=Purpose.NOMINATE)
        self.queue_is_full = not s.admit(self.nominating).ok
        self.needs_capacity_only = s.needs_capacity_only(self.pod)
        self.has_inter_pod_constraints = not self.needs_capacity_only and s.has_inter_pod_constraints(self.pod)
        self.violates, self._may_exceed_budget = self._budgets()
        self.nominated = self._nominated_by_row()

    def _node_costs(self) -> NodeCosts:
        """The node costs of the last ask, if it looked alike, or new ones."""
        s, cache = self.s, self.search.cache
        match: BoolColumn = s.node_scores(self.pod, after_releases=True).match & self.search.domain.mask(len(s.world.table))
        found = cache.node_costs
        if found is None or found.units is not self.units or not np.array_equal(found.match, match):
            found = cache.node_costs = build_node_costs(s, self.units, self.search.victim_table, match, self.requested)
        return found

    def _budgets(self) -> tuple[BoolColumn, BoolColumn]:
        """Units whose eviction would violate a disruption budget as it is now; and those on a node on which more could be evicted
        than a budget allows: such nodes are simulated one by one. What ends with a gang counts wherever the gang is."""
        b = self.units
        violates, may_exceed = np.zeros(len(b), dtype=np.bool_), np.zeros(len(b), dtype=np.bool_)
        for plugin in self.s.policy.checks_budgets:
            table, whole = self.search.victim_table, b.whole_unit
            violates |= plugin.violates_budget(self.s, table, b.victim, b.unit, len(b))
            may_exceed |= plugin.may_exceed_budget(self.s, table, b.victim, whole[b.unit], len(b))[whole]
        return violates, may_exceed

    def _nominated_by_row(self) -> dict[int, list[Pod]]:
        """The pods nominated to each node; needed only where other pods can be what the pod needs."""
        if not self.has_inter_pod_constraints:
            return {}
        table, found = self.search.victim_table, dict[int, list[Pod]]()
        used = len(table.pods)
        for at in np.flatnonzero(table.alive[:used] & (table.phase[:used] == Phase.NOMINATED)).tolist():
            found.setdefault(int(table.row[at]), []).append(table.pods[at])
        return found

    def cheapest(self) -> Plan | None:
        """The plan of the cheapest node, ties by name."""
        rows, estimated = self._candidates()
        found = self._cheapest_of([*rows, *([] if estimated is None else [estimated])])
        if found is None and estimated is not None:
            # A queue refused what the amounts allowed.
            found = self._cheapest_of(self.node_costs.candidate_rows(self._rows_with_enough()))
        return found

    def _cheapest_of(self, rows: list[int]) -> Plan | None:
        found: tuple[NodeCost, str, Plan] | None = None
        for row in rows:
            on_node = _OnNode(self, row)
            plan = self.search.attempt(on_node)
            if plan is None:
                continue
            cost = self._cost(plan, on_node)
            if found is None or (cost, plan.domain) < (found[0], found[1]):
                found = (cost, plan.domain, plan)
        return found[2] if found is not None else None

    def _cost(self, plan: Plan, on_node: _OnNode) -> NodeCost:
        """Budgets violated, gangs ended, the highest priority, their sum, how many pods, work lost, the youngest."""
        s, table = self.s, self.search.victim_table
        if s.policy.costs_nodes:
            return tuple(plugin.node_cost(s, self.pod, plan.domain, plan.victims) for plugin in s.policy.costs_nodes)
        numbers = np.array([table.index[pod.uid] for pod in plan.victims], dtype=np.intp)
        priority = table.gang_priority[table.gang[numbers]]
        hours = sum((plugin.lost_hours(s, table, numbers) for plugin in s.policy.counts_lost_hours), np.zeros(len(numbers)))
        return (
            on_node.budget_violations,
            on_node.gangs_ended,
            int(priority.max(initial=_NO_PRIORITY)),
            int(priority.sum()),
            len(numbers),
            round(float(hours.sum()), 9),
            -float(table.started[numbers].max(initial=-np.inf)),
        )

    def _candidates(self) -> tuple[list[int], int | None]:
        """Nodes that have to be simulated one by one; and of those that can be estimated at once the cheapest."""
        b, node_costs, table = self.units, self.node_costs, self.s.world.table
        if not self.needs_capacity_only or self.s.policy.costs_nodes or not (full := self._queue_shortfall()).known:
            return node_costs.candidate_rows(self._rows_with_enough()), None
        in_bulk = np.ones(len(table), dtype=np.bool_)
        in_bulk[b.row[self._may_exceed_budget[b.unit]]] = False
        in_bulk[node_costs.overlapping_rows] = False
        if full.amounts is not None and b.surplus_units:
            # What ends with a gang frees its part of the queue only once the gang is known to end.
            in_bulk[b.row[mask_of(list(b.surplus_units), len(b))[b.unit]]] = False
        lacking = self.request[self.requested] - (table.allocatable - table.planned)[:, self.requested]
        node_costs.update(lacking, full.amounts, in_bulk=in_bulk, changes=self.s.world.changes.rows)
        return node_costs.candidate_rows(~in_bulk & self._rows_with_enough()), node_costs.cheapest_row()

    def _rows_with_enough(self) -> BoolColumn:
        """Nodes on which the amounts would be enough with every evictable unit evicted: only these are worth a trial."""
        b, table = self.units, self.s.world.table
        free = (table.allocatable - table.planned)[:, self.requested]
        here = b.in_domain & ~b.evicted[b.unit]
        for at, column in enumerate(self.requested.tolist()):
            free[:, at] += np.bincount(b.row[here], weights=b.request[here, column], minlength=len(free)).astype(np.int64)
        return np.asarray((free >= self.request[self.requested]).all(axis=1), dtype=np.bool_)

    def _queue_shortfall(self) -> _QueueShortfall:
        """What must become free in the pod's own queue. Not known as amounts where a unit may be charged to several queues."""
        if not self.queue_is_full:
            return _QueueShortfall(None)
        if self.search.victim_table.multi_queue or len({role.queue for role in self.search.ask.gang.roles}) > 1:
            return _QueueShortfall(None, known=False)
        world = self.s.world
        rows = world.ledger.rows_up(world.facts.members[self.pod.uid].queue)
        most = quota.limits(world).rows.take(rows, axis=0)[:, self.requested]
        lacks = (world.ledger.planned_in(rows)[:, self.requested] + self.request[self.requested] - most).max(axis=0)
        return _QueueShortfall(np.asarray(lacks, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class _QueueShortfall:
    """What the queue lacks, by column that is requested; None where it lacks nothing."""

    amounts: Amounts | None
    known: bool = True


class _OnNode:
    """Strategy: the units of one node by priority, the fit checked by the filters on that node alone."""

    keeps_running_gangs = True

    def __init__(self, nodes: _NodeSearch, row: int) -> None:
        self.nodes, self.row = nodes, row
        self.gangs_ended = 0
        self.budget_violations = 0

    def free_capacity(self, selection: VictimSelection) -> bool:
        nodes = self.nodes
        fits = self._fits()
        for unit in sorted(nodes.node_costs.units_on(self.row), key=lambda unit: (bool(nodes.violates[unit]), self._rank(unit))):
            if fits:
                break
            if selection.evict(unit):
                fits = self._fits()
        if not fits and not nodes.has_inter_pod_constraints:
            return False
        # Where other pods can be what the pod needs, one that was evicted may have to be put back before it passes at all; and once
        # that one is back, others may follow that could not before.
        while selection.reprieve(self._highest_priority_first(list(selection.before)), fits=self._fits):
            fits = True
            if not nodes.has_inter_pod_constraints:
                break
        return fits

    def reprieve(self, selection: VictimSelection, *, gangs_ended: bool) -> bool:
        """With gangs ended other units may not be needed any more: even the rest of their gang, where a queue was full."""
        if not gangs_ended:
            return True
        while selection.reprieve(
            self._highest_priority_first([unit for unit in selection.before if not selection.ends_with_gang(unit)]), fits=self._fits
        ):
            pass
        return self._fits()

    def _highest_priority_first(self, units: list[int]) -> list[int]:
        """Those whose budget is violated before all others."""
        return sorted(units, key=lambda unit: (not self.nodes.violates[unit], -self._rank(unit)))

    def _rank(self, unit: int) -> int:
        return int(self.nodes.node_costs.rank[unit])

    def _fits(self) -> bool:
        """With the pods nominated to the node that need not yield, which the amounts contain; and again without them, because they
        may never come."""
        nodes, table, row = self.nodes, self.nodes.s.world.table, self.row
        if not (table.planned[row] + nodes.request <= table.allocatable[row])[nodes.requested].all():
            return False
        if not nodes.needs_capacity_only and not (self._passes_filters() and self._passes_without_nominated()):
            return False
        if not nodes.queue_is_full:
            return True
        verdict = nodes.s.admit(nodes.nominating)
        if not verdict.ok:
            nodes.search.refusal = verdict.why
        return verdict.ok

    def _passes_filters(self) -> bool:
        s, pod = self.nodes.s, self.nodes.pod
        rows = NodeRows(s.world.table, np.array([self.row], dtype=np.intp), after_releases=True)
        if not all(bool(plugin.fit(s, pod, rows)[0]) for plugin in s.policy.fits):
            return False
        return all(bool(p.fit_inter_pod(s, pod, rows)[0]) for p in s.policy.inter_pod_fits if p.has_inter_pod_constraints(s, pod))

    def _passes_without_nominated(self) -> bool:
        s = self.nodes.s
        nominated = [pod for pod in self.nodes.nominated.get(self.row, ()) if s.world.phase(pod) is Phase.NOMINATED]
        if not nominated:
            return True
        with s.trial("simulated", cause="Simulated") as trial:
            for pod in nominated:
                trial.release(pod)
            return self._passes_filters()

    def plan(self, selection: VictimSelection) -> Plan:
        s, pod = self.nodes.s, self.nodes.pod
        node = s.world.table.names[self.row]
        slots = s.slots(pod, (node,), after_releases=True)
        plan = selection.plan(node, ((pod, Placement(Phase.NOMINATED, node, s.now, slots[0] if slots is not None else ())),))
        ends_gang = self.nodes.node_costs.ends_gang
        self.gangs_ended = sum(bool(ends_gang[unit]) and not selection.keeps_min(unit) for unit in plan.units)
        self.budget_violations = sum(plugin.budget_violations(s, plan.victims) for plugin in s.policy.checks_budgets)
        return plan
