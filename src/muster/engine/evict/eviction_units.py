"""Victims as units: surplus members of a gang are evicted one by one and cost nothing, the others only with their whole gang.

For one ask and one domain. The order of the units is the order of eviction; their class is what is never traded for efficiency
(surplus before whole, then the victim's priority or its queue).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.evict.eviction_policy import EvictionPolicy, EvictionRules
from muster.engine.evict.unit_membership import unit_numbers
from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import PODS
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

ROI_STEP = 0.05


@dataclass(slots=True)
class EvictionUnits:
    """Columns over placed pods, and over units in the order of eviction: unit 0 is first."""

    victim: RowIndex
    unit: IntColumn
    row: RowIndex
    request: Amounts
    in_domain: BoolColumn
    unit_class: IntColumn
    unit_cost: FloatColumn
    unit_surplus: BoolColumn
    unit_gang: IntColumn
    whole_unit: IntColumn
    """Of each unit, the unit of its gang as a whole that it ends with; its own number where there is none."""
    evicted: BoolColumn
    """Units that were evicted since these were made: an ask that looks like the last one need not sort all of them again."""
    evictable_at: float = np.inf
    """When the first pod that is protected for a time becomes evictable."""
    _by_row: RowIndex | None = None
    _surplus_units: dict[int, list[int]] | None = None

    def __len__(self) -> int:
        return len(self.unit_class)

    @property
    def any_left(self) -> bool:
        return not bool(self.evicted.all())

    def by_row(self) -> RowIndex:
        """Pods in the domain by node, and on each node in the order in which their units are evicted."""
        if self._by_row is None:
            here = np.flatnonzero(self.in_domain)
            # Row and unit are whole numbers that fit into one: a single sort is enough.
            self._by_row = here[np.argsort(self.row[here] * np.int64(len(self) + 1) + self.unit[here])]
        return self._by_row

    @property
    def surplus_units(self) -> dict[int, list[int]]:
        """By unit that is a gang as a whole: the units that end with it."""
        if self._surplus_units is None:
            self._surplus_units = {}
            for unit in np.flatnonzero(self.whole_unit != np.arange(len(self))).tolist():
                self._surplus_units.setdefault(int(self.whole_unit[unit]), []).append(unit)
        return self._surplus_units

    def victims_of(self, unit: int, victim_table: VictimTable) -> list[int]:
        """Its pods, members in their order."""
        mine: RowIndex = self.victim[self.unit == unit]
        found: list[int] = mine.tolist() if len(mine) == 1 else mine[np.argsort(victim_table.rank[mine], kind="stable")].tolist()
        return found


@dataclass(slots=True)
class CachedUnits:
    """Units of an earlier ask of this action, and what they were made from."""

    units: EvictionUnits
    eligible: BoolColumn
    position: int
    """How far the log of placements was known."""


UnitsCache = dict[tuple[int, str, bytes], CachedUnits]
"""By priority of the asking gang, domain, and what is lacking."""


def eviction_units(
    s: Session,
    ask: Ask,
    policy: EvictionPolicy,
    rules: EvictionRules,
    victim_table: VictimTable,
    domain: Domain,
    *,
    need: Amounts,
    cache: UnitsCache,
) -> EvictionUnits:
    """The units that this ask may evict in a domain. `need`: what it lacks in all. `cache`: shared by the asks of an action."""
    key = (ask.gang.priority, domain.name, need.tobytes())
    cached, position = cache.get(key), s.world.changes.placements.position
    if cached is not None and np.array_equal(cached.eligible, rules.eligible) and _still_valid(s, victim_table, cached):
        cached.position = position
        return cached.units
    units = _build(s, ask, policy, rules, victim_table, domain.mask(len(s.world.table)), need)
    cache[key] = CachedUnits(units, rules.eligible, position)
    return units


def _still_valid(s: Session, victim_table: VictimTable, cached: CachedUnits) -> bool:
    """Did nothing happen since but that whole units were evicted, and pods placed that are not eligible? Then mark the former."""
    found = cached.units
    went: list[int] = []
    for uid in dict.fromkeys(s.world.changes.placements.since(cached.position) or ()):
        at = victim_table.index.get(uid)
        if at is not None:
            if cached.eligible[victim_table.gang[at]]:
                return False
        elif (last := victim_table.last_index.get(uid)) is not None:
            went.append(last)
    if not went:
        return True
    units = found.unit[mask_of(went, len(victim_table.pods))[found.victim]]
    whole = np.bincount(found.unit, minlength=len(found))
    if (np.bincount(units, minlength=len(found))[units] < whole[units]).any() or found.unit_surplus[units].any():
        return False
    found.evicted[units] = True
    return True


def _build(
    s: Session, ask: Ask, policy: EvictionPolicy, rules: EvictionRules, victim_table: VictimTable, inside: BoolColumn, need: Amounts
) -> EvictionUnits:
    eligible = rules.eligible
    alive = np.flatnonzero(victim_table.alive[: len(victim_table.pods)]) if eligible.any() else np.zeros(0, dtype=np.intp)
    victim = alive[eligible[victim_table.gang[alive]]]
    in_domain = _in_domain(victim_table, victim, inside)
    if s.policy.settings.whole_gang == "domain":
        victim, in_domain = victim[in_domain], in_domain[in_domain]
    protected = _not_evictable(s, ask, victim_table, victim)
    if policy.bars_non_preemptible:
        protected |= victim_table.non_preemptible[victim] & (victim_table.phase[victim] == Phase.BOUND)
    unit = unit_numbers(s, victim_table, victim, in_domain, protected, need)
    keep = _whole_units(unit, in_domain, protected)
    found = _sorted_units(s, rules, victim_table, victim[keep], unit[keep], in_domain[keep], need)
    found.evictable_at = _first_evictable_at(s, ask, victim_table, victim[protected])
    return found


def _in_domain(victim_table: VictimTable, victim: RowIndex, inside: BoolColumn) -> BoolColumn:
    rows = victim_table.row[victim]
    in_domain: BoolColumn = rows >= 0
    in_domain[in_domain] = inside[rows[in_domain]]
    return in_domain


def _not_evictable(s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
    """All candidates are shown to the plugins once: what one of them protects is not evictable. Nor are binds that were sent."""
    protected: BoolColumn = victim_table.not_evictable[victim] | _bind_was_sent(s, victim_table, victim)
    if s.policy.manner(ask.action) == "soft":
        protected |= np.array([_eviction_was_cancelled(s, victim_table.pods[at]) for at in victim.tolist()], dtype=np.bool_)
    for plugin in s.policy.filters_victims:
        protected |= ~plugin.evictable(s, ask, victim_table, victim)
    return protected


def _bind_was_sent(s: Session, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
    """Binds that an earlier cycle decided on."""
    binding: BoolColumn = victim_table.phase[victim] == Phase.BINDING
    if not s.same_moment:
        return binding & (victim_table.since[victim] < s.now)
    ours = {step.pod.uid for step in s.world.placements.steps()}
    return binding & np.array([victim_table.pods[at].uid not in ours for at in victim.tolist()], dtype=np.bool_)


def _eviction_was_cancelled(s: Session, pod: Pod) -> bool:
    """Was it marked for soft eviction a short while ago, and the mark removed?"""
    since = s.world.memory.cancelled_evictions.get(pod.uid, pod.eviction_cancelled_at)
    return since is not None and s.now < since + s.policy.settings.eviction_cooldown_s


def _first_evictable_at(s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> float:
    times = [plugin.evictable_at(s, ask, victim_table, victim) for plugin in s.policy.delays_eviction]
    later = [float(column[column > s.now].min(initial=np.inf)) for column in times]
    return min(later, default=np.inf)


def _whole_units(unit: IntColumn, in_domain: BoolColumn, protected: BoolColumn) -> BoolColumn:
    """Keep units that have a pod in the domain and none that is protected: a whole gang is evicted whole or not at all."""
    size = int(unit.max(initial=0)) + 1
    known = unit >= 0
    has_protected, inside = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    has_protected[unit[known & protected]] = True
    inside[unit[known & in_domain]] = True
    keep = known.copy()
    keep[known] = inside[unit[known]] & ~has_protected[unit[known]]
    return keep


def _sorted_units(
    s: Session,
    rules: EvictionRules,
    victim_table: VictimTable,
    victim: RowIndex,
    unit: IntColumn,
    in_domain: BoolColumn,
    need: Amounts,
) -> EvictionUnits:
    """Number the units in the order of eviction."""
    names, unit = np.unique(unit, return_inverse=True)
    units, total = len(names), len(victim_table.gangs)
    gang = np.zeros(units, dtype=np.int64)
    gang[unit] = victim_table.gang[victim]
    free = names >= total + len(victim_table.pods)
    alone = (names >= total) & ~free
    surplus = free | (alone & ~victim_table.gang_per_pod[gang])
    cost, gain, lost = _unit_costs(s, victim_table, victim, unit, in_domain, units, need)
    waste = cost.copy()
    cost[surplus] = 0.0
    roi = np.where(cost > 0, np.round(gain / np.where(cost > 0, cost, 1.0) / ROI_STEP), 0.0)
    ranks = rules.queue_rank()
    first = ranks[gang] if ranks is not None else victim_table.gang_priority[gang]
    last = victim_table.gang_priority[gang] if ranks is not None else np.zeros(units, dtype=np.int64)
    kind = np.where(free, 0, np.where(surplus, 1, 2))
    over_budget = _violates_budgets(s, victim_table, victim, unit, units)
    # Within a gang: what covers most of the need, the lowest priority, the least waste.
    member, youngest, pod_priority = _member_columns(victim_table, victim, unit, units)
    within_gang = (member, youngest, waste, pod_priority, -gain)
    between_gangs = (victim_table.gang_rank[gang], -victim_table.gang_created[gang], lost, last, np.where(surplus, 0.0, -roi))
    order = np.lexsort((*within_gang, *between_gangs, over_budget, first, kind))
    position = np.empty(units, dtype=np.int64)
    position[order] = np.arange(units)
    return EvictionUnits(
        victim=victim,
        unit=position[unit],
        row=victim_table.row[victim],
        request=victim_table.request[victim],
        in_domain=in_domain,
        unit_class=_classes(kind[order], first[order], over_budget[order]),
        unit_cost=cost[order],
        unit_surplus=surplus[order],
        unit_gang=gang[order],
        whole_unit=_whole_units_of(s, victim_table, gang[order], surplus[order]),
        evicted=np.zeros(units, dtype=np.bool_),
    )


def _member_columns(
    victim_table: VictimTable, victim: RowIndex, unit: IntColumn, units: int
) -> tuple[IntColumn, FloatColumn, IntColumn]:
    """Of each unit, by its last pod: which member it is, since when it is placed (the youngest first), its own priority."""
    member, youngest, priority = np.zeros(units, dtype=np.int64), np.zeros(units), np.zeros(units, dtype=np.int64)
    member[unit], youngest[unit] = victim_table.rank[victim], -victim_table.since[victim]
    priority[unit] = victim_table.pod_priority[victim]
    return member, youngest, priority


def _whole_units_of(s: Session, victim_table: VictimTable, gang: IntColumn, surplus: BoolColumn) -> IntColumn:
    """Of each unit, the unit that it ends with. None where only what is in the domain is evicted."""
    own = np.arange(len(gang))
    if s.policy.settings.whole_gang == "domain":
        return own
    whole = np.flatnonzero(~surplus & ~victim_table.gang_per_pod[gang])
    of_gang = np.full(len(victim_table.gangs), -1, dtype=np.int64)
    of_gang[gang[whole]] = whole
    return np.where(surplus & (of_gang[gang] >= 0), of_gang[gang], own)


def _violates_budgets(s: Session, victim_table: VictimTable, victim: RowIndex, unit: IntColumn, units: int) -> BoolColumn:
    """Units whose eviction violates a disruption budget: of equals in priority they are last."""
    column = np.zeros(units, dtype=np.bool_)
    for plugin in s.policy.checks_budgets:
        column |= plugin.violates_budget(s, victim_table, victim, unit, units)
    return column


def _classes(kind: IntColumn, first: IntColumn, over_budget: BoolColumn) -> IntColumn:
    """Equal numbers for units that may be traded for each other; growing along the order."""
    if not len(kind):
        return kind
    change = (np.diff(kind) != 0) | (((np.diff(first) != 0) | (over_budget[1:] != over_budget[:-1])) & (kind[1:] == 2))
    return np.concatenate([[0], np.cumsum(change)]).astype(np.int64)


def _unit_costs(
    s: Session, victim_table: VictimTable, victim: RowIndex, unit: IntColumn, in_domain: BoolColumn, units: int, need: Amounts
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Of each unit: what it costs everywhere, what it gains here, and the hours of work that it loses."""
    requested = np.flatnonzero(need > 0)
    requested = requested[requested != s.world.columns.position[PODS]]
    share = (victim_table.request[victim][:, requested] / need[requested]).sum(axis=1)
    hours = np.zeros(len(victim))
    for plugin in s.policy.counts_lost_hours:
        hours += plugin.lost_hours(s, victim_table, victim)
    cost = _rounded(np.bincount(unit, weights=share * (1.0 + hours), minlength=units))
    lost = _rounded(np.bincount(unit, weights=hours, minlength=units))
    gain = np.zeros(units)
    for column in requested.tolist():
        here = np.bincount(unit[in_domain], weights=victim_table.request[victim[in_domain], column], minlength=units)
        gain += np.minimum(here, need[column]) / need[column]
    return cost, gain, lost


def _rounded(sums: npt.NDArray[np.generic]) -> FloatColumn:
    """The order in which fractions are added up must not show in who is evicted."""
    return np.asarray(np.round(sums.astype(np.float64), 9), dtype=np.float64)
