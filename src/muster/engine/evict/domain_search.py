"""The search in a domain: the ask of a gang, placed with every filter on once the sums allow it.

Few units: all combinations, the best first, so that the first that works is the best plan. Many: two greedy choices (by what a
member costs on each node, and by the order of the units alone), then single units and pairs. Sums of freed amounts only say when a
placement is worth trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations as pairs_of
from itertools import takewhile

import numpy as np

from muster.engine.domain_placement import place_gang
from muster.engine.evict import unit_choice
from muster.engine.evict.combinations import combinations
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import in_queues
from muster.engine.evict.exact_packing import pack
from muster.engine.evict.freed_amounts import FreedAmounts
from muster.engine.evict.member_demand import MemberDemand, fits_in_rows, member_demands
from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.evict.plan_order import PlanKey
from muster.engine.evict.queue_shortfall import QueueShortfall
from muster.engine.evict.victim_search import EvictionAsk, PlacedMembers, VictimSearch, VictimSelection
from muster.engine.fit_counts import count_fits
from muster.engine.hooks import Domain, Purpose
from muster.engine.place import fits_on
from muster.model.pod import Phase, Pod
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

# A plan within this factor of its estimate is left alone; else it is tried without one of its costliest units, and so many rounds
# combine its units with others, as many as can be.
_GOOD_ENOUGH = 1.02
_IMPROVEMENT_ROUNDS, _FEW_ROUNDS = 12, 3
_COSTLIEST_TRIED = 3
_COMBINED_UNITS = (32, 24, 20, 16, 14, 12)
# Where the greedy choices fail, so many units are tried alone and in pairs.
_TRIED_ALONE = 64
# So many amounts are compared at once.
_MAX_CELLS = 2_000_000
# Costs are rounded: a bound must not exceed them for that.
_ROUNDING = 1e-6

Choice = Callable[[FreedAmounts, VictimSelection, MemberDemand], bool]
"""Evict units until the sums allow to place these members."""


NO_BETTER_PLAN = NoPlan("no plan there is better")


def plan_in_domain(eviction_ask: EvictionAsk, domain: Domain, *, bound: PlanKey = (), best: PlanKey | None = None) -> Plan | NoPlan:
    """The best plan found in one domain, or why there is none. The world is as before. `bound`: the first keys of any plan there;
    `best`: the key of a plan that it must be better than."""
    found = DomainSearch(eviction_ask, domain)
    search = found.search
    if not search.units.any_left:
        return search.no_victims()
    if not found.could_ever_fit():
        count = search.units.count_victims()
        evictable = "the one evictable gang or pod" if count == 1 else f"all {count} evictable gangs and pods"
        return search.no_plan(f"it would not fit even if {evictable} were evicted")
    if bound and best is not None and not found.may_improve(best, bound):
        return NO_BETTER_PLAN
    plan = found.best()
    if plan is None:
        return search.no_plan(search.why_never("no choice of the evictable pods was found that makes it fit"))
    return plan


class DomainSearch:
    def __init__(self, eviction_ask: EvictionAsk, domain: Domain) -> None:
        node_amounts = NodeAmounts(eviction_ask.s.world, eviction_ask.ask.pods)
        self.demands = member_demands(eviction_ask.s, eviction_ask.ask, domain, node_amounts)
        self.search = VictimSearch(eviction_ask, domain)
        self.amounts = FreedAmounts(node_amounts, self.search.units, self.search.victim_table, self.demands)
        self._queue_shortfall = QueueShortfall(self.search)
        self._by_amounts = all(eviction_ask.s.needs_capacity_only(demand.pods[0]) for demand in self.demands)
        self._estimates: dict[int, float] = {}

    def could_ever_fit(self) -> bool:
        """Would every member fit by the amounts with all evictable units evicted?"""
        return self._could_fit(~self.search.units.evicted)

    def _could_fit(self, units: BoolColumn) -> bool:
        """Would every member fit by the amounts with these evicted?"""
        b, free = self.search.units, self.amounts.free()
        self.amounts.add_freed(free, b.in_domain & units[b.unit])
        return all(demand.missing(free) <= 0 for demand in self.demands)

    def may_improve(self, best: PlanKey, bound: PlanKey) -> bool:
        """Could there be a better plan than that here? `bound`: the first keys of any plan in the domain. At least it costs what
        the domain lacks as a whole, at the lowest price."""
        b, cost = self.search.units, 0.0
        useful = self.search.order.may_improve(best) & ~b.evicted
        if not self._could_fit(useful):
            return False
        here = np.flatnonzero(b.in_domain & useful[b.unit])
        inside = self.search.domain.mask(len(self.search.s.world.table))
        free = np.maximum(self.amounts.free()[inside], 0).sum(axis=0)
        for column in self.amounts.columns:
            lacks = sum(len(demand.pods) * int(demand.request[column]) for demand in self.demands) - int(free[column])
            freed = np.bincount(b.unit[here], weights=b.request[here, column], minlength=len(b))
            cost = max(cost, _lowest_price(b.cost, freed, max(lacks, 0)))
        return best > (*bound, *[0.0] * (self.search.order.cost_column - len(bound)), cost - _ROUNDING)

    def best(self) -> Plan | None:
        chosen = self._chosen_by_plugin()
        if chosen is not None:
            excluded = np.ones(len(self.search.units), dtype=np.bool_)
            excluded[chosen] = self.search.units.evicted[chosen]
            return self._attempt(unit_choice.in_given_order(chosen), excluded)
        few = self._all_combinations()
        if few is not None:
            return self._first_that_works(few)
        return self._greedy() or self._first_that_works(self._alone_and_in_pairs())

    def _chosen_by_plugin(self) -> list[int] | None:
        """Units that a plugin wants evicted instead, in its order. The first with an opinion decides."""
        s, units = self.search.s, self.search.units
        for plugin in s.policy.selects_victims:
            chosen = plugin.victims(s, self.search.ask, units)
            if chosen is not None:
                return [int(unit) for unit in chosen if 0 <= unit < len(units)]
        return None

    # -- few units ---------------------------------------------------------------------------------------------------------------

    def _all_combinations(self) -> Iterator[list[int]] | None:
        left = np.flatnonzero(~self.search.units.evicted)
        if len(left) > _TRIED_ALONE:
            return None
        return combinations(
            self.search.order,
            self.search.victim_table,
            left.tolist(),
            self.amounts.of_victims,
            self._enough,
            by_amounts=self._by_amounts,
        )

    def _first_that_works(self, candidates: Iterator[list[int]]) -> Plan | None:
        for units in candidates:
            plan = self.search.attempt(_GivenUnits(self.search, self.amounts, units))
            if plan is not None:
                return plan
            if self.search.eviction_ask.placements_left <= 0:
                break
        return None

    def _alone_and_in_pairs(self) -> Iterator[list[int]]:
        first = np.flatnonzero(~self.search.units.evicted)[:_TRIED_ALONE]
        alone = [[unit] for unit in first.tolist()]
        both = [list(pair) for pair in pairs_of(first.tolist(), 2)]
        for candidates in (alone, both):
            chosen = np.zeros((len(candidates), len(first)), dtype=np.int64)
            for at, units in enumerate(candidates):
                chosen[at, np.searchsorted(first, units)] = 1
            enough = self._enough(first, chosen)
            keys = self.search.order.columns(first, chosen)
            yield from (candidates[at] for at in np.lexsort(keys[::-1]).tolist() if enough[at])

    def _enough(self, unit: RowIndex, counts: IntColumn) -> BoolColumn:
        """Which of these combinations free enough, by the amounts on nodes and in the queues of the ask."""
        found = self._queue_shortfall.enough(unit, counts)
        b, free = self.search.units, self.amounts.free()
        entries = [b.entries_of(each) for each in unit.tolist()]
        here = [np.flatnonzero(b.in_domain[part]) + part.start for part in entries]
        rows = np.unique(b.row[np.concatenate(here)]) if here else np.zeros(0, dtype=np.intp)
        freed = np.zeros((len(unit), len(rows), free.shape[1]), dtype=np.int64)
        for at, mine in enumerate(here):
            np.add.at(freed[at], np.searchsorted(rows, b.row[mine]), self.amounts.of_victims[mine])
        others = np.setdiff1d(np.arange(len(free)), rows)
        elsewhere = [int(demand.fit_counts(free)[others].sum()) for demand in self.demands]
        step = max(1, _MAX_CELLS // max(1, freed[0].size if len(unit) else 1))
        for start in range(0, len(counts), step):
            part = slice(start, start + step)
            after = free[rows] + np.tensordot(counts[part], freed, axes=1)
            for demand, elsewhere_count in zip(self.demands, elsewhere, strict=True):
                fits = self._fits_in(demand, rows, after)
                found[part] &= fits + elsewhere_count >= len(demand.pods)
        return found

    @staticmethod
    def _fits_in(demand: MemberDemand, rows: RowIndex, after: Amounts) -> IntColumn:
        usable = np.flatnonzero(np.isin(rows, demand.rows))
        amounts = after[:, usable]
        counts = fits_in_rows(amounts.reshape(-1, after.shape[2]), demand, np.tile(rows[usable], len(after)))
        total: IntColumn = counts.reshape(len(after), len(usable)).sum(axis=1)
        return total

    # -- many units ----------------------------------------------------------------------------------------------------------------

    def _greedy(self) -> Plan | None:
        first = self._attempt(unit_choice.by_node_cost)
        plans = [] if first is None else [first]
        if first is None or self._may_be_improved(first):
            second = self._attempt(unit_choice.by_order)
            plans += [] if second is None else [second]
        if not plans:
            return None
        best = min(plans, key=lambda plan: plan.key)
        return best if len(self.search.ask.pods) == 1 else self._improve(best)

    def _attempt(self, choose: Choice, excluded: BoolColumn | None = None) -> Plan | None:
        return self.search.attempt(_Greedy(self.search, self.amounts, choose), excluded=excluded)

    def _worst_class(self, plan: Plan) -> int:
        return int(self.search.units.unit_class[list(plan.units)].max(initial=0))

    def _may_be_improved(self, plan: Plan) -> bool:
        """Could another order do better? Not where nothing is lost, where one pod replaces the cheapest unit, or where only units
        of the lowest class are evicted, at the price of the cheapest capacity that there is."""
        if not plan.cost or (len(self.search.ask.pods) == 1 and len(plan.units) == 1):
            return False
        worst = self._worst_class(plan)
        left = self.search.units.unit_class[~self.search.units.evicted]
        return worst > int(left.min(initial=worst)) or plan.cost > self._cost_estimate(worst)

    def _improve(self, plan: Plan) -> Plan:
        """Is there a better plan without one of its costliest units, or among its units and the cheapest others? Tried only where
        the estimate is lower; that is a guess, so where there are few units it does not count."""
        estimate = self._cost_estimate(self._worst_class(plan)) * _GOOD_ENOUGH
        few = len(self.search.units) <= 2 * _TRIED_ALONE
        tried: set[int] = set()
        for at in range(_IMPROVEMENT_ROUNDS if few else _FEW_ROUNDS):
            if plan.cost <= estimate and not few:
                break
            before = plan
            if at < _FEW_ROUNDS:
                plan = min([plan, *self._without_the_costliest(plan)], key=lambda each: each.key)
            units = self._with_cheapest_others(plan, tried)
            plan = self._first_that_works(self._better_combinations(plan, units, tried)) or plan
            if plan is before and len(units) == len(plan.units):
                break
        return plan

    def _without_the_costliest(self, plan: Plan) -> Iterator[Plan]:
        """Greedy plans that do without one of the costliest units of this one."""
        useful = self.search.order.may_improve(plan.key)
        for unit in sorted(plan.units, key=lambda unit: (-self.search.units.cost[unit], unit))[:_COSTLIEST_TRIED]:
            excluded = self.search.units.evicted.copy()
            excluded[unit] = True
            if not self._could_fit(useful & ~excluded):
                continue
            for choose in (unit_choice.by_node_cost, unit_choice.by_order):
                if (found := self._attempt(choose, excluded)) is not None:
                    yield found

    def _with_cheapest_others(self, plan: Plan, tried: set[int]) -> list[int]:
        """The plan's units and a few that free capacity most cheaply, without those that were tried before."""
        b, units = self.search.units, list(plan.units)
        left = np.flatnonzero(~b.evicted & (b.unit_class <= self._worst_class(plan)))
        left = left[~np.isin(left, [*tried, *units])]
        by_size, by_cost = (
            left[np.lexsort((left, b.cost[left] / np.maximum(b.size[left], 1e-9)))],
            left[np.lexsort((left, b.cost[left]))],
        )
        cheapest = dict.fromkeys(unit for pair in zip(by_size.tolist(), by_cost.tolist(), strict=True) for unit in pair)
        return units + list(cheapest)

    def _better_combinations(self, plan: Plan, units: list[int], tried: set[int]) -> Iterator[list[int]]:
        """Combinations of as many of these units as can be tried that would be better than the plan."""
        for size in _COMBINED_UNITS:
            some = sorted(units[: max(size, len(plan.units))])
            found = combinations(
                self.search.order,
                self.search.victim_table,
                some,
                self.amounts.of_victims,
                self._enough,
                by_amounts=self._by_amounts,
            )
            if found is not None:
                tried.update(some)
                yield from takewhile(lambda chosen: self.search.order.key(chosen) < plan.key, found)
                return

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
        return _lowest_price(b.cost, members, max(demand.missing(free), 0))

    def _members_freed(self, here: RowIndex, demand: MemberDemand, free: Amounts) -> IntColumn:
        """About how many members each of these makes fit: what it uses itself or, of devices, what is left there without it."""
        units = self.search.units
        if not demand.node_amounts.devices:
            return count_fits(units.request[here], demand.request)
        rows = units.row[here]
        return fits_in_rows(free[rows] + self.amounts.of_victims[here], demand, rows) - fits_in_rows(free[rows], demand, rows)


class _InDomain:
    """What both strategies share: the fit is checked by placing all members, with queues and the action's rules."""

    def __init__(self, search: VictimSearch, amounts: FreedAmounts) -> None:
        self.search, self.amounts = search, amounts
        self.domain_name = search.domain.name
        self.pods = tuple(pod for demand in amounts.demands for pod in demand.pods)
        self._nominating = replace(search.ask, purpose=Purpose.NOMINATE)

    def admits(self, selection: VictimSelection) -> bool:
        verdict = self.search.s.admit(self._nominating)
        if not verdict.ok:
            selection.refuse(verdict.why)
        return verdict.ok

    def place(self, trial: Trial, pods: Sequence[Pod]) -> bool:
        self.search.eviction_ask.placements_left -= 1
        mark = trial.mark()
        if place_gang(self.search.s, trial, pods, domain=self.search.domain, phase=Phase.NOMINATED).count == len(pods):
            return True
        trial.undo_to(mark)
        return len(pods) == len(self.pods) and self._place_packed(trial)

    def _place_packed(self, trial: Trial) -> bool:
        """Placed one after the other they do not fit; in another arrangement they may."""
        s, mark, demands = self.search.s, trial.mark(), self.amounts.demands
        if self.search.ask.gang.subgroups or not all(s.needs_capacity_only(demand.pods[0]) for demand in demands):
            return False
        for pod, row in pack(demands, self.amounts.free()) or ():
            node = s.world.table.names[row]
            if not fits_on(s, pod, node, after_releases=True) or not s.quota_fit(pod, count=1, phase=Phase.NOMINATED).fit_count:
                trial.undo_to(mark)
                return False
            trial.place(pod, node, phase=Phase.NOMINATED)
        return trial.mark() > mark

    def placements(self) -> PlacedMembers:
        world = self.search.s.world
        return tuple((pod, world.placement(pod)) for pod in self.pods)


class _GivenUnits(_InDomain):
    """Strategy: exactly these units."""

    def __init__(self, search: VictimSearch, amounts: FreedAmounts, units: list[int]) -> None:
        super().__init__(search, amounts)
        self.units = units

    def find(self, selection: VictimSelection) -> PlacedMembers | None:
        if not selection.evict_all(self.units) or not self.admits(selection) or not self.place(selection.trial, self.pods):
            return None
        return self.placements() if selection.allows_plan() else None


class _Greedy(_InDomain):
    """Strategy: units as `choose` says, the last in the order put back first."""

    def __init__(self, search: VictimSearch, amounts: FreedAmounts, choose: Choice) -> None:
        super().__init__(search, amounts)
        self.choose = choose

    def find(self, selection: VictimSelection) -> PlacedMembers | None:
        if not self._free_queues(selection) or not all(self._free_nodes(selection, demand) for demand in self.amounts.demands):
            return None
        if not selection.allows_plan(unneeded=True) and not self._evict_in_own_queues(selection):
            return None
        return self.placements() if self._reprieve(selection) and selection.allows_plan() else None

    def _free_queues(self, selection: VictimSelection) -> bool:
        """Where a queue is full, units charged to it or to one below it are evicted, in order, until the ask is within it."""
        s = self.search.s
        verdict = s.admit(self._nominating)
        for unit in self._units_in_own_queues(selection) if not verdict.ok else ():
            if selection.evict(unit) and (verdict := s.admit(self._nominating)).ok:
                break
        return verdict.ok or self.admits(selection)

    def _evict_in_own_queues(self, selection: VictimSelection) -> bool:
        """The asking gang's queues would be over their shares: less if more of their own pods are evicted."""
        return any(selection.evict(unit) and selection.allows_plan(unneeded=True) for unit in self._units_in_own_queues(selection))

    def _units_in_own_queues(self, selection: VictimSelection) -> list[int]:
        """Units that are charged to a queue that the ask is charged to, without those that were evicted or refused."""
        tree, table = self.search.s.world.facts.tree, self.search.victim_table
        own = {queue for role in self.search.ask.gang.roles for queue in tree.path(role.queue)}
        queues = {*table.queue_number}.union(*table.multi_queue.values())
        near = in_queues(table, {queue for queue in queues if not own.isdisjoint(tree.path(queue))})
        found: list[int] = np.flatnonzero(near[self.search.units.gang] & ~selection.excluded).tolist()
        return found

    def _free_nodes(self, selection: VictimSelection, demand: MemberDemand) -> bool:
        """Evict until these members are placed. Where the sums allow it and a filter still refuses, more units follow, in order."""
        if not self.choose(self.amounts, selection, demand):
            return False
        more = 1
        while self.search.eviction_ask.placements_left > 0:
            mark = selection.trial.mark()
            if self.place(selection.trial, demand.pods):
                return True
            selection.trial.undo_to(mark)
            if not _evict_next(selection, more):
                return False
            more *= 2
        return False

    # -- putting back ------------------------------------------------------------------------------------------------------------

    def _reprieve(self, selection: VictimSelection) -> bool:
        """Put back every unit that is not needed. Does the ask still fit?"""
        could = self._reprievable(selection)
        units = [unit for unit in sorted(selection.before, reverse=True) if unit in could]
        if not units:
            return True
        for pod in self.pods:
            selection.trial.release(pod)

        def still_fits() -> bool:
            return self._amounts_allow() and self.search.s.admit(self._nominating).ok and self._could_place(selection)

        # Where members have inter-pod constraints, one that was put back may be what allows another.
        while selection.reprieve(units, fits=still_fits) and any(
            self.search.s.has_inter_pod_constraints(demand.pods[0]) for demand in self.amounts.demands
        ):
            units = [unit for unit in units if unit in selection.before]
        return self.place(selection.trial, self.pods)

    def _amounts_allow(self) -> bool:
        free = self.amounts.free()
        return all(demand.missing(free) <= 0 for demand in self.amounts.demands)

    def _could_place(self, selection: VictimSelection) -> bool:
        mark = selection.trial.mark()
        placed = self.place(selection.trial, self.pods) and selection.allows_plan(unneeded=True)
        selection.trial.undo_to(mark)
        return placed

    def _reprievable(self, selection: VictimSelection) -> set[int]:
        """Units that could be put back as far as the amounts allow, were the ask not yet placed."""
        world, free, demands = self.search.s.world, self.amounts.free(), self.amounts.demands
        for pod in self.pods:
            placement = world.placement(pod)
            free[world.table.row[placement.node or ""]] += self.amounts.node_amounts.of_pod(pod, placement)
        counts = [demand.fit_counts(free) for demand in demands]
        surplus = [int(column.sum()) - len(demand.pods) for demand, column in zip(demands, counts, strict=True)]
        units = np.array(sorted(selection.before), dtype=np.intp)
        could = np.ones(len(units), dtype=np.bool_)
        unit, rows, freed = self.amounts.by_node(units)
        for demand, column, more in zip(demands, counts, surplus, strict=True):
            fits = np.where(column[rows] > 0, fits_in_rows(free[rows] - freed, demand, rows), 0)
            could &= np.bincount(unit, weights=column[rows] - fits, minlength=len(units)) <= more
        return set(units[could].tolist())


def _lowest_price(cost: FloatColumn, gain: FloatColumn | IntColumn, needed: int) -> float:
    """What it costs to gain so much from the units that give it most cheaply, parts of units included."""
    found = np.flatnonzero(gain)
    price = cost[found] / gain[found]
    order = np.argsort(price, kind="stable")
    filled = np.minimum(np.cumsum(gain[found][order]), needed)
    return float((np.diff(filled, prepend=0.0) * price[order]).sum())


def _evict_next(selection: VictimSelection, count: int) -> bool:
    evicted = 0
    for unit in np.flatnonzero(~selection.excluded).tolist():
        evicted += selection.evict(unit)
        if evicted == count:
            break
    return evicted > 0
