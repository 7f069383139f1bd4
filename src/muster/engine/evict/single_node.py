"""The search for one pod: every node on which evictions could make it fit is a domain of its own, and the best plan wins.

Nodes are tried in the order of what is known of them; one whose lower bound is no better than the best plan is skipped. On a node
all combinations of its units are tried, the best first, until the pod passes all filters; where there are too many, units are
evicted in order and what is not needed is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from muster.engine.evict.combinations import combinations
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.node_costs import Need, NodeCosts, build_node_costs
from muster.engine.evict.plan_order import PlanKey
from muster.engine.evict.queue_shortfall import QueueShortfall
from muster.engine.evict.victim_search import EvictionAsk, PlacedMembers, VictimSearch, VictimSelection
from muster.engine.hooks import Comparable, Domain, Purpose
from muster.model.pod import Phase, Placement, Pod
from muster.state.node_table import BoolColumn, IntColumn, NodeRows, RowIndex
from muster.state.resource_columns import Amounts

NodeCost = tuple[Comparable, ...]


def plan_on_one_node(eviction_ask: EvictionAsk, domain: Domain) -> Plan | NoPlan:
    """The best node for the one pod of the ask, and who is evicted from it; or why there is none. The world is as before."""
    search = VictimSearch(eviction_ask, domain)
    if not search.units.any_left:
        return search.no_victims()
    best = _NodeSearch(search).best()
    if best is None:
        return search.no_plan(search.why_never("no node fits it even with every evictable pod evicted"))
    return best


class _NodeSearch:
    """Which nodes are tried, and which of them is the best."""

    def __init__(self, search: VictimSearch) -> None:
        s = search.s
        self.s, self.search, self.units = s, search, search.units
        self.pod: Pod = search.ask.pods[0]
        self.request: Amounts = s.world.request(self.pod)
        self.requested = np.flatnonzero(self.request)
        self.nominating = replace(search.ask, purpose=Purpose.NOMINATE)
        self.queue_is_full = not s.admit(self.nominating).ok
        self.needs_capacity_only = s.needs_capacity_only(self.pod)
        self.has_inter_pod_constraints = not self.needs_capacity_only and s.has_inter_pod_constraints(self.pod)
        self.nominated = self._nominated_by_row()
        self.shortfall = QueueShortfall(search)
        self.queue_lacks, self.freed_in_queue = self._in_queues()
        self.node_costs = self._node_costs()

    def _in_queues(self) -> tuple[Amounts, Amounts]:
        """What must become free in queues, one number after the other, and what each unit frees of it."""
        if not self.shortfall.lacks:
            return np.zeros(0, dtype=np.int64), np.zeros((len(self.units), 0), dtype=np.int64)
        lacks = [over for _, _, over in self.shortfall.lacks]
        every = np.arange(len(self.units))
        frees = [self.shortfall.freed_in(level, every)[:, columns] for level, columns, _ in self.shortfall.lacks]
        return np.concatenate(lacks), np.hstack(frees)

    def _node_costs(self) -> NodeCosts:
        """The node costs of the last ask, if it looked alike, or new ones."""
        s, cache = self.s, self.search.eviction_ask.cache
        match: BoolColumn = s.match(self.pod) & self.search.domain.mask(len(s.world.table))
        found = cache.node_costs
        if found is None or found.order.units is not self.units or not np.array_equal(found.match, match):
            found = cache.node_costs = build_node_costs(self.search.order, match, self.requested)
        bounded = self.needs_capacity_only and not s.policy.costs_nodes
        found.update(Need(self.request[self.requested], self.queue_lacks, self.freed_in_queue, bounded), s.world)
        return found

    def _nominated_by_row(self) -> dict[int, list[Pod]]:
        """The pods nominated to each node; needed only where other pods can be what the pod needs."""
        if not self.has_inter_pod_constraints:
            return {}
        table, found = self.search.victim_table, dict[int, list[Pod]]()
        used = len(table.pods)
        for at in np.flatnonzero(table.alive[:used] & (table.phase[:used] == Phase.NOMINATED)).tolist():
            found.setdefault(int(table.row[at]), []).append(table.pods[at])
        return found

    def best(self) -> Plan | None:
        """The plan of the best node, ties by name."""
        found: tuple[PlanKey | NodeCost, Plan] | None = None
        s, costs = self.s, self.node_costs
        for bound, row in costs.rows_in_order():
            if found is not None and not s.policy.costs_nodes and bound >= found[0]:
                break
            plan = self._best_on(row)
            if plan is None:
                continue
            key: PlanKey | NodeCost = plan.key
            if s.policy.costs_nodes:
                key = tuple(plugin.node_cost(s, self.pod, plan.domain, plan.victims) for plugin in s.policy.costs_nodes)
            if found is None or key < found[0]:
                found = (key, plan)
        return found[1] if found is not None else None

    def _best_on(self, row: int) -> Plan | None:
        """The best plan on one node."""
        costs = self.node_costs
        if costs.now.settled[row]:
            plan = self.search.attempt(_GivenUnitsOnNode(self, row, costs.best_units(row)))
            if plan is not None:
                return plan
        found = self._combinations_on(row)
        if found is None:
            return self.search.attempt(_GreedyOnNode(self, row, costs.units_on(row)))
        for units in found:
            plan = self.search.attempt(_GivenUnitsOnNode(self, row, units))
            if plan is not None or self.search.eviction_ask.placements_left <= 0:
                return plan
        return None

    def _combinations_on(self, row: int) -> Iterator[list[int]] | None:
        here = self.node_costs.units_on(row)

        def enough(unit: RowIndex, counts: IntColumn) -> BoolColumn:
            freed = counts @ self._freed_on(row, unit)
            found: BoolColumn = self.shortfall.enough(unit, counts) & (freed >= self.node_costs.lacking[row]).all(axis=1)
            return found

        alike = self.needs_capacity_only
        return combinations(self.search.order, self.search.victim_table, here, self.units.request, enough, by_amounts=alike)

    def _freed_on(self, row: int, unit: RowIndex) -> Amounts:
        b = self.units
        freed = np.zeros((len(unit), len(self.requested)), dtype=np.int64)
        for at, each in enumerate(unit.tolist()):
            entries = b.entries_of(each)
            mine = b.request[entries][b.row[entries] == row]
            freed[at] = mine[:, self.requested].sum(axis=0)
        return freed


class _OnNode:
    """What both strategies share: the fit is checked by the filters on that node alone."""

    def __init__(self, nodes: _NodeSearch, row: int, units: list[int]) -> None:
        self.nodes, self.row, self.units = nodes, row, units
        self.domain_name = nodes.s.world.table.names[row]

    def fits(self, selection: VictimSelection) -> bool:
        """With the pods nominated to the node that need not yield, which the amounts contain; and again without them, because they
        may never come."""
        nodes, table, row = self.nodes, self.nodes.s.world.table, self.row
        nodes.search.eviction_ask.placements_left -= 1
        if not (table.planned[row] + nodes.request <= table.allocatable[row])[nodes.requested].all():
            return False
        if not nodes.needs_capacity_only and not (self._passes_filters() and self._passes_without_nominated()):
            return False
        if not nodes.queue_is_full:
            return True
        verdict = nodes.s.admit(nodes.nominating)
        if not verdict.ok:
            selection.refuse(verdict.why)
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

    def nominate(self, selection: VictimSelection) -> PlacedMembers | None:
        """Nominate the pod in the trial, if the action's rules allow the plan then."""
        s, pod = self.nodes.s, self.nodes.pod
        slots = s.slots(pod, (self.domain_name,), after_releases=True)
        placement = Placement(Phase.NOMINATED, self.domain_name, s.now, slots[0] if slots is not None else ())
        selection.trial.restore(pod, placement)
        return ((pod, placement),) if selection.allows_plan() else None


class _GivenUnitsOnNode(_OnNode):
    """Strategy: exactly these units."""

    def find(self, selection: VictimSelection) -> PlacedMembers | None:
        return self.nominate(selection) if selection.evict_all(self.units) and self.fits(selection) else None


class _GreedyOnNode(_OnNode):
    """Strategy: units in order until the pod fits; the last in the order is put back first."""

    def find(self, selection: VictimSelection) -> PlacedMembers | None:
        fits = self.fits(selection)
        for unit in self.units:
            if fits:
                break
            fits = selection.evict(unit) and self.fits(selection)
        if not fits and not self.nodes.has_inter_pod_constraints:
            return None
        # Where other pods can be what the pod needs, one that was evicted may have to be put back before it passes at all; and once
        # that one is back, others may follow that could not before.
        while selection.reprieve(sorted(selection.before, reverse=True), fits=lambda: self.fits(selection)):
            fits = True
            if not self.nodes.has_inter_pod_constraints:
                break
        return self.nominate(selection) if fits else None
