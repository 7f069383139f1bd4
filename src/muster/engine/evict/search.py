"""The search for room: take units until the ask is placed with every check on, then give back whoever it can do without.

Two greedy choices are tried: by what a seat costs on each node, and by the order of the units alone; the cheaper valid plan wins.
Sums of freed room only say when a placement is worth trying.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from muster.engine.domains import place_gang
from muster.engine.evict.bundles import ROI_STEP, Bundles, bundles
from muster.engine.evict.figures import DeviceColumns, Figures
from muster.engine.evict.options import ways
from muster.engine.evict.policy import EvictionPolicy, may_take
from muster.engine.evict.seats import Ints, SeatTable, among, seat_table
from muster.engine.evict.wants import Want, fitting, seats_in_rows
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.columns import Amounts
from muster.state.table import BoolColumn, RowIndex
from muster.state.trial import Trial

# A plan within this factor of what its seats should cost is left alone; else so many rounds try to do without one of the dearest.
_GOOD_ENOUGH = 1.02
_ROUNDS = 3
_DEAREST = 3
_FIRST_LOOK = 32


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes, who comes, and what it costs. `victims` are evicted, `released` only lose what they claimed."""

    domain: str
    victims: tuple[Pod, ...]
    released: tuple[Pod, ...]
    seats: tuple[tuple[Pod, Placement], ...]
    cost: float
    worst: int
    """The highest class of those who go: what is never traded for a lower cost."""
    units: tuple[int, ...] = ()
    broken: int = 0
    """Gangs that end."""
    violations: int = 0
    """Disruption budgets that are broken."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why there is no plan, and from when on time alone may change that."""

    why: str
    at: float | None = None


def plan_in(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> Plan | NoPlan:
    """The cheapest plan found in one domain, or why there is none. The world is as before."""
    search = Search(s, ask, policy, domain)
    at = search.bundles.free_at if search.bundles.free_at < np.inf else None
    if not search.bundles.any_left:
        return NoPlan(*barred_until(s, search.bundles, policy))
    if not search.could_ever_fit():
        gone = "the one gang or seat" if len(search.bundles) == 1 else f"all {len(search.bundles)} gangs and seats"
        return NoPlan(f"it would not fit even if {gone} that may go were gone", at)
    chosen = _chosen_by_plugin(s, ask, search.bundles)
    if chosen is not None:
        search.only(chosen)
    first = search.attempt(search.by_node_cost if chosen is None else search.as_chosen)
    plans = [] if first is None else [first]
    if chosen is None and (first is None or search.may_be_beaten(first)):
        second = search.attempt(search.by_order)
        plans += [] if second is None else [second]
    if not plans:
        return NoPlan(search.refusal or "whoever may go, a check still refuses the placement", at)
    best = min(plans, key=search.rank)
    return best if chosen is not None or len(ask.pods) == 1 else search.improved(best)


def _chosen_by_plugin(s: Session, ask: Ask, found: Bundles) -> list[int] | None:
    """Units that a plugin wants taken instead, in its order. The first with an opinion decides."""
    for plugin in s.policy.selects_victims:
        chosen = plugin.victims(s, ask, found)
        if chosen is not None:
            return [int(unit) for unit in chosen if 0 <= unit < len(found)]
    return None


def barred_until(s: Session, found: Bundles, policy: EvictionPolicy) -> tuple[str, float | None]:
    """Why nobody at all may be evicted, and from when on somebody may."""
    if found.free_at == np.inf:
        return policy.nobody, None
    return f"whoever it may evict started too short a time ago; the first may go in {found.free_at - s.now:.0f} s", found.free_at


class Search:
    def __init__(self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> None:
        self.s, self.ask, self.policy, self.domain = s, ask, policy, domain
        self.seats: SeatTable = seat_table(s.world)
        table = s.world.table
        self._figures = Figures(s.world, ask.pods)
        self.wants = self._wants(domain.mask(len(table)))
        self.pods = tuple(pod for want in self.wants for pod in want.pods)
        need = np.sum([want.request * len(want.pods) for want in self.wants], axis=0)
        self.rules = policy.rules(s, ask, self.seats)
        self.bundles: Bundles = bundles(s, ask, policy, self.rules, self.seats, domain, need)
        self._columns = sorted({int(column) for want in self.wants for column in want.asked})
        self.taken: list[int] = []
        self._before: dict[int, list[tuple[Pod, Placement]]] = {}
        self._out: BoolColumn = np.zeros(len(self.bundles), dtype=np.bool_)
        self.refusal = ""
        self._allowed: list[int] | None = None
        self._least: dict[int, float] = {}

    def only(self, units: list[int]) -> None:
        """Take nobody but these, in this order."""
        self._allowed = units

    def _wants(self, inside: BoolColumn) -> list[Want]:
        """The ask by kinds of pod, the largest first: small ones find room more easily."""
        groups: dict[object, list[Pod]] = {}
        for pod in self.ask.pods:
            groups.setdefault(pod.kind, []).append(pod)
        wants = []
        for pods in groups.values():
            request = self.s.world.request(pods[0])
            rows = np.flatnonzero(inside & self.s.columns(pods[0], soon=True).match)
            wants.append(Want(pods, request, np.flatnonzero(request), rows, self._figures))
        capacity = np.maximum(self.s.world.table.allocatable.max(axis=0, initial=1), 1)
        return sorted(wants, key=lambda want: -float((want.request / capacity).max()))

    @cached_property
    def _request(self) -> Amounts:
        """What each seat takes of its node, devices included where the ask wants any."""
        return self._figures.of_seats(self.seats, self.bundles.seat, self.bundles.request)

    @cached_property
    def _slots_of_seats(self) -> list[DeviceColumns]:
        return self._figures.device_columns(self._request)

    # -- could it ever work? ---------------------------------------------------------------------------------------------------

    def could_ever_fit(self) -> bool:
        """With everybody gone who may go: is there room for each kind of member? Fewer questions could not refuse faster."""
        free = self._free()
        self._add(free, self.bundles.local & ~self.bundles.gone[self.bundles.unit])
        return all(seats_in_rows(free[want.rows], want, want.rows).sum() >= len(want.pods) for want in self.wants)

    # -- one plan --------------------------------------------------------------------------------------------------------------

    def attempt(self, take: Callable[[Trial, Want], bool], *, without: int | None = None) -> Plan | None:
        """Take, place, give back, write down, and undo everything."""
        self.taken, self._before = [], {}
        self._out = self.bundles.gone.copy()
        if self._allowed is not None:
            self._out[:] = True
            self._out[self._allowed] = self.bundles.gone[self._allowed]
        if without is not None:
            self._out[without] = True
        with self.s.trial("simulated", cause="Simulated") as trial:
            if not self._make_quota(trial) or not all(self._make_room(trial, want, take) for want in self.wants):
                return None
            self._end_gangs(trial)
            if not self._give_back(trial):
                return None
            return self._plan()

    def may_be_beaten(self, plan: Plan) -> bool:
        """Could another order do better? Not where nothing is lost, where one pod takes the place of the cheapest unit, or where
        only units of the lowest class go, at the price of the cheapest seats there are."""
        if not plan.cost or (len(self.ask.pods) == 1 and len(plan.units) == 1):
            return False
        left = self.bundles.unit_class[~self.bundles.gone]
        return plan.worst > int(left.min(initial=plan.worst)) or plan.cost > self._least_cost(plan.worst)

    def improved(self, plan: Plan) -> Plan:
        """Is there a cheaper plan without one of the dearest units? Asked only where the units at hand promise one."""
        least = self._least_cost(plan.worst)
        for _ in range(_ROUNDS):
            if plan.cost <= least * _GOOD_ENOUGH:
                break
            dearest = sorted(plan.units, key=lambda u: (-self.bundles.unit_cost[u], u))[:_DEAREST]
            ways = [(take, unit) for unit in dearest for take in (self.by_node_cost, self.by_order)]
            found = [better for take, unit in ways if (better := self.attempt(take, without=unit)) is not None]
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
            priority = max((int(self.seats.gang_priority[self.bundles.unit_gang[unit]]) for unit in plan.units), default=0)
        return (plan.worst, step, priority, plan.cost, len(plan.victims))

    def _least_cost(self, worst: int) -> float:
        """About what the lacking seats cost at the price of the units that free them most cheaply. A guess, not a proof."""
        if worst not in self._least:
            self._least[worst] = self._cheapest_seats(worst)
        return self._least[worst]

    def _cheapest_seats(self, worst: int) -> float:
        b, free, total = self.bundles, self._free(), 0.0
        for want in self.wants:
            missing = len(want.pods) - int(seats_in_rows(free[want.rows], want, want.rows).sum())
            here = np.flatnonzero(b.local & ~b.gone[b.unit] & (b.unit_class[b.unit] <= worst))
            per_seat = self._freed_by(here, want, free)
            seats = np.bincount(b.unit[here], weights=per_seat, minlength=len(b))
            found = np.flatnonzero(seats)
            price = b.unit_cost[found] / seats[found]
            order = np.argsort(price, kind="stable")
            filled = np.minimum(np.cumsum(seats[found][order]), max(missing, 0))
            total += float((np.diff(filled, prepend=0.0) * price[order]).sum())
        return total

    def _freed_by(self, here: RowIndex, want: Want, free: Amounts) -> Ints:
        """How many seats each of these frees, about: what it takes itself or, of devices, what is left there without it."""
        b = self.bundles
        if not want.figures.devices:
            return fitting(b.request[here], want)
        rows = b.row[here]
        return seats_in_rows(free[rows] + self._request[here], want, rows) - seats_in_rows(free[rows], want, rows)

    def _make_room(self, trial: Trial, want: Want, take: Callable[[Trial, Want], bool]) -> bool:
        """Take until these members are placed. Where the sums are right and a check still says no, more units go, in order."""
        if not take(trial, want):
            return False
        more = 1
        while True:
            mark = trial.mark()
            if place_gang(self.s, trial, want.pods, domain=self.domain, phase=Phase.NOMINATED).count == len(want.pods):
                return True
            trial.undo_to(mark)
            if not self._take_next(trial, more):
                return False
            more *= 2

    def _make_quota(self, trial: Trial) -> bool:
        """Where a queue is full, units go that are charged to it or to one below it, in order, until the ask is within it."""
        ask = replace(self.ask, purpose=Purpose.NOMINATE)
        verdict = self.s.admit(ask)
        for unit in self._charged_alike() if not verdict.ok else ():
            if self._take(trial, unit) and (verdict := self.s.admit(ask)).ok:
                break
        if not verdict.ok:
            self.refusal = self.refusal or f"even without all who may go, {verdict.why}"
        return verdict.ok

    def _charged_alike(self) -> list[int]:
        """Units whose going leaves room in a queue that the ask is charged to."""
        tree, b = self.s.world.facts.tree, self.bundles
        own = {queue for role in self.ask.gang.roles for queue in tree.path(role.queue)}
        gangs = np.unique(b.unit_gang).tolist()
        near = {number for number in gangs if any(own.intersection(tree.path(r.queue)) for r in self.seats.gangs[number].roles)}
        return [unit for unit, gang in enumerate(b.unit_gang.tolist()) if gang in near]

    def _take_next(self, trial: Trial, count: int) -> bool:
        took = 0
        for unit in np.flatnonzero(~self._out).tolist():
            took += self._take(trial, unit)
            if took == count:
                break
        return took > 0

    def _take(self, trial: Trial, unit: int) -> bool:
        """Tell a unit to go, unless a limit forbids it now."""
        if self._out[unit]:
            return False
        self._out[unit] = True
        pods = [self.seats.pods[at] for at in self.bundles.seats_of(unit, self.seats)]
        verdict = may_take(self.s, self.ask, self.rules, pods)
        if not verdict.ok:
            self.refusal = self.refusal or verdict.why
            return False
        self._before[unit] = [(pod, self.s.world.placement(pod)) for pod in pods]
        self._send(trial, unit)
        self.taken.append(unit)
        return True

    def _send(self, trial: Trial, unit: int) -> None:
        for pod, placement in self._before[unit]:
            if placement.phase is Phase.BOUND:
                trial.evict(pod)
            else:
                trial.release(pod)

    # -- choosing --------------------------------------------------------------------------------------------------------------

    def by_node_cost(self, trial: Trial, want: Want) -> bool:
        """Again and again the cheapest way to one more seat: a unit that frees some, or the first few units of a node together."""
        while True:
            free = self._free()
            slots = np.zeros(len(self.s.world.table), dtype=np.int64)
            slots[want.rows] = seats_in_rows(free[want.rows], want, want.rows)
            missing = len(want.pods) - int(slots.sum())
            if missing <= 0:
                return True
            if not self._take_cheapest(trial, want, free, slots, missing):
                return False

    def _take_cheapest(self, trial: Trial, want: Want, free: Amounts, slots: Ints, missing: int) -> bool:
        took = False
        touched: set[int] = set()
        for units, rows, gain in ways(self.bundles, self._request, self._out, want, free, slots, missing):
            if touched.intersection(rows) or any(self._out[unit] for unit in units):
                continue
            if took and gain > missing:
                # It was judged by seats that are no longer needed: look again at what is cheapest for the rest.
                break
            willing = [unit for unit in units if self._take(trial, unit)]
            if len(willing) == len(units):
                missing -= gain
            took = True
            touched.update(rows)
            if missing <= 0:
                break
        return took

    def as_chosen(self, trial: Trial, want: Want) -> bool:
        """The units that a plugin chose, in its order, until the sums allow a placement."""
        for unit in self._allowed or []:
            if self._has_room(want):
                return True
            self._take(trial, unit)
        return self._has_room(want)

    def _has_room(self, want: Want) -> bool:
        return bool(seats_in_rows(self._free()[want.rows], want, want.rows).sum() >= len(want.pods))

    def by_order(self, trial: Trial, want: Want) -> bool:
        """Units in their order, as few as the sums ask for; of these only the ones on the nodes that serve best."""
        b = self.bundles
        free = self._free()
        count = self._shortest_prefix(want, free)
        if count is None:
            return False
        use = b.local & (b.unit < count) & ~self._out[b.unit]
        cost_here = np.bincount(b.row[use], weights=b.unit_cost[b.unit[use]], minlength=len(free))
        self._add(free, use)
        slots = np.zeros(len(free), dtype=np.int64)
        slots[want.rows] = seats_in_rows(free[want.rows], want, want.rows)
        useful = np.flatnonzero(slots)
        order = useful[np.lexsort((useful, cost_here[useful] / slots[useful]))]
        enough = int(np.searchsorted(np.cumsum(slots[order]), len(want.pods))) + 1
        serving = np.zeros(len(free), dtype=np.bool_)
        serving[order[:enough]] = True
        for unit in np.unique(b.unit[use & serving[b.row]]).tolist():
            self._take(trial, unit)
        return True

    def _shortest_prefix(self, want: Want, free: Amounts) -> int | None:
        """How many units, in order, must go before the sums allow a placement at all."""
        b = self.bundles
        use = b.local & ~self._out[b.unit]

        def enough(count: int) -> bool:
            after = free.copy()
            self._add(after, use & (b.unit < count))
            return bool(seats_in_rows(after[want.rows], want, want.rows).sum() >= len(want.pods))

        low, high = 0, min(_FIRST_LOOK, len(b))
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
        return self._figures.free()

    def _add(self, free: Amounts, which: BoolColumn) -> None:
        """Give the room of these seats back to their nodes, in the columns that matter."""
        rows = self.bundles.row[which]
        for column in self._columns:
            # Sums of whole numbers below 2**53 are exact.
            free[:, column] += np.bincount(rows, weights=self._request[which, column], minlength=len(free)).astype(np.int64)
        for slot in self._slots_of_seats:
            slot.add(free, self.bundles.row, which)

    def _end_gangs(self, trial: Trial) -> None:
        """A gang that goes whole leaves nobody behind: its spare members and its claims go with it."""
        b = self.bundles
        ended = among(self._ended(), len(self.seats.gangs))
        for unit in np.flatnonzero(b.unit_spare & ~b.gone & ended[b.unit_gang]).tolist():
            if unit not in self.taken:
                self._out[unit] = False
                self._take(trial, unit)

    def _ended(self) -> list[int]:
        """Gangs that go whole, as things stand; none where only what is in the domain goes."""
        b = self.bundles
        if self.s.policy.settings.whole_gang == "domain":
            return []
        gangs = [int(b.unit_gang[unit]) for unit in self.taken if not b.unit_spare[unit]]
        return [gang for gang in gangs if not self.seats.gang_single[gang]]

    # -- giving back -----------------------------------------------------------------------------------------------------------

    def _give_back(self, trial: Trial) -> bool:
        """Everybody the plan can do without stays, the dearest first, in the unit in which it was taken."""
        could = self._could_do_without()
        candidates = [unit for unit in sorted(self.taken, key=self._back_first) if unit in could]
        if not candidates:
            return True
        for pod in self.pods:
            trial.release(pod)
        # Where members mind other pods, one who came back may be what allows another to.
        while self._put_back(trial, candidates) and any(self.s.is_entangled(want.pods[0]) for want in self.wants):
            candidates = [unit for unit in candidates if unit in self.taken]
        return place_gang(self.s, trial, self.pods, domain=self.domain, phase=Phase.NOMINATED).count == len(self.pods)

    def _put_back(self, trial: Trial, candidates: list[int]) -> bool:
        """Each in turn, if the ask still finds its place. Did anybody come back?"""
        back = False
        for unit in candidates:
            if self.bundles.unit_spare[unit] and self.bundles.unit_gang[unit] in self._ended():
                continue
            mark = trial.mark()
            for pod, placement in self._before[unit]:
                trial.restore(pod, placement)
            if self._sums_allow() and self.s.admit(replace(self.ask, purpose=Purpose.NOMINATE)).ok and self._all_placed(trial):
                self.taken.remove(unit)
                back = True
            else:
                trial.undo_to(mark)
        return back

    def _back_first(self, unit: int) -> tuple[float, ...]:
        """The dearest is put back first, or the most important where that is the rule."""
        b = self.bundles
        if not self.policy.important_first:
            return (-b.unit_class[unit], -b.unit_cost[unit], -unit)
        gang = b.unit_gang[unit]
        return (-self.seats.gang_priority[gang], -b.unit_cost[unit], self.seats.gang_created[gang], -unit)

    def _sums_allow(self) -> bool:
        free = self._free()
        return all(seats_in_rows(free[want.rows], want, want.rows).sum() >= len(want.pods) for want in self.wants)

    def _could_do_without(self) -> set[int]:
        """Units that could be back in their seats as far as the figures go, were the ask not yet placed."""
        world, free = self.s.world, self._free()
        for pod in self.pods:
            placement = world.placement(pod)
            free[world.table.row[placement.node or ""]] += self._figures.of(pod, placement)
        slots = [np.zeros(len(free), dtype=np.int64) for _ in self.wants]
        for want, column in zip(self.wants, slots, strict=True):
            column[want.rows] = seats_in_rows(free[want.rows], want, want.rows)
        spare = [int(column.sum()) - len(want.pods) for want, column in zip(self.wants, slots, strict=True)]
        found: set[int] = set()
        for unit in self.taken:
            rows, amounts = self._back_on(unit)
            after = free[rows] - amounts
            lost = [
                int((column[rows] - np.where(column[rows] > 0, seats_in_rows(after, want, rows), 0)).sum())
                for want, column in zip(self.wants, slots, strict=True)
            ]
            if all(less <= more for less, more in zip(lost, spare, strict=True)):
                found.add(unit)
        return found

    def _back_on(self, unit: int) -> tuple[RowIndex, Amounts]:
        """The nodes of a unit, those that are there, and what it takes of each."""
        table = self.s.world.table
        seats = [(table.row[p.node or ""], self._figures.of(pod, p)) for pod, p in self._before[unit] if p.node in table.row]
        rows = np.array(sorted({row for row, _ in seats}), dtype=np.intp)
        amounts = np.zeros((len(rows), self._figures.width), dtype=np.int64)
        for row, taken in seats:
            amounts[np.searchsorted(rows, row)] += taken
        return rows, amounts

    def _all_placed(self, trial: Trial) -> bool:
        mark = trial.mark()
        placed = place_gang(self.s, trial, self.pods, domain=self.domain, phase=Phase.NOMINATED)
        trial.undo_to(mark)
        return placed.count == len(self.pods)

    def _plan(self) -> Plan:
        b = self.bundles
        going = [(pod, placement) for unit in sorted(self.taken) for pod, placement in self._before[unit]]
        return Plan(
            domain=self.domain.name,
            victims=tuple(pod for pod, placement in going if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in going if placement.phase is not Phase.BOUND),
            seats=tuple((pod, self.s.world.placement(pod)) for pod in self.pods),
            cost=float(b.unit_cost[self.taken].sum()),
            worst=int(b.unit_class[self.taken].max(initial=0)),
            units=tuple(self.taken),
            broken=sum(not b.unit_spare[unit] and not self.seats.gang_single[b.unit_gang[unit]] for unit in self.taken),
        )
