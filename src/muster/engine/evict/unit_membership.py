"""Which placed pods form a unit of eviction.

Reserved, nominated and just bound members of a gang end as one unit and cost nothing. A surplus member is evicted
alone; which members are the surplus is not decided beforehand: any of them, as many as the gang can do without. The rest of a gang
is evicted only as a whole, and with it everything else that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.session import Session
from muster.model.gang import Gang, Subgroup
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.broken_gangs import BROKEN_AFTER_S
from muster.state.gangs.gang_stage import count
from muster.state.gangs.subgroups import placed_in_subgroup
from muster.state.node_table import BoolColumn, IntColumn, RowIndex

RESERVATION, SURPLUS, WHOLE = 0, 1, 2
"""What a unit is, in the order in which units are evicted."""


@dataclass(slots=True)
class UnitEntries:
    """Pods and their units: a member that can be surplus is in a unit of its own, and in that of its whole gang."""

    at: RowIndex
    """Positions among the victims."""
    unit: IntColumn
    kind: IntColumn
    divides: BoolColumn
    """True where the unit is a part of a gang that has no surplus: it leaves the gang, or finds it, below its minimum."""


class Surplus:
    """How many members a gang can do without: in all, by role, and by subgroup."""

    def __init__(self, s: Session, gang: Gang, total: int) -> None:
        self._s, self._gang = s, gang
        self.left: dict[str | Subgroup | None, int] = {None: total}
        for role in gang.roles:
            self.left[role.name] = count(s.world, role, PLACED) + role.succeeded - role.min
        for subgroup in gang.subgroups:
            self.left[subgroup] = placed_in_subgroup(s.world, subgroup, PLACED) - subgroup.min

    def count_evictable(self, pods: Sequence[Pod]) -> int:
        """How many of these the gang can do without, at most."""
        roles = Counter(self._s.world.facts.members[pod.uid].role for pod in pods)
        return min(self.left[None], sum(min(number, self.left[role]) for role, number in roles.items()))

    def parts_of(self, pod: Pod) -> list[str | Subgroup | None]:
        """What a member counts in."""
        mine = [subgroup for subgroup in self._gang.subgroups if pod.uid in subgroup.members]
        return [None, self._s.world.facts.members[pod.uid].role, *mine]


def unit_entries(
    s: Session, victim_table: VictimTable, victim: RowIndex, in_domain: BoolColumn, *, broken_whole: bool
) -> tuple[UnitEntries, dict[int, Surplus]]:
    """The entries of all units that these pods form, and of each gang with a surplus how large that is. `broken_whole`: also what
    is left of a gang below its minimum is evicted whole."""
    total = len(victim_table.gangs)
    gang, phase = victim_table.gang[victim], victim_table.phase[victim].astype(np.int64)
    bound: BoolColumn = phase == Phase.BOUND
    served = np.zeros(total, dtype=np.bool_)
    served[gang[phase == Phase.BINDING]] = True
    unsent = has_unsent_plan(s, victim_table)
    # No gang served in this cycle is a victim in it: only what this cycle gave it can be undone.
    spared = served | unsent
    evictable = bound & ~spared[gang]
    per_pod = victim_table.gang_per_pod[gang]
    broken = np.zeros(len(gang), dtype=np.bool_) if broken_whole else _broken(s, victim_table)[gang]
    surplus = _surplus_gangs(s, victim_table, gang[evictable & in_domain & ~per_pod & ~broken])
    elastic = np.zeros(total, dtype=np.bool_)
    elastic[list(surplus)] = True
    alone = evictable & (per_pod | broken | elastic[gang])
    together = evictable & ~per_pod & ~broken
    whole = together | (~bound & ~spared[gang])
    reservations = ~bound & ~(_completes_running(victim_table, gang, phase, served) | unsent)[gang]
    numbers = np.arange(len(victim))
    unit = np.concatenate([gang[reservations], 2 * total + victim[alone], total + gang[whole]])
    at = np.concatenate([numbers[reservations], numbers[alone], numbers[whole]])
    kind = np.repeat([RESERVATION, SURPLUS, WHOLE], [reservations.sum(), alone.sum(), whole.sum()])
    kind[(kind == SURPLUS) & per_pod[at]] = WHOLE
    divides = (unit >= 2 * total) & ~elastic[gang[at]]
    # Where nothing but reservations would be evicted whole, these are a unit already.
    runs = mask_of(gang[together], total)
    keep = (unit < total) | (unit >= 2 * total) | runs[gang[at]]
    return UnitEntries(at[keep], unit[keep], kind[keep], divides[keep]), surplus


def _completes_running(victim_table: VictimTable, gang: IntColumn, phase: IntColumn, served: BoolColumn) -> BoolColumn:
    """Gangs that were half bound and got the rest in this cycle: they keep it, or the half that runs would be worth nothing."""
    total = len(victim_table.gangs)
    runs = np.bincount(gang[phase == Phase.BOUND], minlength=total)[:total]
    found: BoolColumn = served & (runs > 0) & (runs + victim_table.gang_succeeded[:total] < victim_table.gang_min[:total])
    return found


def has_unsent_plan(s: Session, victim_table: VictimTable) -> BoolColumn:
    """Gangs that got a plan in this cycle: it stands or is undone whole, with its evictions, before anybody else takes its
    nodes."""
    missing = len(victim_table.gangs) - len(s.unsent_column)
    if missing > 0:
        s.unsent_column = np.concatenate([s.unsent_column, np.zeros(missing, dtype=np.bool_)])
    return s.unsent_column[: len(victim_table.gangs)]


def _broken(s: Session, victim_table: VictimTable) -> BoolColumn:
    """Gangs that have been below their minimum for long enough."""
    found = np.zeros(len(victim_table.gangs), dtype=np.bool_)
    for key, since in s.world.memory.below_min_since.items():
        if s.now - since >= BROKEN_AFTER_S and key in victim_table.gang_number:
            found[victim_table.gang_number[key]] = True
    return found


def _surplus_gangs(s: Session, victim_table: VictimTable, gang: IntColumn) -> dict[int, Surplus]:
    """Of these gangs, those with members that they can do without."""
    total = len(victim_table.gangs)
    used = len(victim_table.pods)
    phase = victim_table.phase[:used]
    placed = victim_table.alive[:used] & ((phase == Phase.BOUND) | (phase == Phase.BINDING))
    surplus = (
        np.bincount(victim_table.gang[:used][placed], minlength=total)[:total]
        + victim_table.gang_succeeded[:total]
        - victim_table.gang_min[:total]
    )
    return {
        number: Surplus(s, victim_table.gangs[number], int(surplus[number]))
        for number in np.flatnonzero(mask_of(gang[surplus[gang] > 0], total)).tolist()
    }
