"""The eviction units of a plan, and whether a gang is torn: left below its minimum with some of its members running."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from tests.oracles.snapshot import SEATED_OR_NOMINATED, STALE_GANGS, Finding, JudgedPlan, Snapshot

from muster.model.gang import Gang, MatchPolicy, Subgroup
from muster.model.pod import RESERVATIONS, Phase


class UnitKind(Enum):
    SAFE = "safe"
    """One placed pod of a broken gang, or above the minimum."""
    SINGLE = "single"
    """One placed pod of a running once-satisfied gang: it sorts with WHOLE."""
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Unit:
    kind: UnitKind
    gang: str
    """Key of the gang, or empty for a pod of another scheduler."""
    pods: tuple[str, ...]
    priority: int

    @property
    def is_safe(self) -> bool:
        return self.kind is UnitKind.SAFE


def is_satisfied_once(s: Snapshot, gang: Gang) -> bool:
    """Its pods are scheduled, and evicted, one by one."""
    bound = any(s.phase(pod.uid) in (Phase.BOUND, Phase.BINDING) for pod in gang.pods())
    return gang.match_policy is MatchPolicy.ONCE_SATISFIED and bound


def keeps_minimums(s: Snapshot, gang: Gang, gone: Collection[str]) -> bool:
    """Whether the gang, and each role that loses any of these members, has its minimum left; where none is lost, all roles have. An
    unknown minimum is kept by no part of the gang."""
    least, by_role = gang.min, {role.name: role.min for role in gang.roles}
    if gang.waiting_for or gang.invalid_because:
        if gang.key not in s.history.last_mins:
            return False
        least, known = s.history.last_mins[gang.key]
        by_role.update(known)
    left = 0
    for role in gang.roles:
        here = sum(s.phase(pod.uid) in SEATED_OR_NOMINATED and pod.uid not in gone for pod in role.pods) + role.succeeded
        loses = not gone or any(pod.uid in gone for pod in role.pods)
        if loses and here < by_role[role.name]:
            return False
        left += here
    if left < least:
        return False
    touched = not gone or any(not subgroup.members.isdisjoint(gone) for subgroup in gang.subgroups)
    return not touched or complete_subgroups(s, gang, gone=gone) >= gang.min_subgroups


def complete_subgroups(s: Snapshot, group: Gang | Subgroup, *, gone: Collection[str] = (), added: Collection[str] = ()) -> int:
    """How many subgroups of a group are complete once some members are gone and others were placed."""
    found = 0
    for subgroup in group.subgroups:
        members = [uid for uid in subgroup.members if uid in added or (s.phase(uid) in SEATED_OR_NOMINATED and uid not in gone)]
        enough = len(members) + subgroup.succeeded >= subgroup.min
        found += enough and complete_subgroups(s, subgroup, gone=gone, added=added) >= subgroup.min_subgroups
    return found


def torn_subgroups(s: Snapshot, group: Gang | Subgroup, gone: Collection[str]) -> list[str]:
    """Subgroups of all levels that lose some of their members, and whose others stay although they are not complete."""
    found: list[str] = []
    for subgroup in group.subgroups:
        stay = [uid for uid in subgroup.members if s.phase(uid) in SEATED_OR_NOMINATED and uid not in gone]
        alone = replace(group, subgroups=(subgroup,))
        if stay and not subgroup.members.isdisjoint(gone) and not complete_subgroups(s, alone, gone=gone):
            found.append(subgroup.title)
        found.extend(torn_subgroups(s, subgroup, gone))
    return found


def whole_subgroups(s: Snapshot, group: Gang | Subgroup, gone: Collection[str]) -> list[tuple[str, ...]]:
    """The members of each subgroup, of the highest level that there is, that is evicted whole."""
    found: list[tuple[str, ...]] = []
    for subgroup in group.subgroups:
        placed = tuple(sorted(uid for uid in subgroup.members if s.phase(uid) in SEATED_OR_NOMINATED))
        if placed and set(placed) <= set(gone):
            found.append(placed)
        else:
            found.extend(whole_subgroups(s, subgroup, gone))
    return found


def units_of_plan(s: Snapshot, plan: JudgedPlan) -> tuple[list[Unit], list[Finding]]:
    """The units in which the victims were taken, and the gangs that are torn by that."""
    by_gang: dict[str, list[str]] = {}
    units: list[Unit] = []
    findings: list[Finding] = []
    for uid in plan.victims:
        gang = s.gang_of(uid)
        if gang is None or not s.pods[uid].ours:
            units.append(Unit(UnitKind.SINGLE, "", (uid,), s.pods[uid].priority))
        else:
            by_gang.setdefault(gang.key, []).append(uid)
    for key, uids in by_gang.items():
        gang = s.gangs[key]
        kind = _kind(s, plan, gang)
        if kind is None:
            left = len([pod for pod in s.placed_members(gang) if pod.uid not in plan.gone])
            text = f"{gang.full_name} is torn: {left} of its members are left, and its minimum is {gang.min}"
            findings.append(Finding("D3 torn", text))
        if kind is UnitKind.SAFE:
            whole = [] if key in s.history.broken else whole_subgroups(s, gang, uids)
            alone = [(uid,) for uid in uids if not any(uid in pods for pods in whole)]
            units.extend(Unit(kind, key, pods, max(s.pods[uid].priority for uid in pods)) for pods in [*whole, *alone])
            torn = [] if key in s.history.broken else torn_subgroups(s, gang, plan.gone)
            findings.extend(Finding("D3 torn", f"{title} of {gang.full_name} is torn") for title in torn)
        elif kind is UnitKind.SINGLE:
            units.extend(Unit(kind, key, (uid,), s.pods[uid].priority) for uid in uids)
        else:
            units.append(Unit(UnitKind.WHOLE, key, tuple(uids), gang.priority))
    return units, findings


def released_units(s: Snapshot, plan: JudgedPlan) -> tuple[list[Unit], list[Finding]]:
    """Gangs that only lose nominations, reservations or what this very cycle gave them: each as one unit, ended together."""
    by_gang: dict[str, list[str]] = {}
    for uid in plan.released:
        gang = s.gang_of(uid)
        if gang is not None:
            by_gang.setdefault(gang.key, []).append(uid)
    units: list[Unit] = []
    findings: list[Finding] = []
    for key, uids in by_gang.items():
        gang = s.gangs[key]
        kept = [pod for pod in gang.pods() if s.phase(pod.uid) in RESERVATIONS and pod.uid not in plan.gone]
        if kept:
            text = f"{gang.full_name} loses {len(uids)} nominations and keeps {len(kept)}: they end together"
            findings.append(Finding("D10 together", text))
        units.append(Unit(UnitKind.WHOLE, key, tuple(uids), gang.priority))
    return units, findings


def _kind(s: Snapshot, plan: JudgedPlan, gang: Gang) -> UnitKind | None:
    """In which units its members were taken; None: in none that there are."""
    if is_satisfied_once(s, gang):
        return UnitKind.SINGLE
    if plan.action == STALE_GANGS:
        return UnitKind.WHOLE if all(pod.uid in plan.gone for pod in s.placed_members(gang)) else None
    if gang.key in s.history.broken or keeps_minimums(s, gang, plan.gone):
        return UnitKind.SAFE
    if all(pod.uid in plan.gone for pod in s.placed_members(gang)) or s.rules.whole_gang == "domain":
        return UnitKind.WHOLE
    return None


def needed_members(s: Snapshot, gang: Gang, placed: Collection[str] = ()) -> int:
    """How many members the gang lacks of its minimums, if these had no node; under every match policy the bound ones count."""
    phases = SEATED_OR_NOMINATED
    lacking = have = 0
    for role in gang.roles:
        here = sum(s.phase(pod.uid) in phases and pod.uid not in placed for pod in role.pods) + role.succeeded
        lacking += max(0, role.min - here)
        have += here
    return max(lacking, gang.min - have, 0)
