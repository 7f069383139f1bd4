"""Which placed pods form a unit of eviction.

Reserved, nominated and just bound members of a gang end as one unit and cost nothing. A surplus member is evicted
alone; which members are the surplus is not decided beforehand: any of them, as many as the gang can do without. The rest of a gang
is evicted only as a whole, and with it everything else that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.session import Session
from muster.model.gang import Gang, Subgroup
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.broken_gangs import BROKEN_AFTER_S
from muster.state.gangs.gang_stage import count
from muster.state.gangs.subgroups import all_subgroups, in_phases, is_complete, placed_in_subgroup
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


SurplusPart = str | tuple[str, int] | None
"""What can have a surplus: a gang (None), a role (its name), the members or the parts of a subgroup (by its place in the gang)."""


class Surplus:
    """How many members a gang can do without: in all, by role, and by subgroup; and how many whole parts of each subgroup."""

    def __init__(self, s: Session, gang: Gang, total: int) -> None:
        self._s, self._gang = s, gang
        self.has_subgroups = bool(gang.subgroups)
        self.left: dict[SurplusPart, int] = {None: total}
        for role in gang.roles:
            self.left[role.name] = count(s.world, role, PLACED) + role.succeeded - role.min
        self._placed = in_phases(s.world, PLACED)
        self._number = {id(subgroup): number for number, subgroup in enumerate(all_subgroups(gang))}
        self._note_subgroups(gang, -1)
        self._known: dict[tuple[str, ...], dict[SurplusPart, int]] = {}

    def _note_subgroups(self, group: Gang | Subgroup, number: int) -> None:
        if group.subgroups:
            complete = sum(is_complete(each, self._placed) for each in group.subgroups)
            self.left["parts", number] = complete - group.min_subgroups
        for subgroup in group.subgroups:
            at = self._number[id(subgroup)]
            self.left["members", at] = placed_in_subgroup(self._s.world, subgroup, PLACED) - subgroup.min
            self._note_subgroups(subgroup, at)

    def allows(self, pods: Sequence[Pod], taken: Mapping[SurplusPart, int]) -> bool:
        """Can the gang do without these, too?"""
        return all(self.left[part] >= taken.get(part, 0) + used for part, used in self.used_by(pods).items())

    def count_evictable(self, pods: Sequence[Pod]) -> int:
        """How many of these the gang can do without, at most."""
        roles = Counter(self._s.world.facts.members[pod.uid].role for pod in pods)
        return min(self.left[None], sum(min(number, self.left[role]) for role, number in roles.items()))

    def used_by(self, pods: Sequence[Pod]) -> Mapping[SurplusPart, int]:
        """What members that are evicted together take of the surplus of what they count in."""
        key = tuple(pod.uid for pod in pods)
        if key not in self._known:
            used: dict[SurplusPart, int] = {None: len(pods)}
            used.update(Counter(self._s.world.facts.members[uid].role for uid in key))
            self._use_subgroups(self._gang, -1, frozenset(key), used)
            self._known[key] = used
        return self._known[key]

    def _use_subgroups(self, group: Gang | Subgroup, number: int, gone: frozenset[str], used: dict[SurplusPart, int]) -> None:
        """A subgroup that ends as a whole is one complete part less of its group; else it has so many members less."""
        for subgroup in group.subgroups:
            touched = len(gone & subgroup.members)
            if not touched:
                continue
            if touched == sum(map(self._placed, subgroup.members)):
                lost = is_complete(subgroup, self._placed) and not is_complete(subgroup, lambda _: False)
                used["parts", number] = used.get(("parts", number), 0) + lost
                continue
            at = self._number[id(subgroup)]
            used["members", at] = touched
            self._use_subgroups(subgroup, at, gone, used)

    def whole_subgroups(self) -> Iterator[list[str]]:
        """Members with a node of each subgroup that the gang can do without."""
        pods, seen = {pod.uid: pod for pod in self._gang.pods()}, set[frozenset[str]]()
        for subgroup in all_subgroups(self._gang):
            uids = frozenset(filter(self._placed, subgroup.members))
            if len(uids) > 1 and uids not in seen and self.allows([pods[uid] for uid in sorted(uids)], {}):
                seen.add(uids)
                yield sorted(uids)


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
    not_a_victim = served | unsent
    evictable = bound & ~not_a_victim[gang]
    per_pod = victim_table.gang_per_pod[gang]
    broken = np.zeros(len(gang), dtype=np.bool_) if broken_whole else _broken(s, victim_table)[gang]
    surplus = _surplus_gangs(s, victim_table, gang[evictable & in_domain & ~per_pod & ~broken])
    elastic = np.zeros(total, dtype=np.bool_)
    elastic[list(surplus)] = True
    alone = evictable & (per_pod | broken | (elastic[gang] & _may_go_alone(victim_table, victim, gang, surplus)))
    together = evictable & ~per_pod & ~broken
    whole = together | (~bound & ~not_a_victim[gang])
    reservations = ~bound & ~(_completes_running(victim_table, gang, phase, served) | unsent)[gang]
    numbers = np.arange(len(victim))
    group_at, group_unit = _subgroup_entries(victim_table, victim, evictable, surplus)
    unit = np.concatenate([gang[reservations], 2 * total + victim[alone], 2 * total + group_unit, total + gang[whole]])
    at = np.concatenate([numbers[reservations], numbers[alone], group_at, numbers[whole]])
    kind = np.repeat([RESERVATION, SURPLUS, WHOLE], [reservations.sum(), alone.sum() + len(group_at), whole.sum()])
    kind[(kind == SURPLUS) & per_pod[at]] = WHOLE
    divides = (unit >= 2 * total) & ~elastic[gang[at]]
    # Where nothing but reservations would be evicted whole, these are a unit already.
    runs = mask_of(gang[together], total)
    keep = (unit < total) | (unit >= 2 * total) | runs[gang[at]]
    return UnitEntries(at[keep], unit[keep], kind[keep], divides[keep]), surplus


def _may_go_alone(victim_table: VictimTable, victim: RowIndex, gang: IntColumn, surplus: Mapping[int, Surplus]) -> BoolColumn:
    """Not a member without which its subgroup would be incomplete: that ends as a whole."""
    found = np.ones(len(victim), dtype=np.bool_)
    for number, one in surplus.items():
        if victim_table.gangs[number].subgroups:
            for at in np.flatnonzero(gang == number).tolist():
                found[at] = one.allows([victim_table.pods[victim[at]]], {})
    return found


def _subgroup_entries(
    victim_table: VictimTable, victim: RowIndex, evictable: BoolColumn, surplus: Mapping[int, Surplus]
) -> tuple[RowIndex, IntColumn]:
    """Positions among the victims, and numbers above those of all pods, of the subgroups that gangs can do without."""
    at: list[int] = []
    sizes: list[int] = []
    elastic = [one for number, one in surplus.items() if victim_table.gangs[number].subgroups]
    position = {number: place for place, number in enumerate(victim.tolist())} if elastic else {}
    for uids in (uids for one in elastic for uids in one.whole_subgroups()):
        places = [position.get(victim_table.index.get(uid, -1), -1) for uid in uids]
        if all(place >= 0 and evictable[place] for place in places):
            at.extend(places)
            sizes.append(len(places))
    return np.array(at, dtype=np.intp), np.repeat(len(victim_table.pods) + np.arange(len(sizes)), sizes)


def _completes_running(victim_table: VictimTable, gang: IntColumn, phase: IntColumn, served: BoolColumn) -> BoolColumn:
    """Gangs that were partially bound and got the rest in this cycle: they keep it, else what runs would be worth nothing."""
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
