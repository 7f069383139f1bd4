"""The one search for victims: evict units in a trial until the ask fits, end gangs whole, put back whatever is not needed.

Strategies say which unit is evicted next, how the fit is checked and in which order units are put back. Evicting, putting back,
what ends with a gang, and the plan are here, for a domain of many nodes as for one of a single node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import EvictionPolicy, allows_eviction
from muster.engine.evict.eviction_units import EvictionUnits, UnitsCache, eviction_units
from muster.engine.evict.node_costs import NodeCosts
from muster.engine.evict.victims import VictimTable, victim_table_of
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.node_table import BoolColumn
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial


@dataclass(slots=True)
class ActionCache:
    """What the asks of one action share within a cycle: asks that look alike need not sort all units, nor cost all nodes, again."""

    units: UnitsCache = field(default_factory=dict)
    node_costs: NodeCosts | None = None


class VictimSearch:
    """What all attempts of one ask share: whom it may evict in a domain, as units in their order, and why a unit was refused."""

    def __init__(
        self, s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain, *, need: Amounts, cache: ActionCache | None
    ) -> None:
        self.s, self.ask, self.policy, self.domain = s, ask, policy, domain
        self.cache = cache if cache is not None else ActionCache()
        self.victim_table: VictimTable = victim_table_of(s.world)
        self.rules = policy.rules(s, ask, self.victim_table)
        self.units: EvictionUnits = eviction_units(
            s, ask, policy, self.rules, self.victim_table, domain, need=need, cache=self.cache.units
        )
        self.refusal = ""

    def attempt(self, strategy: Strategy, *, excluded: BoolColumn | None = None) -> Plan | None:
        """Evict, end gangs, put back, write down, and undo everything. `excluded`: units that this attempt must do without."""
        with self.s.trial("simulated", cause="Simulated") as trial:
            selection = VictimSelection(self, trial, self.units.evicted.copy() if excluded is None else excluded)
            if not strategy.free_capacity(selection):
                return None
            gangs_ended = selection.end_gangs(keep_running=strategy.keeps_running_gangs)
            if not strategy.reprieve(selection, gangs_ended=gangs_ended):
                return None
            return strategy.plan(selection)

    def no_plan(self, why: str) -> NoPlan:
        return NoPlan(why, self.units.evictable_at if self.units.evictable_at < np.inf else None)

    def no_victims(self) -> NoPlan:
        """Why no pod at all may be evicted, and from when on one may."""
        wait_s = self.units.evictable_at - self.s.now
        if wait_s == np.inf:
            return NoPlan(self.policy.no_victims_message)
        return self.no_plan(f"every evictable pod started too recently; the first is evictable in {wait_s:.0f} s")


class VictimSelection:
    """The units that one attempt has evicted so far, in the order in which it did."""

    def __init__(self, search: VictimSearch, trial: Trial, excluded: BoolColumn) -> None:
        self.search, self.trial = search, trial
        self.excluded = excluded
        """Units that are evicted, that were refused, or that the attempt must do without."""
        self.before: dict[int, list[tuple[Pod, Placement]]] = {}
        """By evicted unit: its pods, and where they were."""

    def evict(self, unit: int) -> bool:
        """Evict one more unit, unless it is excluded or a limit forbids it now."""
        if self.excluded[unit]:
            return False
        self.excluded[unit] = True
        search = self.search
        pods = [search.victim_table.pods[at] for at in search.units.victims_of(unit, search.victim_table)]
        verdict = allows_eviction(search.s, search.ask, search.rules, pods)
        if not verdict.ok:
            search.refusal = search.refusal or verdict.why
            return False
        self.before[unit] = [(pod, search.s.world.placement(pod)) for pod in pods]
        for pod, placement in self.before[unit]:
            if placement.phase is Phase.BOUND:
                self.trial.evict(pod)
            else:
                self.trial.release(pod)
        return True

    def reprieve(self, units: Iterable[int], *, fits: Callable[[], bool]) -> bool:
        """Each of these in turn is put back if the ask still fits, in the unit in which it was evicted. Was any?"""
        any_back = False
        for unit in units:
            mark = self.trial.mark()
            for pod, placement in self.before[unit]:
                self.trial.restore(pod, placement)
            if fits():
                del self.before[unit]
                any_back = True
            else:
                self.trial.undo_to(mark)
        return any_back

    def end_gangs(self, *, keep_running: bool) -> bool:
        """A gang that is evicted whole ends: its surplus members and its reservations end with it. Were there any?

        `keep_running`: where a limit protects some of these, and with all of them the gang still has its minimum, it runs on and
        they stay.
        """
        groups = [self._left_of_gang(unit) for unit in self.before if unit in self.search.units.surplus_units]
        if not keep_running:
            groups = [sorted(unit for units in groups for unit in units)]
        evicted = [self._evict_group(units, keep_running=keep_running) for units in groups]
        return any(evicted)

    def _left_of_gang(self, whole: int) -> list[int]:
        units = self.search.units
        return [unit for unit in units.surplus_units[whole] if unit not in self.before and not units.evicted[unit]]

    def _evict_group(self, units: list[int], *, keep_running: bool) -> bool:
        mark = self.trial.mark()
        evicted = self._evict_each(units)
        if keep_running and len(evicted) < len(units):
            self.trial.undo_to(mark)
            for unit in evicted:
                del self.before[unit]
            evicted = [] if self.keeps_min(units[0]) else self._evict_each(units)
        return bool(evicted)

    def _evict_each(self, units: list[int]) -> list[int]:
        self.excluded[units] = False
        return [unit for unit in units if self.evict(unit)]

    def ends_with_gang(self, unit: int) -> bool:
        """Is it evicted because its gang is?"""
        whole = int(self.search.units.whole_unit[unit])
        return whole != unit and whole in self.before

    def keeps_min(self, unit: int) -> bool:
        """Has the gang of this unit its minimum without what is evicted?"""
        return reaches_min(self.search.s.world, self.search.victim_table.gangs[self.search.units.unit_gang[unit]])

    def plan(self, domain: str, placements: tuple[tuple[Pod, Placement], ...]) -> Plan:
        evicted = [pair for unit in sorted(self.before) for pair in self.before[unit]]
        units, b = list(self.before), self.search.units
        return Plan(
            domain=domain,
            victims=tuple(pod for pod, placement in evicted if placement.phase is Phase.BOUND),
            released=tuple(pod for pod, placement in evicted if placement.phase is not Phase.BOUND),
            placements=placements,
            cost=float(b.unit_cost[units].sum()),
            worst_class=int(b.unit_class[units].max(initial=0)),
            units=tuple(units),
        )


class Strategy(Protocol):
    """What tells the attempts of a search apart."""

    @property
    def keeps_running_gangs(self) -> bool: ...

    def free_capacity(self, selection: VictimSelection) -> bool:
        """Evict until the ask fits."""
        ...

    def reprieve(self, selection: VictimSelection, *, gangs_ended: bool) -> bool:
        """Put back every unit that is not needed. Does the ask still fit?"""
        ...

    def plan(self, selection: VictimSelection) -> Plan: ...
