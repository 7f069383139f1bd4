"""Victims as units of eviction, for one ask and one domain, in the order in which they are evicted.

The class of a unit is what is never traded for a lower cost: budgets, surplus before whole, then the victim's priority
or its queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from muster.engine.evict.eviction_policy import STALE_GANGS_ACTION, EvictionRules
from muster.engine.evict.plan_order import BudgetUse, violates_budget
from muster.engine.evict.unit_membership import RESERVATION, SURPLUS, WHOLE, Surplus, UnitEntries, unit_entries
from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.explain import plural
from muster.engine.hooks import Ask, DelaysEviction, Domain, ExplainsProtection, FiltersVictims
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts

ROI_STEP = 0.05
MAX_COOLDOWN_S = 24 * 3600.0
IN_COOLDOWN = "in the cooldown after a cancelled eviction"


@dataclass(frozen=True, slots=True)
class Barred:
    """Pods that a rule or a plugin keeps from being evicted, as rows of the victim table."""

    why: str | FiltersVictims
    victims: RowIndex

    def text(self, s: Session, victim_table: VictimTable) -> str:
        if isinstance(self.why, ExplainsProtection):
            what = self.why.why_protected(s, [victim_table.pods[at] for at in self.victims.tolist()])
        else:
            what = self.why if isinstance(self.why, str) else f"protected by the plugin {self.why.name}"
        return f"{plural(len(self.victims), 'pod is', 'pods are')} {what}"


@dataclass(slots=True)
class EvictionUnits:
    """Columns over entries (a pod as part of a unit), over units in the order of eviction, and over gangs."""

    victim: RowIndex
    unit: IntColumn
    row: RowIndex
    request: Amounts
    in_domain: BoolColumn
    kind: IntColumn
    rank: IntColumn
    """Position of its queue in the order of queues; zero where queues do not matter."""
    priority: IntColumn
    gang: IntColumn
    cost: FloatColumn
    """What it adds to the cost of a plan."""
    size: FloatColumn
    """What it uses of the contested dimensions, as a part of what is needed."""
    pods: IntColumn
    created: FloatColumn
    evicts: BoolColumn
    """False where the unit only gives up reservations."""
    divides: BoolColumn
    has_siblings: BoolColumn
    """True where the gang is in other units, too."""
    unit_class: IntColumn
    """Equal for units that may be traded for each other; growing along the order."""
    evicted: BoolColumn
    """Units that were evicted since these were made: an ask that looks like the last one need not sort all of them again."""
    placed: IntColumn
    min: IntColumn
    surplus: dict[int, Surplus]
    """By gang with a surplus."""
    budgets: BudgetUse | None
    barred: list[Barred]
    """Pods in the domain that the ask could evict, were they not protected."""
    evictable_at: float = np.inf
    """When the first pod that is protected for a time becomes evictable."""
    _by_row: RowIndex | None = field(default=None, repr=False)
    _by_victim: RowIndex | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.unit_class)

    @property
    def any_left(self) -> bool:
        return not bool(self.evicted.all())

    def count_victims(self) -> int:
        """How many gangs and pods are evictable: a gang with a surplus counts once."""
        whole = (self.kind == WHOLE) & ~self.divides
        return int(whole.sum()) + int((~np.isin(self.gang, self.gang[whole]) & ~whole).sum())

    def by_row(self) -> RowIndex:
        """Entries in the domain by node, and on each node in the order in which their units are evicted."""
        if self._by_row is None:
            here = np.flatnonzero(self.in_domain)
            # Row and unit are whole numbers that fit into one: a single sort is enough.
            self._by_row = here[np.argsort(self.row[here] * np.int64(len(self) + 1) + self.unit[here])]
        return self._by_row

    def units_with(self, victim: int) -> list[int]:
        """The units that this pod is in."""
        if self._by_victim is None:
            self._by_victim = np.argsort(self.victim)
        begin, end = np.searchsorted(self.victim, (victim, victim + 1), sorter=self._by_victim)
        found: list[int] = self.unit[self._by_victim[begin:end]].tolist()
        return found

    def entries_of(self, unit: int) -> slice:
        """Entries are sorted by unit."""
        begin, end = np.searchsorted(self.unit, (unit, unit + 1))
        return slice(int(begin), int(end))

    def victims_of(self, unit: int) -> list[int]:
        """Its pods, members in their order."""
        found: list[int] = self.victim[self.entries_of(unit)].tolist()
        return found


@dataclass(slots=True)
class CachedUnits:
    """Units of an earlier ask of this action, and what they were made from."""

    units: EvictionUnits
    eligible: BoolColumn
    preempted: BoolColumn | None
    ranks: IntColumn | None
    position: int
    """How far the log of placements was known."""


UnitsCache = dict[tuple[int, str, bytes, bytes], CachedUnits]
"""By priority of the asking gang, domain, what is lacking, and what of it is contested."""


def eviction_units(
    s: Session,
    ask: Ask,
    rules: EvictionRules,
    victim_table: VictimTable,
    domain: Domain,
    *,
    need: Amounts,
    contested: BoolColumn,
    cache: UnitsCache,
) -> EvictionUnits:
    """The units that this ask may evict in a domain. `need`: what it lacks in all. `cache`: shared by the asks of an action."""
    key = (ask.gang.priority, domain.name, need.tobytes(), contested.tobytes())
    cached, position, ranks = cache.get(key), s.world.changes.placements.position, rules.queue_rank()
    preempted = None if rules.preempted_by is None else rules.preempted_by[1]
    if (
        cached is not None
        and _same_eligible(victim_table, cached.eligible, rules.eligible)
        and _same_column(preempted, cached.preempted)
        and _same_column(ranks, cached.ranks)
        and _still_valid(s, victim_table, cached)
    ):
        cached.position = position
        return cached.units
    build = _UnitsBuilder(s, ask, rules, victim_table, np.where(contested, need, 0))
    units = build.units(rules.eligible, ranks, domain.mask(len(s.world.table)))
    cache[key] = CachedUnits(units, rules.eligible, preempted, ranks, position)
    return units


def _same_eligible(victim_table: VictimTable, one: BoolColumn, other: BoolColumn) -> bool:
    """Of gangs that are still placed: what became of the others, the log of placements says."""
    return one.shape == other.shape and not ((one != other) & victim_table.is_placed[: len(one)]).any()


def _same_column(one: BoolColumn | IntColumn | None, other: BoolColumn | IntColumn | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


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
    if not went or not len(found):
        return True
    if found.budgets is not None:
        # What the budgets have left changed with them.
        return False
    touched = Counter(unit for at in went for unit in found.units_with(at))
    for unit, count in touched.items():
        entries = found.entries_of(unit)
        if count < entries.stop - entries.start or found.kind[unit] != WHOLE:
            return False
    for unit in touched:
        found.evicted[unit] = True
        found.placed[found.gang[unit]] -= found.pods[unit]
    return True


_Veto = tuple[str | FiltersVictims, BoolColumn, FloatColumn | None]
"""Who or what protects which of the candidates, and until when; None where time alone does not end it."""


class _UnitsBuilder:
    """`need`: what the ask lacks in the contested dimensions, zero in all others."""

    def __init__(self, s: Session, ask: Ask, rules: EvictionRules, victim_table: VictimTable, need: Amounts) -> None:
        self.s, self.ask, self.rules, self.victim_table, self.need = s, ask, rules, victim_table, need
        self.barred: list[Barred] = []
        self.evictable_at = np.inf

    def units(self, eligible: BoolColumn, ranks: IntColumn | None, inside: BoolColumn) -> EvictionUnits:
        table = self.victim_table
        alive = np.flatnonzero(table.alive[: len(table.pods)]) if eligible.any() else np.zeros(0, dtype=np.intp)
        victim = alive[eligible[table.gang[alive]]]
        in_domain = _in_domain(table, victim, inside)
        if self.s.policy.settings.whole_gang == "domain":
            victim, in_domain = victim[in_domain], in_domain[in_domain]
        protected = self._protected(victim, in_domain)
        entries, surplus = unit_entries(self.s, table, victim, in_domain, broken_whole=self.ask.action == STALE_GANGS_ACTION)
        keep = _whole_units(entries, in_domain, protected)
        self._bar_others(victim, in_domain & ~protected, entries.at, entries.at[keep])
        self._bar_minimums(victim, in_domain, entries, keep, surplus)
        entries = UnitEntries(entries.at[keep], entries.unit[keep], entries.kind[keep], entries.divides[keep])
        return self._sorted(victim, in_domain, entries, ranks, surplus)

    # -- who is protected --------------------------------------------------------------------------------------------------------

    def _protected(self, victim: RowIndex, in_domain: BoolColumn) -> BoolColumn:
        """All candidates are shown to the plugins once: what one of them protects is not evictable, nor is a pod whose bind was
        sent."""
        s, table = self.s, self.victim_table
        bound = table.phase[victim] == Phase.BOUND
        vetoes: list[_Veto] = [
            ("protected from eviction", table.not_evictable[victim], None),
            ("being bound", _bind_was_sent(s, table, victim), None),
            ("non-preemptible", table.non_preemptible[victim] & bound, None),
        ]
        if s.policy.soft_job_preemption:
            until = np.array([self._cooldown_until(table.pods[at]) for at in victim.tolist()])
            vetoes.append((IN_COOLDOWN, until > s.now, until))
        vetoes += [(plugin, *self._vetoed_by(plugin, victim)) for plugin in s.policy.filters_victims]
        # What time alone does not end comes first.
        vetoes.sort(key=lambda veto: veto[2] is not None)
        protected = np.zeros(len(victim), dtype=np.bool_)
        for why, column, _ in vetoes:
            self._bar(why, victim, column & in_domain & ~protected)
            protected |= column
        if protected.any():
            self._note_when_evictable(vetoes, protected)
        return protected

    def _vetoed_by(self, plugin: FiltersVictims, victim: RowIndex) -> tuple[BoolColumn, FloatColumn | None]:
        """Whom a plugin protects, and until when if it says so. What another action may evict is protected as it is there."""
        vetoed, ends = self._asked_of(plugin, self.ask, victim)
        if self.rules.preempted_by is not None:
            action, gangs = self.rules.preempted_by
            there = gangs[self.victim_table.gang[victim]]
            if there.any():
                other, other_ends = self._asked_of(plugin, replace(self.ask, action=action), victim[there])
                vetoed[there] = other
                if ends is not None and other_ends is not None:
                    ends[there] = other_ends
        return vetoed, ends

    def _asked_of(self, plugin: FiltersVictims, ask: Ask, victim: RowIndex) -> tuple[BoolColumn, FloatColumn | None]:
        s, table = self.s, self.victim_table
        ends = plugin.evictable_at(s, ask, table, victim) if isinstance(plugin, DelaysEviction) else None
        return ~plugin.evictable(s, ask, table, victim), ends

    def _cooldown_until(self, pod: Pod) -> float:
        """Until when a pod is not softly evicted that was marked for it before; negative where it is not evicted so."""
        s = self.s
        cancelled = s.world.memory.cancelled_evictions.get(pod.uid)
        if cancelled is None or s.policy.manner(self.ask.action, queue=s.world.facts.members[pod.uid].queue) != "soft":
            return -np.inf
        doubled = s.policy.settings.eviction_cooldown_s * 2.0 ** min(cancelled.count - 1, 64)
        return float(cancelled.at + min(doubled, MAX_COOLDOWN_S))

    def _note_when_evictable(self, vetoes: Sequence[_Veto], protected: BoolColumn) -> None:
        """When the first becomes evictable of those that only time protects."""
        lasting, until = np.zeros(len(protected), dtype=np.bool_), np.full(len(protected), -np.inf)
        for _, column, ends in vetoes:
            if ends is None:
                lasting |= column
            else:
                until = np.maximum(until, np.where(column, ends, -np.inf))
        self.evictable_at = float(until[protected & ~lasting].min(initial=np.inf))

    def _bar_others(self, victim: RowIndex, free: BoolColumn, in_units: RowIndex, in_kept: RowIndex) -> None:
        """Pods that are not protected themselves (`free`) and are in no unit, or in none that was kept."""
        in_unit, is_kept = mask_of(in_units, len(victim)), mask_of(in_kept, len(victim))
        self._bar("in a gang with a member that is not evictable", victim, free & in_unit & ~is_kept)
        self._bar("in a gang that got nodes in this very cycle", victim, free & ~in_unit)

    def _bar_minimums(
        self, victim: RowIndex, in_domain: BoolColumn, entries: UnitEntries, keep: BoolColumn, surplus: dict[int, Surplus]
    ) -> None:
        """A gang that cannot be evicted whole keeps its minimum: of its members only the surplus is evictable."""
        table, column = self.victim_table, np.zeros(len(victim), dtype=np.bool_)
        gang = table.gang[victim[entries.at]]
        in_part = mask_of(gang[~keep & (entries.kind == WHOLE)], len(table.gangs))
        for number in surplus:
            if in_part[number]:
                members = entries.at[keep & (gang == number) & in_domain[entries.at]]
                evictable = surplus[number].count_evictable([table.pods[at] for at in victim[members].tolist()])
                column[members[evictable:]] = True
        self._bar("needed for the minimum of a gang with a member that is not evictable", victim, column)

    def _bar(self, why: str | FiltersVictims, victim: RowIndex, column: BoolColumn) -> None:
        if column.any():
            self.barred.append(Barred(why, victim[column]))

    # -- the order ---------------------------------------------------------------------------------------------------------------

    def _sorted(
        self, victim: RowIndex, in_domain: BoolColumn, entries: UnitEntries, ranks: IntColumn | None, surplus: dict[int, Surplus]
    ) -> EvictionUnits:
        """Number the units in the order of eviction."""
        table = self.victim_table
        known = mask_of(entries.unit, int(entries.unit.max(initial=-1)) + 1)
        unit = np.cumsum(known)[entries.unit] - 1
        units, pod = int(np.count_nonzero(known)), victim[entries.at]
        bound = table.phase[pod] == Phase.BOUND
        gang, kind, divides = (np.zeros(units, dtype=np.int64) for _ in range(3))
        gang[unit], kind[unit], divides[unit] = table.gang[pod], entries.kind, entries.divides
        pods = np.bincount(unit[bound], minlength=units)
        priority = np.where((kind == SURPLUS) | (divides > 0), LOWEST, table.gang_priority[gang])
        np.maximum.at(priority, unit, np.where(priority[unit] == LOWEST, table.pod_priority[pod], LOWEST))
        rank = ranks[gang] if ranks is not None else np.zeros(units, dtype=np.int64)
        cost, gain, size = self._costs(pod, unit, in_domain[entries.at], units)
        budgets = self._budget_use(pod, unit, units)
        order = self._order(unit, pod, gang, kind, priority, rank, pods, cost, gain, size, budgets, queues_first=ranks is not None)
        position = np.empty(units, dtype=np.int64)
        position[order] = np.arange(units)
        by_unit = np.lexsort((table.rank[pod], position[unit]))
        violates = violates_budget(budgets, order)
        leading = (rank if ranks is not None else priority)[order]
        leading = np.where(kind[order] == RESERVATION, 0, leading)
        first, second = (leading, kind[order]) if self.s.policy.settings.order == "priority" else (kind[order], leading)
        return EvictionUnits(
            victim=pod[by_unit],
            unit=position[unit][by_unit],
            row=table.row[pod][by_unit],
            request=table.request[pod][by_unit],
            in_domain=in_domain[entries.at][by_unit],
            kind=kind[order],
            rank=rank[order],
            priority=priority[order],
            gang=gang[order],
            cost=cost[order],
            size=size[order],
            pods=pods[order],
            created=table.gang_created[gang][order],
            evicts=pods[order] > 0,
            divides=divides[order].astype(np.bool_),
            has_siblings=(np.bincount(gang)[gang] > 1)[order],
            unit_class=_classes(violates, first, second),
            evicted=np.zeros(units, dtype=np.bool_),
            placed=_placed_by_gang(table),
            min=table.gang_min[: len(table.gangs)],
            surplus=surplus,
            budgets=None if budgets is None else BudgetUse(budgets.evicted[order], budgets.left),
            barred=self.barred,
            evictable_at=self.evictable_at,
        )

    def _order(
        self,
        unit: IntColumn,
        pod: RowIndex,
        gang: IntColumn,
        kind: IntColumn,
        priority: IntColumn,
        rank: IntColumn,
        pods: IntColumn,
        cost: FloatColumn,
        gain: FloatColumn,
        size: FloatColumn,
        budgets: BudgetUse | None,
        *,
        queues_first: bool,
    ) -> RowIndex:
        table, units = self.victim_table, len(gang)
        roi = np.where((kind == WHOLE) & (cost > 0), np.round(gain / np.where(cost > 0, cost, 1.0) / ROI_STEP), 0.0)
        first, last = (rank, priority) if queues_first else (priority, np.zeros(units, dtype=np.int64))
        leading = (kind, first) if self.s.policy.settings.order == "priority" else (first, kind)
        # Within a gang: what covers most of the need, the lowest priority, the smallest, the youngest.
        member, started = np.zeros(units, dtype=np.int64), np.zeros(units)
        member[unit], started[unit] = table.rank[pod], -table.since[pod]
        own_priority = np.full(units, LOWEST, dtype=np.int64)
        np.maximum.at(own_priority, unit, table.pod_priority[pod])
        within_gang = (member, started, size, own_priority, -gain)
        between_gangs = (table.gang_rank[gang], -table.gang_created[gang], pods, last, -roi)
        return np.lexsort((*within_gang, *between_gangs, *leading, violates_budget(budgets, np.arange(units))))

    def _costs(
        self, pod: RowIndex, unit: IntColumn, in_domain: BoolColumn, units: int
    ) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
        """Of each unit: what it costs everywhere, what it gains here, and what it uses, as parts of what is needed."""
        table, contested = self.victim_table, np.flatnonzero(self.need > 0)
        share = (table.request[pod][:, contested] / self.need[contested]).sum(axis=1)
        bound = table.phase[pod] == Phase.BOUND
        cost = np.bincount(unit, weights=np.where(bound, share * (1.0 + self._hours(pod)), 0.0), minlength=units)
        gain = np.zeros(units)
        for column in contested.tolist():
            here = np.bincount(unit[in_domain], weights=table.request[pod[in_domain], column], minlength=units)
            gain += np.minimum(here, self.need[column]) / self.need[column]
        return _rounded(cost), gain, _rounded(np.bincount(unit, weights=share, minlength=units))

    def _hours(self, pod: RowIndex) -> FloatColumn:
        """Hours of work that each of these loses."""
        hours = np.zeros(len(pod))
        for plugin in self.s.policy.counts_lost_hours:
            hours += plugin.lost_hours(self.s, self.victim_table, pod)
        return hours

    def _budget_use(self, pod: RowIndex, unit: IntColumn, units: int) -> BudgetUse | None:
        for plugin in self.s.policy.checks_budgets:
            evicted, left = plugin.budget_use(self.s, self.victim_table, pod, unit, units)
            if len(left):
                return BudgetUse(evicted, left)
        return None


LOWEST = np.int64(-(2**31))


def _in_domain(victim_table: VictimTable, victim: RowIndex, inside: BoolColumn) -> BoolColumn:
    rows = victim_table.row[victim]
    in_domain: BoolColumn = rows >= 0
    in_domain[in_domain] = inside[rows[in_domain]]
    return in_domain


def _bind_was_sent(s: Session, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
    """Binds that an earlier cycle decided on."""
    binding: BoolColumn = victim_table.phase[victim] == Phase.BINDING
    if not s.same_moment:
        return binding & (victim_table.since[victim] < s.now)
    ours = {step.pod.uid for step in s.world.placements.steps()}
    return binding & np.array([victim_table.pods[at].uid not in ours for at in victim.tolist()], dtype=np.bool_)


def _whole_units(entries: UnitEntries, in_domain: BoolColumn, protected: BoolColumn) -> BoolColumn:
    """Keep units that have a pod in the domain and none that is protected: a whole gang is evicted whole or not at all."""
    size = int(entries.unit.max(initial=0)) + 1
    has_protected, inside = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    has_protected[entries.unit[protected[entries.at]]] = True
    inside[entries.unit[in_domain[entries.at]]] = True
    keep: BoolColumn = inside[entries.unit] & ~has_protected[entries.unit]
    return keep


def _placed_by_gang(victim_table: VictimTable) -> IntColumn:
    used = len(victim_table.pods)
    phase = victim_table.phase[:used]
    placed = victim_table.alive[:used] & ((phase == Phase.BOUND) | (phase == Phase.BINDING))
    total = len(victim_table.gangs)
    members: IntColumn = np.bincount(victim_table.gang[:used][placed], minlength=total)[:total]
    return members + victim_table.gang_succeeded[:total]


def _classes(violates: BoolColumn, first: IntColumn, second: IntColumn) -> IntColumn:
    """Equal numbers for units that may be traded for each other; growing along the order."""
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    change = (violates[1:] != violates[:-1]) | (np.diff(first) != 0) | (np.diff(second) != 0)
    return np.concatenate([[0], np.cumsum(change)]).astype(np.int64)


def _rounded(sums: npt.NDArray[np.generic]) -> FloatColumn:
    """The order in which fractions are added up must not show in who is evicted."""
    return np.asarray(np.round(sums.astype(np.float64), 9), dtype=np.float64)
