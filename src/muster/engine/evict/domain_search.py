"""The search in a domain of many nodes: the ask of a gang, placed with every filter on once the sums allow it.

Two greedy choices of units are tried: by what a member costs on each node, and by the order of the units alone; the cheaper plan
wins. Sums of freed amounts only say when a placement is worth trying.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from muster.engine.domain_placement import place_gang
from muster.engine.evict import unit_choice
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import EvictionPolicy
from muster.engine.evict.eviction_units import ROI_STEP
from muster.engine.evict.freed_amounts import FreedAmounts
from muster.engine.evict.member_demand import MemberDemand, fits_in_amounts, fits_in_rows, member_demands
from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.evict.victim_search import ActionCache, VictimSearch, VictimSelection
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

# A plan within this factor of its estimate is left alone; else so many rounds try to do without one of the costliest units.
_GOOD_ENOUGH = 1.02
_IMPROVEMENT_ROUNDS = 3
_COSTLIEST_TRIED = 3

Choice = Callable[[FreedAmounts, VictimSelection, MemberDemand], bool]
"""Evict units until the sums allow to place these members."""


def plan_in_domain(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain, cache: ActionCache | None = None) -> Plan | NoPlan:
    """The cheapest plan found in one domain, or why there is none. The world is as before."""
    found = DomainSearch(s, ask, policy, domain, cache)
    search = found.search
    if not search.units.any_left:
        return search.no_victims()
    if not found.could_ever_fit():
        count = len(search.units)
        evictable = "the one evictable gang or pod" if count == 1 else f"all {count} evictable gangs and pods"
        return search.no_plan(f"it would not fit even if {evictable} were evicted")
    plan = found.cheapest()
    if plan is None:
        return search.no_plan(search.refusal or "whichever pods are evicted, a filter still refuses the placement")
    return plan


class DomainSearch:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain, cache: ActionCache | None = None) -> None:
        node_amounts = NodeAmounts(s.world, ask.pods)
        self.demands = member_demands(s, ask, domain, node_amounts)
        need = np.sum([demand.request * len(demand.pods) for demand in self.demands], axis=0)
        self.search = VictimSearch(s, ask, policy, domain, need=need, cache=cache)
        self.amounts = FreedAmounts(node_amounts, self.search.units, self.search.victim_table, self.demands)
        self._estimates: dict[int, float] = {}

    def could_ever_fit(self) -> bool:
        """Would every member fit with all evictable units evicted? No fewer checks could refuse faster."""
        units, free = self.search.units, self.amounts.free()
        self.amounts.add_freed(free, units.in_domain & ~units.evicted[units.unit])
        return all(demand.missing(free) <= 0 for demand in self.demands)

    def cheapest(self) -> Plan | None:
        chosen = self._chosen_by_plugin()
        if chosen is not None:
            excluded = np.ones(len(self.search.units), dtype=np.bool_)
            excluded[chosen] = self.search.units.evicted[chosen]
            return self.attempt(unit_choice.in_given_order(chosen), excluded)
        first = self.attempt(unit_choice.by_node_cost)
        plans = [] if first is None else [first]
        if first is None or self._may_be_improved(first):
            second = self.attempt(unit_choice.by_order)
            plans += [] if second is None else [second]
        if not plans:
            return None
        best = min(plans, key=self.rank)
        return best if len(self.search.ask.pods) == 1 else self.improve(best)

    def _chosen_by_plugin(self) -> list[int] | None:
        """Units that a plugin wants evicted instead, in its order. The first with an opinion decides."""
        s, units = self.search.s, self.search.units
        for plugin in s.policy.selects_victims:
            chosen = plugin.victims(s, self.search.ask, units)
            if chosen is not None:
                return [int(unit) for unit in chosen if 0 <= unit < len(units)]
        return None

    def attempt(self, choose: Choice, excluded: BoolColumn | None = None) -> Plan | None:
        return self.search.attempt(_InDomain(self.search, self.amounts, choose), excluded=excluded)

    def _attempt_without(self, unit: int, choose: Choice) -> Plan | None:
        excluded = self.search.units.evicted.copy()
        excluded[unit] = True
        return self.attempt(choose, excluded)

    # -- better plans ----------------------------------------------------------------------------------------------------------

    def _may_be_improved(self, plan: Plan) -> bool:
        """Could another order do better? Not where nothing is lost, where one pod replaces the cheapest unit, or where only units
        of the lowest class are evicted, at the price of the cheapest capacity that there is."""
        if not plan.cost or (len(self.search.ask.pods) == 1 and len(plan.units) == 1):
            return False
        left = self.search.units.unit_class[~self.search.units.evicted]
        return plan.worst_class > int(left.min(initial=plan.worst_class)) or plan.cost > self._cost_estimate(plan.worst_class)

    def improve(self, plan: Plan) -> Plan:
        """Is there a cheaper plan without one of the costliest units? Tried only where the estimate is lower."""
        estimate = self._cost_estimate(plan.worst_class)
        for _ in range(_IMPROVEMENT_ROUNDS):
            if plan.cost <= estimate * _GOOD_ENOUGH:
                break
            costliest = sorted(plan.units, key=lambda unit: (-self.search.units.unit_cost[unit], unit))[:_COSTLIEST_TRIED]
            choices = (unit_choice.by_node_cost, unit_choice.by_order)
            tried = [self._attempt_without(unit, choose) for unit in costliest for choose in choices]
            best = min((found for found in tried if found is not None), key=self.rank, default=plan)
            if self.rank(best) >= self.rank(plan):
                break
            plan = best
        return plan

    def rank(self, plan: Plan) -> tuple[int, int, int, float, int]:
        """The better plan ranks lower. Where priority does not decide who is evictable, plans that cost about the same (as units
        do: in steps of return on cost) are told apart by it before the rest of the cost counts."""
        step = priority = 0
        if self.search.rules.queue_rank() is not None and plan.cost > 0:
            gain = len(self.amounts.columns) - 1  # All that is requested, but for the number of pods.
            step = -round(gain / plan.cost / ROI_STEP)
            units, victim_table = self.search.units, self.search.victim_table
            priority = max((int(victim_table.gang_priority[units.unit_gang[unit]]) for unit in plan.units), default=0)
        return (plan.worst_class, step, priority, plan.cost, len(plan.victims))

    def _cost_estimate(self, worst_class: int) -> float:
        """About what the missing members cost at the price of the units that free capacity most cheaply. A guess, not a proof."""
        if worst_class not in self._estimates:
            free = self.amounts.free()
            self._estimates[worst_class] = sum((self._estimate(demand, worst_class, free) for demand in self.demands), 0.0)
        return self._estimates[worst_class]

    def _estimate(self, demand: MemberDemand, worst_class: int, free: Amounts) -> float:
        b = self.search.units
        here = np.flatnonzero(b.in_domain & ~b.evicted[b.unit] & (b.unit_class[b.unit] <= worst_class))
        members = np.bincount(b.unit[here], weights=self._members_freed(here, demand, free), minlength=len(b))
        found = np.flatnonzero(members)
        price = b.unit_cost[found] / members[found]
        order = np.argsort(price, kind="stable")
        filled = np.minimum(np.cumsum(members[found][order]), max(demand.missing(free), 0))
        return float((np.diff(filled, prepend=0.0) * price[order]).sum())

    def _members_freed(self, here: RowIndex, demand: MemberDemand, free: Amounts) -> IntColumn:
        """About how many members each of these makes fit: what it uses itself or, of devices, what is left there without it."""
        units = self.search.units
        if not demand.node_amounts.devices:
            return fits_in_amounts(units.request[here], demand)
        rows = units.row[here]
        return fits_in_rows(free[rows] + self.amounts.of_victims[here], demand, rows) - fits_in_rows(free[rows], demand, rows)


class _InDomain:
    """Strategy: units as `choose` says, the fit checked by placing all members, the costliest unit put back first."""

    keeps_running_gangs = False

    def __init__(self, search: VictimSearch, amounts: FreedAmounts, choose: Choice) -> None:
        self.search, self.amounts, self.choose = search, amounts, choose
        self.pods = tuple(pod for demand in amounts.demands for pod in demand.pods)
        self._nominating = replace(search.ask, purpose=Purpose.NOMINATE)

    def free_capacity(self, selection: VictimSelection) -> bool:
        return self._free_quota(selection) and all(self._free_nodes(selection, demand) for demand in self.amounts.demands)

    def _free_quota(self, selection: VictimSelection) -> bool:
        """Where a queue is full, units charged to it or to one below it are evicted, in order, until the ask is within it."""
        s = self.search.s
        verdict = s.admit(self._nominating)
        for unit in self._units_in_own_queues() if not verdict.ok else ():
            if selection.evict(unit) and (verdict := s.admit(self._nominating)).ok:
                break
        if not verdict.ok:
            self.search.refusal = self.search.refusal or f"even with every evictable pod evicted, {verdict.why}"
        return verdict.ok

    def _units_in_own_queues(self) -> list[int]:
        """Units that are charged to a queue that the ask is charged to."""
        tree, units, gangs = self.search.s.world.facts.tree, self.search.units, self.search.victim_table.gangs
        own = {queue for role in self.search.ask.gang.roles for queue in tree.path(role.queue)}
        near = {
            number
            for number in np.unique(units.unit_gang).tolist()
            if any(own.intersection(tree.path(role.queue)) for role in gangs[number].roles)
        }
        return [unit for unit, gang in enumerate(units.unit_gang.tolist()) if gang in near]

    def _free_nodes(self, selection: VictimSelection, demand: MemberDemand) -> bool:
        """Evict until these members are placed. Where the sums allow it and a filter still refuses, more units follow, in order."""
        if not self.choose(self.amounts, selection, demand):
            return False
        more = 1
        while True:
            mark = selection.trial.mark()
            if self._place(selection.trial, tuple(demand.pods)):
                return True
            selection.trial.undo_to(mark)
            if not _evict_next(selection, more):
                return False
            more *= 2

    def _place(self, trial: Trial, pods: tuple[Pod, ...]) -> bool:
        return place_gang(self.search.s, trial, pods, domain=self.search.domain, phase=Phase.NOMINATED).count == len(pods)

    # -- putting back ------------------------------------------------------------------------------------------------------------

    def reprieve(self, selection: VictimSelection, *, gangs_ended: bool) -> bool:  # noqa: ARG002
        could = self._reprievable(selection)
        units = [unit for unit in sorted(selection.before, key=self._reprieve_order) if unit in could]
        if not units:
            return True
        for pod in self.pods:
            selection.trial.release(pod)

        def still_fits() -> bool:
            return self._amounts_allow() and self.search.s.admit(self._nominating).ok and self._could_place(selection.trial)

        # Where members have inter-pod constraints, one that was put back may be what allows another.
        while selection.reprieve((unit for unit in units if not selection.ends_with_gang(unit)), fits=still_fits) and any(
            self.search.s.has_inter_pod_constraints(demand.pods[0]) for demand in self.amounts.demands
        ):
            units = [unit for unit in units if unit in selection.before]
        return self._place(selection.trial, self.pods)

    def _reprieve_order(self, unit: int) -> tuple[float, ...]:
        """The costliest is put back first, or that of the highest priority where that is the rule."""
        b, victim_table = self.search.units, self.search.victim_table
        if not self.search.policy.reprieve_by_priority:
            return (-b.unit_class[unit], -b.unit_cost[unit], -unit)
        gang = b.unit_gang[unit]
        return (-victim_table.gang_priority[gang], -b.unit_cost[unit], victim_table.gang_created[gang], -unit)

    def _amounts_allow(self) -> bool:
        free = self.amounts.free()
        return all(demand.missing(free) <= 0 for demand in self.amounts.demands)

    def _could_place(self, trial: Trial) -> bool:
        mark = trial.mark()
        placed = self._place(trial, self.pods)
        trial.undo_to(mark)
        return placed

    def _reprievable(self, selection: VictimSelection) -> set[int]:
        """Units that could be put back as far as the amounts allow, were the ask not yet placed."""
        world, free, demands = self.search.s.world, self.amounts.free(), self.amounts.demands
        for pod in self.pods:
            placement = world.placement(pod)
            free[world.table.row[placement.node or ""]] += self.amounts.node_amounts.of_pod(pod, placement)
        counts = [demand.fit_counts(free) for demand in demands]
        surplus = [int(column.sum()) - len(demand.pods) for demand, column in zip(demands, counts, strict=True)]
        found: set[int] = set()
        for unit, before in selection.before.items():
            rows, amounts = self.amounts.of_placements(world, before)
            after = free[rows] - amounts
            lost = [
                int((column[rows] - np.where(column[rows] > 0, fits_in_rows(after, demand, rows), 0)).sum())
                for demand, column in zip(demands, counts, strict=True)
            ]
            if all(less <= more for less, more in zip(lost, surplus, strict=True)):
                found.add(unit)
        return found

    def plan(self, selection: VictimSelection) -> Plan:
        world = self.search.s.world
        return selection.plan(self.search.domain.name, tuple((pod, world.placement(pod)) for pod in self.pods))


def _evict_next(selection: VictimSelection, count: int) -> bool:
    evicted = 0
    for unit in np.flatnonzero(~selection.excluded).tolist():
        evicted += selection.evict(unit)
        if evicted == count:
            break
    return evicted > 0
