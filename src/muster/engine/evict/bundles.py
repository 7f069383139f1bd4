"""Victims as units: seats that a gang can spare go one by one and cost nothing, the others go with their whole gang.

For one ask and one domain. The order of the units says who is taken first; their class is what is never traded for efficiency
(spare before whole, then the victim's priority or its queue).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from muster.engine.evict.policy import EvictionPolicy, EvictionRules
from muster.engine.evict.seats import BROKEN_AFTER_S, Ints, SeatTable, among
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.model.gang import Cell, Gang
from muster.model.pod import SEATED, Phase, Pod
from muster.model.resources import PODS
from muster.model.topics import Topic
from muster.state.cells import seats_in
from muster.state.columns import Amounts
from muster.state.derived import Derived
from muster.state.lifecycle import count
from muster.state.table import BoolColumn, FloatColumn, RowIndex

ROI_STEP = 0.05


@dataclass(slots=True)
class Bundles:
    """Columns over seats, and over units in the order in which they are taken: unit 0 goes first."""

    seat: RowIndex
    unit: Ints
    row: RowIndex
    request: Amounts
    local: BoolColumn
    unit_class: Ints
    unit_cost: FloatColumn
    unit_spare: BoolColumn
    unit_gang: Ints
    gone: BoolColumn
    """Units that went since these were put together: an ask that looks like the last one need not sort all of them again."""
    free_at: float = np.inf
    """When the first of those who are barred for a time may be taken."""
    _by_row: RowIndex | None = None

    def __len__(self) -> int:
        return len(self.unit_class)

    @property
    def any_left(self) -> bool:
        return not bool(self.gone.all())

    def by_row(self) -> RowIndex:
        """Seats in the domain by node, and on each node in the order in which their units are taken."""
        if self._by_row is None:
            here = np.flatnonzero(self.local)
            # Both are whole numbers that fit into one: a single sort is enough.
            self._by_row = here[np.argsort(self.row[here] * np.int64(len(self) + 1) + self.unit[here])]
        return self._by_row

    def seats_of(self, unit: int, seats: SeatTable) -> list[int]:
        """Its seats, members in their order."""
        mine: RowIndex = self.seat[self.unit == unit]
        found: list[int] = mine.tolist() if len(mine) == 1 else mine[np.argsort(seats.rank[mine], kind="stable")].tolist()
        return found


@dataclass(slots=True)
class _Kept:
    """Bundles of an earlier ask of this cycle, and what they were made from."""

    found: Bundles | None = None
    eligible: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    position: int = -1


_KEPT: Derived[_Kept] = Derived("eviction units", Topic.CYCLE)


def bundles(
    s: Session, ask: Ask, policy: EvictionPolicy, rules: EvictionRules, seats: SeatTable, domain: Domain, need: Amounts
) -> Bundles:
    """The units that this ask may take in a domain. `need` is what the ask lacks in all."""
    eligible, log = rules.eligible, s.world.changes.placements
    kept = _KEPT.of(s.world, _Kept, key=(policy.name, ask.gang.priority, domain.name, need.tobytes()))
    if kept.found is None or not np.array_equal(kept.eligible, eligible) or not _still_good(s, seats, kept, kept.found):
        kept.found = _bundles(s, ask, policy, rules, seats, domain.mask(len(s.world.table)), need)
        kept.eligible = eligible
    kept.position = log.position
    return kept.found


def _still_good(s: Session, seats: SeatTable, kept: _Kept, found: Bundles) -> bool:
    """Did nothing happen since but that whole units went, and others came who may not be taken? Then mark the former."""
    went: list[int] = []
    for uid in dict.fromkeys(s.world.changes.placements.since(kept.position) or ()):
        at = seats.index.get(uid)
        if at is not None:
            if kept.eligible[seats.gang[at]]:
                return False
        elif (last := seats.last_index.get(uid)) is not None:
            went.append(last)
    if not went:
        return True
    units = found.unit[among(went, len(seats.pods))[found.seat]]
    whole = np.bincount(found.unit, minlength=len(found))
    if (np.bincount(units, minlength=len(found))[units] < whole[units]).any() or found.unit_spare[units].any():
        return False
    found.gone[units] = True
    return True


def _bundles(
    s: Session, ask: Ask, policy: EvictionPolicy, rules: EvictionRules, seats: SeatTable, inside: BoolColumn, need: Amounts
) -> Bundles:
    eligible = rules.eligible
    alive = np.flatnonzero(seats.alive[: len(seats.pods)]) if eligible.any() else np.zeros(0, dtype=np.intp)
    seat = alive[eligible[seats.gang[alive]]]
    local = _local(seats, seat, inside)
    if s.policy.settings.whole_gang == "domain":
        seat, local = seat[local], local[local]
    barred = _barred(s, ask, seats, seat)
    if policy.firm_seats:
        barred |= seats.firm[seat] & (seats.phase[seat] == Phase.BOUND)
    unit = _units(s, seats, seat, local, barred, need)
    keep = _complete(unit, local, barred)
    found = _ordered(s, rules, seats, seat[keep], unit[keep], local[keep], need)
    found.free_at = _first_free(s, ask, seats, seat[barred])
    return found


def _local(seats: SeatTable, seat: RowIndex, inside: BoolColumn) -> BoolColumn:
    rows = seats.row[seat]
    local: BoolColumn = rows >= 0
    local[local] = inside[rows[local]]
    return local


def _barred(s: Session, ask: Ask, seats: SeatTable, seat: RowIndex) -> BoolColumn:
    """All candidates are shown to the policies once: whom one of them bars may not be taken. Binds that were sent are nobody's
    to take back."""
    barred: BoolColumn = seats.bars[seat] | _was_sent(s, seats, seat)
    if s.policy.manner(ask.action) == "soft":
        barred |= np.array([_was_spared(s, seats.pods[at]) for at in seat.tolist()], dtype=np.bool_)
    for plugin in s.policy.vetoes:
        barred |= ~plugin.evictable(s, ask, seats, seat)
    return barred


def _was_sent(s: Session, seats: SeatTable, seat: RowIndex) -> BoolColumn:
    """Binds that an earlier cycle decided on."""
    binding: BoolColumn = seats.phase[seat] == Phase.BINDING
    if not s.same_moment:
        return binding & (seats.since[seat] < s.now)
    ours = {step.pod.uid for step in s.world.placements.steps()}
    return binding & np.array([seats.pods[at].uid not in ours for at in seat.tolist()], dtype=np.bool_)


def _was_spared(s: Session, pod: Pod) -> bool:
    """Was it asked softly a short while ago, and then allowed to stay?"""
    since = s.world.memory.spared.get(pod.uid, pod.spared_at)
    return since is not None and s.now < since + s.policy.settings.spare_s


def _first_free(s: Session, ask: Ask, seats: SeatTable, seat: RowIndex) -> float:
    times = [plugin.free_at(s, ask, seats, seat) for plugin in s.policy.waits]
    later = [float(column[column > s.now].min(initial=np.inf)) for column in times]
    return min(later, default=np.inf)


def _units(s: Session, seats: SeatTable, seat: RowIndex, local: BoolColumn, barred: BoolColumn, need: Amounts) -> Ints:
    """A number for each seat's unit, -1 where it can be in none: the gang's number for the gang as a whole, then one for each
    seat that goes alone, then one for what a gang only claims or was given in this very cycle."""
    total = len(seats.gangs)
    gang, phase = seats.gang[seat], seats.phase[seat]
    unit = gang.copy()
    bound = phase == Phase.BOUND
    unit[~bound] = total + len(seats.pods) + gang[~bound]
    single = bound & seats.gang_single[gang]
    unit[single] = total + seat[single]
    spare = np.bincount(seats.gang[_seated(seats)], minlength=total)[:total] + seats.gang_succeeded[:total] - seats.gang_min[:total]
    for number in np.unique(gang[bound & ~single & local & (spare[gang] != 0)]).tolist():
        here = np.flatnonzero(bound & local & (gang == number))
        for at in _goes_alone(s, seats, seat, here, need, spare=int(spare[number]), gang=seats.gangs[number], barred=barred):
            unit[at] = total + seat[at]
    # Nobody served in this cycle is a victim in it.
    served = np.zeros(total, dtype=np.bool_)
    served[gang[phase == Phase.BINDING]] = True
    unit[bound & served[gang]] = -1
    # Who was caught half bound keeps what completes it: without that the half that runs would be worth nothing.
    runs = np.bincount(gang[bound], minlength=total)[:total]
    torn = served & (runs > 0) & (runs + seats.gang_succeeded[:total] < seats.gang_min[:total])
    unit[(phase == Phase.BINDING) & torn[gang]] = -1
    return unit


def _seated(seats: SeatTable) -> RowIndex:
    phase = seats.phase[: len(seats.pods)]
    return np.flatnonzero(seats.alive[: len(seats.pods)] & ((phase == Phase.BOUND) | (phase == Phase.BINDING)))


def _goes_alone(
    s: Session, seats: SeatTable, seat: RowIndex, here: RowIndex, need: Amounts, *, spare: int, gang: Gang, barred: BoolColumn
) -> list[int]:
    """Which of the gang's seats in the domain it can spare: all of a broken gang's, else what is above its minimums."""
    if spare < 0:
        return here.tolist() if is_broken(s, gang) else []
    budget: dict[str | Cell, int] = {role.name: count(s.world, role, SEATED) + role.succeeded - role.min for role in gang.roles}
    budget.update({cell: seats_in(s.world, cell, SEATED) - cell.min for cell in gang.cells})
    alone: list[int] = []
    # Whoever may not go anyway takes up no surplus: it stays, and counts towards the minimum.
    for at in sorted(here.tolist(), key=lambda i: (bool(barred[i]), _victim_order(seats, int(seat[i]), need))):
        uid = seats.pods[int(seat[at])].uid
        belongs: list[str | Cell] = [s.world.facts.members[uid].role, *(cell for cell in gang.cells if uid in cell.members)]
        if len(alone) < spare and all(budget[each] > 0 for each in belongs):
            alone.append(at)
            for each in belongs:
                budget[each] -= 1
    return alone


def is_broken(s: Session, gang: Gang) -> bool:
    """Below its minimum for good: the missing members do not exist, or have waited long enough."""
    world = s.world
    waiting = [pod for pod in gang.pods() if world.phase(pod) is Phase.PENDING]
    seated = sum(count(world, role, SEATED) + role.succeeded for role in gang.roles)
    if seated + len(waiting) < gang.min:
        return True
    return all(s.now - pod.created >= BROKEN_AFTER_S for pod in waiting)


def _victim_order(seats: SeatTable, at: int, need: Amounts) -> tuple[float, int, float, float, str]:
    """Within a gang: who covers most of the need, the least important, the least waste, the youngest."""
    asked = need > 0
    request = seats.request[at]
    coverage = float((np.minimum(request[asked], need[asked]) / need[asked]).sum())
    waste = float((request[asked] / need[asked]).sum())
    pod = seats.pods[at]
    return (-coverage, pod.priority, waste, -pod.created, pod.title)


def _complete(unit: Ints, local: BoolColumn, barred: BoolColumn) -> BoolColumn:
    """Keep units that have a seat in the domain and none that is barred: a whole gang goes whole or not at all."""
    size = int(unit.max(initial=0)) + 1
    known = unit >= 0
    spoilt, inside = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    spoilt[unit[known & barred]] = True
    inside[unit[known & local]] = True
    keep = known.copy()
    keep[known] = inside[unit[known]] & ~spoilt[unit[known]]
    return keep


def _ordered(
    s: Session,
    rules: EvictionRules,
    seats: SeatTable,
    seat: RowIndex,
    unit: Ints,
    local: BoolColumn,
    need: Amounts,
) -> Bundles:
    """Number the units in the order in which they are taken."""
    names, unit = np.unique(unit, return_inverse=True)
    units, total = len(names), len(seats.gangs)
    gang = np.zeros(units, dtype=np.int64)
    gang[unit] = seats.gang[seat]
    free = names >= total + len(seats.pods)
    alone = (names >= total) & ~free
    spare = free | (alone & ~seats.gang_single[gang])
    cost, gain, lost = _figures(s, seats, seat, unit, local, units, need)
    waste = cost.copy()
    cost[spare] = 0.0
    roi = np.where(cost > 0, np.round(gain / np.where(cost > 0, cost, 1.0) / ROI_STEP), 0.0)
    ranks = rules.queue_rank()
    first = ranks[gang] if ranks is not None else seats.gang_priority[gang]
    last = seats.gang_priority[gang] if ranks is not None else np.zeros(units, dtype=np.int64)
    kind = np.where(free, 0, np.where(spare, 1, 2))
    breaks = _breaks_budgets(s, seats, seat, unit, units)
    youngest, rank = np.zeros(units), np.zeros(units, dtype=np.int64)
    youngest[unit], rank[unit] = -seats.since[seat], seats.rank[seat]
    importance = np.zeros(units, dtype=np.int64)
    importance[unit] = seats.importance[seat]
    order = np.lexsort(
        (
            rank,
            youngest,
            # Within a gang: who covers most of the need, the least important, the least waste.
            waste,
            importance,
            -gain,
            seats.gang_rank[gang],
            -seats.gang_created[gang],
            lost,
            last,
            np.where(spare, 0.0, -roi),
            breaks,
            first,
            kind,
        )
    )
    position = np.empty(units, dtype=np.int64)
    position[order] = np.arange(units)
    return Bundles(
        seat=seat,
        unit=position[unit],
        row=seats.row[seat],
        request=seats.request[seat],
        local=local,
        unit_class=_classes(kind[order], first[order], breaks[order]),
        unit_cost=cost[order],
        unit_spare=spare[order],
        unit_gang=gang[order],
        gone=np.zeros(units, dtype=np.bool_),
    )


def _breaks_budgets(s: Session, seats: SeatTable, seat: RowIndex, unit: Ints, units: int) -> BoolColumn:
    """Units whose going breaks a disruption budget: of equals in priority they go last."""
    column = np.zeros(units, dtype=np.bool_)
    for plugin in s.policy.budgets:
        column |= plugin.violates(s, seats, seat, unit, units)
    return column


def _classes(kind: Ints, first: Ints, breaks: BoolColumn) -> Ints:
    """Equal numbers for units that may be traded for each other; growing along the order."""
    if not len(kind):
        return kind
    change = (np.diff(kind) != 0) | (((np.diff(first) != 0) | (breaks[1:] != breaks[:-1])) & (kind[1:] == 2))
    return np.concatenate([[0], np.cumsum(change)]).astype(np.int64)


def _figures(
    s: Session, seats: SeatTable, seat: RowIndex, unit: Ints, local: BoolColumn, units: int, need: Amounts
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Of each unit: what it costs everywhere, what it gains here, and the hours of work that it loses."""
    asked = np.flatnonzero(need > 0)
    asked = asked[asked != s.world.columns.position[PODS]]
    share = (seats.request[seat][:, asked] / need[asked]).sum(axis=1)
    hours = np.zeros(len(seat))
    for plugin in s.policy.losses:
        hours += plugin.lost_hours(s, seats, seat)
    cost = _rounded(np.bincount(unit, weights=share * (1.0 + hours), minlength=units))
    lost = _rounded(np.bincount(unit, weights=hours, minlength=units))
    gain = np.zeros(units)
    for column in asked.tolist():
        here = np.bincount(unit[local], weights=seats.request[seat[local], column], minlength=units)
        gain += np.minimum(here, need[column]) / need[column]
    return cost, gain, lost


def _rounded(sums: npt.NDArray[np.generic]) -> FloatColumn:
    """The order in which fractions are added up must not show in who goes."""
    return np.asarray(np.round(sums.astype(np.float64), 9), dtype=np.float64)
