"""The search for room: take units until the ask is placed with every check on, then give back whoever it can do without.

Two greedy choices are tried: by what a seat costs on each node, and by the order of the units alone; the cheaper valid plan wins.
Sums of freed room only say when a placement is worth trying.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from muster.engine.domain_placement import place_gang
from muster.engine.evict.candidates import find_candidates
from muster.engine.evict.eviction_policy import EvictionPolicy, allows_eviction
from muster.engine.evict.eviction_units import ROI_STEP, EvictionUnits, eviction_units
from muster.engine.evict.member_demand import MemberDemand, fits_in_amounts, fits_in_rows
from muster.engine.evict.node_amounts import DeviceColumns, NodeAmounts
from muster.engine.evict.victims import IntColumn, VictimTable, mask_of, victim_table_of
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.node_table import BoolColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

# A plan within this factor of what its seats should cost is left alone; else so many rounds try to do without one of the dearest.
_GOOD_ENOUGH = 1.02
_IMPROVEMENT_ROUNDS = 3
_COSTLIEST_TRIED = 3
_FIRST_PREFIX = 32


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes, who comes, and what it costs. `victims` are evicted, `released` only lose what they claimed."""

    domain: str
    victims: tuple[Pod, ...]
    released: tuple[Pod, ...]
    placements: tuple[tuple[Pod, Placement], ...]
    cost: float
    worst_class: int
    """The highest class of those who go: what is never traded for a lower cost."""
    units: tuple[int, ...] = ()
    gangs_ended: int = 0
    """Gangs that end."""
    violations: int = 0
    """Disruption budgets that are broken."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why there is no plan, and from when on time alone may change that."""

    why: str
    at: float | None = None


def plan_in_domain(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> Plan | NoPlan:
    """The cheapest plan found in one domain, or why there is none. The world is as before."""
    search = VictimSearch(s, ask, policy, domain)
    at = search.eviction_units.evictable_at if search.eviction_units.evictable_at < np.inf else None
    if not search.eviction_units.any_left:
        return NoPlan(*why_no_victims(s, search.eviction_units, policy))
    if not search.could_ever_fit():
        evicted = "the one gang or seat" if len(search.eviction_units) == 1 else f"all {len(search.eviction_units)} gangs and seats"
        return NoPlan(f"it would not fit even if {evicted} that may go were gone", at)
    chosen = _chosen_by_plugin(s, ask, search.eviction_units)
    if chosen is not None:
        search.restrict_to(chosen)
    first = search.attempt(search.by_node_cost if chosen is None else search.by_plugin_choice)
    plans = [] if first is None else [first]
    if chosen is None and (first is None or search.may_be_improved(first)):
        second = search.attempt(search.by_order)
        plans += [] if second is None else [second]
    if not plans:
        return NoPlan(search.refusal or "whoever may go, a check still refuses the placement", at)
    best = min(plans, key=search.rank)
    return best if chosen is not None or len(ask.pods) == 1 else search.improve(best)


def _chosen_by_plugin(s: Session, ask: Ask, found: EvictionUnits) -> list[int] | None:
    """Units that a plugin wants taken instead, in its order. The first with an opinion decides."""
    for plugin in s.policy.selects_victims:
        chosen = plugin.victims(s, ask, found)
        if chosen is not None:
            return [int(unit) for unit in chosen if 0 <= unit < len(found)]
    return None


def why_no_victims(s: Session, found: EvictionUnits, policy: EvictionPolicy) -> tuple[str, float | None]:
    """Why nobody at all may be evicted, and from when on somebody may."""
    if found.evictable_at == np.inf:
        return policy.no_victims_message, None
    return (
        f"whoever it may evict started too short a time ago; the first may go in {found.evictable_at - s.now:.0f} s",
        found.evictable_at,
    )


class VictimSearch:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> None:
        self.s, self.ask, self.policy, self.domain = s, ask, policy, domain
        self.victim_table: VictimTable = victim_table_of(s.world)
        table = s.world.table
        self._node_amounts = NodeAmounts(s.world, ask.pods)
        self.demands = self._demands(domain.mask(len(table)))
        self.pods = tuple(pod for demand in self.demands for pod in demand.pods)
        need = np.sum([demand.request * len(demand.pods) for demand in self.demands], axis=0)
        self.rules = policy.rules(s, ask, self.victim_table)
        self.eviction_units: EvictionUnits = eviction_units(s, ask, policy, self.rules, self.victim_table, domain, need)
        self._columns = sorted({int(column) for demand in self.demands for column in demand.requested})
        self.selected: list[int] = []
        self._placements_before: dict[int, list[tuple[Pod, Placement]]] = {}
        self._excluded: BoolColumn = np.zeros(len(self.eviction_units), dtype=np.bool_)
        self.refusal = ""
        self._restricted_to: list[int] | None = None
        self._estimates: dict[int, float] = {}

    def restrict_to(self, units: list[int]) -> None:
        """Take nobody but these, in this order."""
        self._restricted_to = units

    def _demands(self, inside: BoolColumn) -> list[MemberDemand]:
        """The ask by kinds of pod, the largest first: small ones find room more easily."""
        groups: dict[object, list[Pod]] = {}
        for pod in self.ask.pods:
            groups.setdefault(pod.signature, []).append(pod)
        demands = []
        for pods in groups.values():
            request = self.s.world.request(pods[0])
            rows = np.flatnonzero(inside & self.s.node_scores(pods[0], after_releases=True).match)
            demands.append(MemberDemand(pods, request, np.flatnonzero(request), rows, self._node_amounts))
        capacity = np.maximum(self.s.world.table.allocatable.max(axis=0, initial=1), 1)
        return sorted(demands, key=lambda demand: -float((demand.request / capacity).max()))

    @cached_property
    def _request(self) -> Amounts:
        """What each seat takes of its node, devices included where the ask wants any."""
        return self._node_amounts.of_victims(self.victim_table, self.eviction_units.victim, self.eviction_units.request)

    @cached_property
    def _device_columns(self) -> list[DeviceColumns]:
        return self._node_amounts.device_columns(self._request)

    # -- could it ever work? ---------------------------------------------------------------------------------------------------

    def could_ever_fit(self) -> bool:
        """With everybody gone who may go: is there room for each kind of member? Fewer questions could not refuse faster."""
        free = self._free()
        self._add_freed(free, self.eviction_units.in_domain & ~self.eviction_units.evicted[self.eviction_units.unit])
        return all(fits_in_rows(free[demand.rows], demand, demand.rows).sum() >= len(demand.pods) for demand in self.demands)

    # -- one plan --------------------------------------------------------------------------------------------------------------

    def attempt(self, take: Callable[[Trial, MemberDemand], bool], *, without: int | None = None) -> Plan | None:
        """Take, place, give back, write down, and undo everything."""
        self.selected, self._placements_before = [], {}
        self._excluded = self.eviction_units.evicted.copy()
        if self._restricted_to is not None:
            self._excluded[:] = True
            self._excluded[self._restricted_to] = self.eviction_units.evicted[self._restricted_to]
        if without is not None:
            self._excluded[without] = True
        with self.s.trial("simulated", cause="Simulated") as trial:
            if not self._free_quota(trial) or not all(self._free_capacity(trial, demand, take) for demand in self.demands):
                return None
            self._evict_rest_of_gangs(trial)
            if not self._reprieve_unneeded(trial):
                return None
            return self._plan()

    def may_be_improved(self, plan: Plan) -> bool:
        """Could another order do better? Not where nothing is lost, where one pod takes the place of the cheapest unit, or where
        only units of the lowest class go, at the price of the cheapest seats there are."""
        if not plan.cost or (len(self.ask.pods) == 1 and len(plan.units) == 1):
            return False
        left = self.eviction_units.unit_class[~self.eviction_units.evicted]
        return plan.worst_class > int(left.min(initial=plan.worst_class)) or plan.cost > self._cost_estimate(plan.worst_class)

    def improve(self, plan: Plan) -> Plan:
        """Is there a cheaper plan without one of the dearest units? Asked only where the units at hand promise one."""
        least = self._cost_estimate(plan.worst_class)
        for _ in range(_IMPROVEMENT_ROUNDS):
            if plan.cost <= least * _GOOD_ENOUGH:
                break
            dearest = sorted(plan.units, key=lambda u: (-self.eviction_units.unit_cost[u], u))[:_COSTLIEST_TRIED]
            find_candidates = [(take, unit) for unit in dearest for take in (self.by_node_cost, self.by_order)]
            found = [better for take, unit in find_candidates if (better := self.attempt(take, without=unit)) is not None]
            best = min(found, key=self.rank, default=plan)
            if self.rank(best) >= self.rank(plan):
                break
            plan = best
        return plan

    def rank(self, plan: Plan) -> tuple[int, int, int, float, int]:
        """The better plan ranks lower. Where priority does not decide who may go, plans that are about as cheap (as units are: in
        steps of return on cost) are told apart by it before the rest of the cost counts."""
        step = priority = 0
        if self.rules.queue_rank() is not None and plan.cost > 0:
            gain = len(self._columns) - 1  # All of what is asked for, but for the number of pods.
            step = -round(gain / plan.cost / ROI_STEP)
            priority = max(
                (int(self.victim_table.gang_priority[self.eviction_units.unit_gang[unit]]) for unit in plan.units), default=0
            )
        return (plan.worst_class, step, priority, plan.cost, len(plan.victims))

    def _cost_estimate(self, worst_class: int) -> float:
        """About what the lacking seats cost at the price of the units that free them most cheaply. A guess, not a proof."""
        if worst_class not in self._estimates:
            self._estimates[worst_class] = self._estimate_cost(worst_class)
        return self._estimates[worst_class]

    def _estimate_cost(self, worst_class: int) -> float:
        b, free, total = self.eviction_units, self._free(), 0.0
        for demand in self.demands:
            missing = len(demand.pods) - int(fits_in_rows(free[demand.rows], demand, demand.rows).sum())
            here = np.flatnonzero(b.in_domain & ~b.evicted[b.unit] & (b.unit_class[b.unit] <= worst_class))
            per_seat = self._freed_by(here, demand, free)
            victim_table = np.bincount(b.unit[here], weights=per_seat, minlength=len(b))
            found = np.flatnonzero(victim_table)
            price = b.unit_cost[found] / victim_table[found]
            order = np.argsort(price, kind="stable")
            filled = np.minimum(np.cumsum(victim_table[found][order]), max(missing, 0))
            total += float((np.diff(filled, prepend=0.0) * price[order]).sum())
        return total

    def _freed_by(self, here: RowIndex, demand: MemberDemand, free: Amounts) -> IntColumn:
        """How many seats each of these frees, about: what it takes itself or, of devices, what is left there without it."""
        b = self.eviction_units
        if not demand.node_amounts.devices:
            return fits_in_amounts(b.request[here], demand)
        rows = b.row[here]
        return fits_in_rows(free[rows] + self._request[here], demand, rows) - fits_in_rows(free[rows], demand, rows)

    def _free_capacity(self, trial: Trial, demand: MemberDemand, take: Callable[[Trial, MemberDemand], bool]) -> bool:
        """Take until these members are placed. Where the sums are right and a check still says no, more units go, in order."""
        if not take(trial, demand):
            return False
        more = 1
        while True:
            mark = trial.mark()
            if place_gang(self.s, trial, demand.pods, domain=self.domain, phase=Phase.NOMINATED).count == len(demand.pods):
                return True
            trial.undo_to(mark)
            if not self._evict_next(trial, more):
                return False
            more *= 2

    def _free_quota(self, trial: Trial) -> bool:
        """Where a queue is full, units go that are charged to it or to one below it, in order, until the ask is within it."""
        ask = replace(self.ask, purpose=Purpose.NOMINATE)
        verdict = self.s.admit(ask)
        for unit in self._units_in_own_queues() if not verdict.ok else ():
            if self._evict_unit(trial, unit) and (verdict := self.s.admit(ask)).ok:
                break
        if not verdict.ok:
            self.refusal = self.refusal or f"even without all who may go, {verdict.why}"
        return verdict.ok

    def _units_in_own_queues(self) -> list[int]:
        """Units whose going leaves room in a queue that the ask is charged to."""
        tree, b = self.s.world.facts.tree, self.eviction_units
        own = {queue for role in self.ask.gang.roles for queue in tree.path(role.queue)}
        gangs = np.unique(b.unit_gang).tolist()
        near = {
            number for number in gangs if any(own.intersection(tree.path(r.queue)) for r in self.victim_table.gangs[number].roles)
        }
        return [unit for unit, gang in enumerate(b.unit_gang.tolist()) if gang in near]

    def _evict_next(self, trial: Trial, count: int) -> bool:
        took = 0
        for unit in np.flatnonzero(~self._excluded).tolist():
            took += self._evict_unit(trial, unit)
            if took == count:
                break
        return took > 0

    def _evict_unit(self, trial: Trial, unit: int) -> bool:
        """Tell a unit to go, unless a limit forbids it now."""
        if self._excluded[unit]:
            return False
        self._excluded[unit] = True
        pods = [self.victim_table.pods[at] for at in self.eviction_units.victims_of(unit, self.victim_table)]
        verdict = allows_eviction(self.s, self.ask, self.rules, pods)
        if not verdict.ok:
            self.refusal = self.refusal or verdict.why
            return False
        self._placements_before[unit] = [(pod, self.s.world.placement(pod)) for pod in pods]
        self._apply_eviction(trial, unit)
        self.selected.append(unit)
        return True

    def _apply_eviction(self, trial: Trial, unit: int) -> None:
        for pod, placement in self._placements_before[unit]:
            if placement.phase is Phase.BOUND:
                trial.evict(pod)
            else:
                trial.release(pod)

    # -- choosing --------------------------------------------------------------------------------------------------------------

    def by_node_cost(self, trial: Trial, demand: MemberDemand) -> bool:
        """Again and again the cheapest way to one more seat: a unit that frees some, or the first few units of a node together."""
        while True:
            free = self._free()
            slots = np.zeros(len(self.s.world.table), dtype=np.int64)
            slots[demand.rows] = fits_in_rows(free[demand.rows], demand, demand.rows)
            missing = len(demand.pods) - int(slots.sum())
            if missing <= 0:
                return True
            if not self._evict_cheapest(trial, demand, free, slots, missing):
                return False

    def _evict_cheapest(self, trial: Trial, demand: MemberDemand, free: Amounts, slots: IntColumn, missing: int) -> bool:
        took = False
        touched: set[int] = set()
        for units, rows, gain in find_candidates(self.eviction_units, self._request, self._excluded, demand, free, slots, missing):
            if touched.intersection(rows) or any(self._excluded[unit] for unit in units):
                continue
            if took and gain > missing:
                # It was judged by seats that are no longer needed: look again at what is cheapest for the rest.
                break
            willing = [unit for unit in units if self._evict_unit(trial, unit)]
            if len(willing) == len(units):
                missing -= gain
            took = True
            touched.update(rows)
            if missing <= 0:
                break
        return took

    def by_plugin_choice(self, trial: Trial, demand: MemberDemand) -> bool:
        """The units that a plugin chose, in its order, until the sums allow a placement."""
        for unit in self._restricted_to or []:
            if self._has_capacity(demand):
                return True
            self._evict_unit(trial, unit)
        return self._has_capacity(demand)

    def _has_capacity(self, demand: MemberDemand) -> bool:
        return bool(fits_in_rows(self._free()[demand.rows], demand, demand.rows).sum() >= len(demand.pods))

    def by_order(self, trial: Trial, demand: MemberDemand) -> bool:
        """Units in their order, as few as the sums ask for; of these only the ones on the nodes that serve best."""
        b = self.eviction_units
        free = self._free()
        count = self._shortest_prefix(demand, free)
        if count is None:
            return False
        use = b.in_domain & (b.unit < count) & ~self._excluded[b.unit]
        cost_here = np.bincount(b.row[use], weights=b.unit_cost[b.unit[use]], minlength=len(free))
        self._add_freed(free, use)
        slots = np.zeros(len(free), dtype=np.int64)
        slots[demand.rows] = fits_in_rows(free[demand.rows], demand, demand.rows)
        useful = np.flatnonzero(slots)
        order = useful[np.lexsort((useful, cost_here[useful] / slots[useful]))]
        enough = int(np.searchsorted(np.cumsum(slots[order]), len(demand.pods))) + 1
        serving = np.zeros(len(free), dtype=np.bool_)
        serving[order[:enough]] = True
        for unit in np.unique(b.unit[use & serving[b.row]]).tolist():
            self._evict_unit(trial, unit)
        return True

    def _shortest_prefix(self, demand: MemberDemand, free: Amounts) -> int | None:
        """How many units, in order, must go before the sums allow a placement at all."""
        b = self.eviction_units
        use = b.in_domain & ~self._excluded[b.unit]

        def enough(count: int) -> bool:
            after = free.copy()
            self._add_freed(after, use & (b.unit < count))
            return bool(fits_in_rows(after[demand.rows], demand, demand.rows).sum() >= len(demand.pods))

        low, high = 0, min(_FIRST_PREFIX, len(b))
        # A short look first, then ever longer ones: few units are enough most of the time, and few are quick to sum.
        while not enough(high):
            if high == len(b):
                return None
            low, high = high + 1, min(4 * high, len(b))
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle + 1, high)
        return low

    def _free(self) -> Amounts:
        return self._node_amounts.free()

    def _add_freed(self, free: Amounts, which: BoolColumn) -> None:
        """Give the room of these seats back to their nodes, in the columns that matter."""
        rows = self.eviction_units.row[which]
        for column in self._columns:
            # Sums of whole numbers below 2**53 are exact.
            free[:, column] += np.bincount(rows, weights=self._request[which, column], minlength=len(free)).astype(np.int64)
        for slot in self._device_columns:
            slot.add(free, self.eviction_units.row, which)

    def _evict_rest_of_gangs(self, trial: Trial) -> None:
        """A gang that goes whole leaves nobody behind: its spare members and its claims go with it."""
        b = self.eviction_units
        ended = mask_of(self._ended_gangs(), len(self.victim_table.gangs))
        for unit in np.flatnonzero(b.unit_surplus & ~b.evicted & ended[b.unit_gang]).tolist():
            if unit not in self.selected:
                self._excluded[unit] = False
                self._evict_unit(trial, unit)

    def _ended_gangs(self) -> list[int]:
        """Gangs that go whole, as things stand; none where only what is in the domain goes."""
        b = self.eviction_units
        if self.s.policy.settings.whole_gang == "domain":
            return []
        gangs = [int(b.unit_gang[unit]) for unit in self.selected if not b.unit_surplus[unit]]
        return [gang for gang in gangs if not self.victim_table.gang_per_pod[gang]]

    # -- giving back -----------------------------------------------------------------------------------------------------------

    def _reprieve_unneeded(self, trial: Trial) -> bool:
        """Everybody the plan can do without stays, the dearest first, in the unit in which it was taken."""
        could = self._reprievable()
        candidates = [unit for unit in sorted(self.selected, key=self._reprieve_order) if unit in could]
        if not candidates:
            return True
        for pod in self.pods:
            trial.release(pod)
        # Where members mind other pods, one who came back may be what allows another to.
        while self._reprieve(trial, candidates) and any(
            self.s.has_inter_pod_constraints(demand.pods[0]) for demand in self.demands
        ):
            candidates = [unit for unit in candidates if unit in self.selected]
        return place_gang(self.s, trial, self.pods, domain=self.domain, phase=Phase.NOMINATED).count == len(self.pods)

    def _reprieve(self, trial: Trial, candidates: list[int]) -> bool:
        """Each in turn, if the ask still finds its place. Did anybody come back?"""
        back = False
        for unit in candidates:
            if self.eviction_units.unit_surplus[unit] and self.eviction_units.unit_gang[unit] in self._ended_gangs():
                continue
            mark = trial.mark()
            for pod, placement in self._placements_before[unit]:
                trial.restore(pod, placement)
            if self._amounts_allow() and self.s.admit(replace(self.ask, purpose=Purpose.NOMINATE)).ok and self._all_placed(trial):
                self.selected.remove(unit)
                back = True
            else:
                trial.undo_to(mark)
        return back

    def _reprieve_order(self, unit: int) -> tuple[float, ...]:
        """The dearest is put back first, or the most important where that is the rule."""
        b = self.eviction_units
        if not self.policy.reprieve_by_importance:
            return (-b.unit_class[unit], -b.unit_cost[unit], -unit)
        gang = b.unit_gang[unit]
        return (-self.victim_table.gang_priority[gang], -b.unit_cost[unit], self.victim_table.gang_created[gang], -unit)

    def _amounts_allow(self) -> bool:
        free = self._free()
        return all(fits_in_rows(free[demand.rows], demand, demand.rows).sum() >= len(demand.pods) for demand in self.demands)

    def _reprievable(self) -> set[int]:
        """Units that could be back in their seats as far as the figures go, were the ask not yet placed."""
        world, free = self.s.world, self._free()
        for pod in self.pods:
            placement = world.placement(pod)
            free[world.table.row[placement.node or ""]] += self._node_amounts.of_pod(pod, placement)
        slots = [np.zeros(len(free), dtype=np.int64) for _ in self.demands]
        for demand, column in zip(self.demands, slots, strict=True):
            column[demand.rows] = fits_in_rows(free[demand.rows], demand, demand.rows)
        spare = [int(column.sum()) - len(demand.pods) for demand, column in zip(self.demands, slots, strict=True)]
        found: set[int] = set()
        for unit in self.selected:
            rows, amounts = self._amounts_of_unit(unit)
            after = free[rows] - amounts
            lost = [
                int((column[rows] - np.where(column[rows] > 0, fits_in_rows(after, demand, rows), 0)).sum())
                for demand, column in zip(self.demands, slots, strict=True)
            ]
            if all(less <= more for less, more in zip(lost, spare, strict=True)):
                found.add(unit)
        return found

    def _amounts_of_unit(self, unit: int) -> tuple[RowIndex, Amounts]:
        """The nodes of a unit, those that are there, and what it takes of each."""
        table = self.s.world.table
        victim_table = [
            (table.row[p.node or ""], self._node_amounts.of_pod(pod, p))
            for pod, p in self._placements_before[unit]
            if p.node in table.row
        ]
        rows = np.array(sorted({row for row, _ in victim_table}), dtype=np.intp)
        amounts = np.zeros((len(rows), self._node_amounts.width), dtype=np.int64)
        for row, selected in victim_table:
            amounts[np.searchsorted(rows, row)] += selected
        return rows, amounts

    def _all_placed(self, trial: Trial) -> bool:
        mark = trial.mark()
        placed = place_gang(self.s, trial, self.pods, domain=self.domain, phase=Phase.NOMINATED)
        trial.undo_to(mark)
        return placed.count == len(self.pods)

    def _plan(self) -> Plan:
        b = self.eviction_units
        going = [(pod, placement) for unit in sorted(self.selected) for pod, placement in self._placements_before[unit]]
        return Plan(
            domain=self.domain.name,
            victims=tuple(pod for pod, placement in going if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            placements=tuple((pod, self.s.world.placement(pod)) for pod in self.pods),
            cost=float(b.unit_cost[self.selected].sum()),
            worst_class=int(b.unit_class[self.selected].max(initial=0)),
            units=tuple(self.selected),
            gangs_ended=sum(
                not b.unit_surplus[unit] and not self.victim_table.gang_per_pod[b.unit_gang[unit]] for unit in self.selected
            ),
        )
