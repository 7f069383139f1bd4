"""The one search for victims: evict units in a trial until the ask fits, put back whatever is not needed, and undo everything.

Strategies say which unit is evicted next and how the fit is checked. Evicting, putting back, what ends with a gang, and the plan
are here, for a domain of many nodes as for one of a single node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from muster.engine.domain_placement import place_gang
from muster.engine.evict.contested import Contested, total_need
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import EvictionPolicy, EvictionRules, allows_eviction
from muster.engine.evict.eviction_units import EvictionUnits, UnitsCache, eviction_units
from muster.engine.evict.node_costs import NodeCosts
from muster.engine.evict.plan_order import PlanOrder
from muster.engine.evict.role_shares import KnownShares, UnitView, lacking_queues, surplus_choices, why_not_shared_out
from muster.engine.evict.unit_membership import SURPLUS, WHOLE, SurplusPart
from muster.engine.evict.victims import VictimTable, victim_table_of
from muster.engine.explain import nodes_that_refuse, plural
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.node_table import BoolColumn
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

_MOST_QUEUES_EXPLAINED = 3
# Where there are more units, what is in the way with all of them evicted takes too long to find out.
_MOST_UNITS_EXPLAINED = 256
# For so many sets of units an order is looked for in which limits allow them.
_MOST_ORDERS = 1024


@dataclass(slots=True)
class ActionCache:
    """What the asks of one action share within a cycle: asks that look alike need not sort all units, nor cost all nodes, again."""

    units: UnitsCache = field(default_factory=dict)
    node_costs: NodeCosts | None = None
    without_plan: dict[Hashable, NoPlan] = field(default_factory=dict)
    """Asks for which there is no plan as long as nobody moves."""
    refused_beside_kept: dict[bytes, dict[Hashable, NoPlan]] = field(default_factory=dict)
    """The same for asks that leave out these nodes, which are kept for others. Nothing else is known of those."""

    def without_nodes(self, left_out: BoolColumn | None) -> ActionCache:
        if left_out is None:
            return self
        return ActionCache(without_plan=self.refused_beside_kept.setdefault(left_out.tobytes(), {}))

    def forget_refusals(self) -> None:
        self.without_plan.clear()
        self.refused_beside_kept.clear()


@dataclass(slots=True)
class EvictionAsk:
    """What all searches for one ask share: the rules of its action, what is contested, and how many placements may still be
    tried."""

    s: Session
    ask: Ask
    policy: EvictionPolicy
    contested: Contested
    cache: ActionCache
    placements_left: int
    victim_table: VictimTable = field(init=False)
    rules: EvictionRules = field(init=False)
    need: Amounts = field(init=False)
    """What its pods request together."""
    measured: BoolColumn = field(init=False)
    """What is contested for those of its members that lack something: in these columns costs are measured."""

    def __post_init__(self) -> None:
        self.need = total_need(self.s, self.ask.pods)
        self.victim_table = victim_table_of(self.s.world)
        self.rules = self.policy.rules(self.s, self.ask, self.victim_table, self.contested)
        lacking = lacking_queues(self.s, self.ask, self.contested)
        self.measured = np.logical_or.reduce([self.contested[queue] for queue in lacking])


class VictimSearch:
    """What all attempts in one domain share: whom the ask may evict there, as units in their order, and why a unit was refused."""

    def __init__(self, eviction_ask: EvictionAsk, domain: Domain) -> None:
        self.eviction_ask = eviction_ask
        s = self.s = eviction_ask.s
        self.ask, self.rules, self.domain = eviction_ask.ask, eviction_ask.rules, domain
        self.victim_table = eviction_ask.victim_table
        self.units: EvictionUnits = eviction_units(
            s,
            self.ask,
            self.rules,
            self.victim_table,
            domain,
            need=eviction_ask.need,
            contested=eviction_ask.measured,
            cache=eviction_ask.cache.units,
        )
        self.order = PlanOrder(
            self.units,
            queues_first=self.rules.queue_rank() is not None,
            priority_first=s.policy.settings.order == "priority",
            sums_priorities=len(self.ask.pods) == 1,
            budgets=self.units.budgets,
        )
        self.refusal = ""
        self.orders: dict[frozenset[int], list[int] | None] = {frozenset(): []}
        """An order in which limits allow these units to be evicted, or none; for sets that the usual orders do not suit."""
        self.view = UnitView(lambda unit: int(self.units.priority[unit]), KnownShares(), self._surplus_instead, self.pods_of)

    def pods_of(self, unit: int) -> list[Pod]:
        return [self.victim_table.pods[at] for at in self.units.victims_of(unit)]

    def _surplus_instead(self, unit: int) -> Iterator[tuple[int, ...]]:
        """Sets of surplus members that the gang can do without, in place of all that it has."""
        units, gang = self.units, int(self.units.gang[unit])
        if units.kind[unit] != WHOLE or units.divides[unit] or gang not in units.surplus:
            return iter(())
        alone = np.flatnonzero((units.gang == gang) & (units.kind == SURPLUS)).tolist()
        return surplus_choices(
            alone, lambda chosen: units.surplus[gang].allows([pod for each in chosen for pod in self.pods_of(each)], {})
        )

    def attempt(self, strategy: Strategy, *, excluded: BoolColumn | None = None) -> Plan | None:
        """Evict, put back, write down, and undo everything. `excluded`: units that this attempt must do without."""
        if self.eviction_ask.placements_left <= 0:
            self.refusal = self.refusal or "the search ended after as many placements as the policy allows"
            return None
        with self.s.trial("simulated", cause="Simulated") as trial:
            selection = VictimSelection(self, trial, self.units.evicted.copy() if excluded is None else excluded.copy())
            placements = strategy.find(selection)
            return None if placements is None else selection.plan(strategy.domain_name, placements)

    def why_never(self, otherwise: str) -> str:
        """Why there is no plan: what was refused, or what is still in the way with every evictable unit evicted."""
        if self.refusal or len(self.units) > _MOST_UNITS_EXPLAINED:
            return self.refusal or otherwise
        s, nominating = self.s, replace(self.ask, purpose=Purpose.NOMINATE)
        with s.trial("simulated", cause="Simulated") as trial:
            selection = VictimSelection(self, trial, self.units.evicted.copy())
            for unit in range(len(self.units)):
                selection.evict(unit)
            if (verdict := s.admit(nominating)).ok:
                placed = place_gang(s, trial, self.ask.pods, domain=self.domain, phase=Phase.NOMINATED)
                if placed.first_refused is None:
                    return otherwise
                if placed.verdict is None:
                    nodes, _, _ = nodes_that_refuse(s, self.ask.gang, placed.first_refused, self.domain, after_releases=True)
                    fit = f"{placed.count} of {plural(len(self.ask.pods), 'member fits', 'members fit')}"
                    return f"even with every evictable pod evicted, {fit}: {nodes}"
                verdict = placed.verdict
        return f"even with every evictable pod evicted, {verdict.why}"

    def refuse(self, why: str, *, evicted: int = 0) -> None:
        """The first refusal is the one that is reported; with its figures when so many pods were `evicted`."""
        after = f"with {plural(evicted, 'pod', 'pods')} evicted, " if evicted else ""
        self.refusal = self.refusal or f"{after}{why}"

    def no_plan(self, why: str) -> NoPlan:
        barred, kept = self._barred_texts(), _kept_texts(self.eviction_ask, self.domain)
        text = "; ".join([f"{why} ({', '.join(barred)})" if barred else why, *kept])
        return NoPlan(text, self.units.evictable_at if self.units.evictable_at < np.inf else None)

    def no_victims(self) -> NoPlan:
        """Why no pod at all may be evicted, and from when on one may."""
        if self.units.barred:
            return self.no_plan("no pod that it could evict is evictable now")
        return nobody_eligible(self.eviction_ask, self.domain)

    def _barred_texts(self) -> list[str]:
        barred = [barred.text(self.s, self.victim_table) for barred in self.units.barred]
        if self.units.evictable_at < np.inf:
            barred.append(f"the first is evictable in {self.units.evictable_at - self.s.now:.0f} s")
        return barred


def nobody_eligible(eviction_ask: EvictionAsk, domain: Domain) -> NoPlan:
    """Why no gang at all may be evicted for this ask: a search would find nobody."""
    return NoPlan("; ".join(_kept_texts(eviction_ask, domain)) or eviction_ask.rules.why_nobody())


def _kept_texts(eviction_ask: EvictionAsk, domain: Domain) -> list[str]:
    """Why other queues do not give, each with the number of their pods in the domain: those with most pods."""
    table, used = eviction_ask.victim_table, len(eviction_ask.victim_table.pods)
    rows = table.row[:used]
    here = table.alive[:used] & (rows >= 0)
    here[here] = domain.mask(len(eviction_ask.s.world.table))[rows[here]]
    pods_of = np.bincount(table.gang[:used][here], minlength=len(table.gangs))
    counts = [(int(pods_of[gangs].sum()), why) for why, gangs in eviction_ask.rules.barred_by_queue()]
    said = sorted([(-count, why) for count, why in counts if count])
    texts = [f"{why} ({plural(-count, 'pod', 'pods')})" for count, why in said[:_MOST_QUEUES_EXPLAINED]]
    more = -sum(count for count, _ in said[_MOST_QUEUES_EXPLAINED:])
    return [*texts, f"{plural(more, 'pod', 'pods')} of other queues that do not give"] if more else texts


class VictimSelection:
    """The units that one attempt has evicted so far, in the order in which it did."""

    def __init__(self, search: VictimSearch, trial: Trial, excluded: BoolColumn) -> None:
        self.search, self.trial = search, trial
        self.excluded = excluded
        """Units that are evicted, that were refused, or that the attempt must do without."""
        self.before: dict[int, list[tuple[Pod, Placement]]] = {}
        """By evicted unit: its pods, and where they were."""
        self._taken: dict[int, Counter[SurplusPart]] = {}
        """By gang, the surplus that was evicted of what it counts in."""
        self._whole: set[int] = set()
        """Gangs that were evicted whole."""

    def evict(self, unit: int) -> bool:
        """Evict one more unit, unless it is excluded or a limit forbids it now."""
        if self.excluded[unit]:
            return False
        search, units = self.search, self.search.units
        gang = int(units.gang[unit])
        self.excluded[unit] = True
        pods = self.search.pods_of(unit)
        absorbed = self._absorbed(unit, pods)
        if gang in self._whole or (units.kind[unit] == SURPLUS and not self._has_surplus(gang, pods, absorbed)):
            return False
        gone = {pod.uid for other in absorbed for pod, _ in self.before[other]}
        left = [pod for pod in pods if pod.uid not in gone]
        verdict = allows_eviction(search.s, search.ask, search.rules, left, priority=int(units.priority[unit]))
        if not verdict.ok:
            self.refuse(verdict.why)
            return False
        for other in absorbed:
            self._count(other, -1)
        self.before[unit] = [*(pair for other in absorbed for pair in self.before.pop(other)), *map(self._remove, left)]
        self._count(unit, 1)
        return True

    def refuse(self, why: str) -> None:
        self.search.refuse(why, evicted=len(self.victims()))

    def _absorbed(self, unit: int, pods: Sequence[Pod]) -> list[int]:
        """A gang or subgroup that is evicted whole takes along what was evicted of it before."""
        units = self.search.units
        if not units.has_siblings[unit] or (len(pods) == 1 and not self._is_whole_gang(unit)):
            return []
        before = [other for other in self.before if units.gang[other] == units.gang[unit]]
        if self._is_whole_gang(unit):
            return before
        inside = {pod.uid for pod in pods}
        return [other for other in before if all(pod.uid in inside for pod, _ in self.before[other])]

    def _remove(self, pod: Pod) -> tuple[Pod, Placement]:
        """Evict or release one pod; where it was."""
        placement = self.search.s.world.placement(pod)
        (self.trial.evict if placement.phase is Phase.BOUND else self.trial.release)(pod)
        return pod, placement

    def _is_whole_gang(self, unit: int) -> bool:
        units = self.search.units
        return bool(units.kind[unit] == WHOLE and not units.divides[unit])

    def _has_surplus(self, gang: int, pods: Sequence[Pod], absorbed: Sequence[int]) -> bool:
        """Can the gang do without these members, too? Those that were evicted with their subgroup cannot be evicted again."""
        surplus = self.search.units.surplus.get(gang)
        if surplus is None:
            return True
        taken = self._taken.get(gang, _NOTHING)
        if absorbed:
            taken = Counter(taken)
            for other in absorbed:
                taken.subtract(surplus.used_by(self.search.pods_of(other)))
        if not surplus.allows(pods, taken):
            return False
        return not surplus.has_subgroups or not any(pods[0].uid in each for each in self._ended_subgroups(gang, absorbed))

    def _ended_subgroups(self, gang: int, absorbed: Sequence[int]) -> Iterator[set[str]]:
        for other, pairs in self.before.items():
            if len(pairs) > 1 and self.search.units.gang[other] == gang and other not in absorbed:
                yield {pod.uid for pod, _ in pairs}

    def _count(self, unit: int, by: int) -> None:
        units = self.search.units
        gang = int(units.gang[unit])
        if units.kind[unit] == SURPLUS and gang in units.surplus:
            taken = self._taken.setdefault(gang, Counter())
            for part, used in units.surplus[gang].used_by(self.search.pods_of(unit)).items():
                taken[part] += by * used
        elif self._is_whole_gang(unit):
            (self._whole.add if by > 0 else self._whole.discard)(gang)

    def reprieve(self, units: Iterable[int], *, fits: Callable[[], bool]) -> bool:
        """Each of these in turn is put back if the ask still fits, in the unit in which it was evicted. Was any? Of many more and
        more are put back together as long as that goes well: most are on nodes that nobody needs."""
        left, any_back, together = list(units), False, 1
        grows = len(left) > _FEW_UNITS
        while left:
            some = left[:together]
            if self._put_back(some, fits=fits):
                any_back = True
                together *= 2 if grows else 1
            elif len(some) > 1:
                together = len(some) // 2
                continue
            del left[: len(some)]
        return any_back

    def _put_back(self, units: list[int], *, fits: Callable[[], bool]) -> bool:
        """All of these or none."""
        mark, with_units = self.trial.mark(), self.before
        # Judged as the plan would be without them.
        self.before = {other: pairs for other, pairs in with_units.items() if other not in units}
        for unit in units:
            for pod, placement in with_units[unit]:
                self.trial.restore(pod, placement)
        if not fits():
            self.trial.undo_to(mark)
            self.before = with_units
            return False
        for unit in units:
            self._count(unit, -1)
            self.excluded[unit] = False
        return True

    def evict_all(self, units: list[int]) -> bool:
        """Evict all of these. Limits may allow them in one order and not in another: most is allowed with the largest last."""
        b = self.search.units
        mark, excluded = self.trial.mark(), self.excluded.copy()
        if all(self.evict(unit) for unit in units):
            return True
        by_size = sorted(units, key=lambda unit: (b.size[unit], unit))
        for order in (by_size if by_size != units else None, self._allowed_order):
            self.trial.undo_to(mark)
            self.excluded = excluded.copy()
            self.before, self._taken, self._whole = {}, {}, set()
            found = order(frozenset(units)) if callable(order) else order
            if found is not None and all(self.evict(unit) for unit in found):
                return True
        return False

    def _allowed_order(self, units: frozenset[int]) -> list[int] | None:
        """An order in which each of these may be evicted when its turn comes, found from its end: whether a unit may be the last
        depends on who the others are, not on their order."""
        orders = self.search.orders
        if units not in orders and len(orders) < _MOST_ORDERS:
            orders[units] = None
            for unit in sorted(units, reverse=True):
                others = units - {unit}
                if self._may_be_last(unit, others) and (before := self._allowed_order(others)) is not None:
                    orders[units] = [*before, unit]
                    break
        return orders.get(units)

    def _may_be_last(self, unit: int, others: frozenset[int]) -> bool:
        search, mark = self.search, self.trial.mark()
        pods = {each: [search.victim_table.pods[at] for at in search.units.victims_of(each)] for each in (unit, *sorted(others))}
        for each in others:
            for pod in pods[each]:
                self._remove(pod)
        verdict = allows_eviction(search.s, search.ask, search.rules, pods[unit], priority=int(search.units.priority[unit]))
        self.trial.undo_to(mark)
        return verdict.ok

    def victims(self) -> list[Pod]:
        return [pod for pairs in self.before.values() for pod, placement in pairs if placement.phase is Phase.BOUND]

    def allows_plan(self, *, unneeded: bool = False) -> bool:
        """With the members of the ask nominated: do the action's rules allow the plan as it is? Reservations that end count
        like victims: only who could evict a gang ends them. `unneeded`: units that nobody needs are put back later."""
        search = self.search
        if len(search.eviction_ask.contested) > 1 and search.eviction_ask.policy.is_shared_out:
            tried = search.view.known.placements
            why = why_not_shared_out(search.s, search.ask, search.rules, search.domain, self.before, search.view, unneeded=unneeded)
            search.eviction_ask.placements_left -= search.view.known.placements - tried
        else:
            why = search.rules.allows_plan([[pod for pod, _ in pairs] for pairs in self.before.values()]).why
        if why:
            self.refuse(why)
        return not why

    def plan(self, domain: str, placements: tuple[tuple[Pod, Placement], ...]) -> Plan:
        evicted = [pair for unit in sorted(self.before) for pair in self.before[unit]]
        units = sorted(self.before)
        return Plan(
            domain=domain,
            victims=tuple(pod for pod, placement in evicted if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in evicted if placement.phase is not Phase.BOUND),
            placements=placements,
            cost=float(self.search.units.cost[units].sum()),
            key=self.search.order.key(units),
            units=tuple(units),
            why_evicted=self.search.rules.why_evicted,
            crossing=self.search.rules.crossing_gangs(self.victims()),
        )


_NOTHING: Final[Counter[SurplusPart]] = Counter()
_FEW_UNITS: Final = 16

PlacedMembers = tuple[tuple[Pod, Placement], ...]


class Strategy(Protocol):
    """What tells the attempts of a search apart."""

    @property
    def domain_name(self) -> str: ...

    def find(self, selection: VictimSelection) -> PlacedMembers | None:
        """Evict until the ask fits, and put back what is not needed. Where its members are placed then; None where they are not."""
        ...
