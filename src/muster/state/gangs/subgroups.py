"""Subgroups: members of a gang with a minimum and topology of their own, by the subgroup policies that a PodGroup declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.model.gang import Gang, PodGroup, Subgroup, SubgroupPolicy
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod, PodStatusPhase
from muster.state.world import World


@dataclass(slots=True)
class _Counted:
    live: list[str]
    succeeded: int = 0


def subgroups_of(group: PodGroup | None, pods: Iterable[Pod]) -> tuple[Subgroup, ...]:
    """The subgroups of one PodGroup. A pod is in one of the first policy that selects it and whose labels it has."""
    if group is None or not group.sub_groups:
        return ()
    counted: dict[tuple[int, tuple[str, ...]], _Counted] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.name, pod.uid)):
        found = _subgroup_of(group.sub_groups, pod)
        if found is None:
            continue
        subgroup = counted.setdefault(found, _Counted([]))
        if pod.status_phase is PodStatusPhase.SUCCEEDED:
            subgroup.succeeded += 1
        elif not pod.finished and pod.deleted_at is None and not pod.gates:
            subgroup.live.append(pod.uid)
    return tuple(_subgroup(group, at, values, counted[at, values]) for at, values in sorted(counted))


def _subgroup_of(sub_groups: Sequence[SubgroupPolicy], pod: Pod) -> tuple[int, tuple[str, ...]] | None:
    for at, sub_group in enumerate(sub_groups):
        if sub_group.role and (pod.membership is None or pod.membership.role != sub_group.role):
            continue
        if sub_group.selector.selects(pod.labels) and all(key in pod.labels for key in sub_group.label_keys):
            return at, tuple(pod.labels[key] for key in sub_group.label_keys)
    return None


def _subgroup(group: PodGroup, at: int, values: tuple[str, ...], counted: _Counted) -> Subgroup:
    sub_group = group.sub_groups[at]
    return Subgroup(
        title="-".join((sub_group.name, *values)),
        members=frozenset(counted.live),
        min=sub_group.size,
        succeeded=counted.succeeded,
        topology=sub_group.topology,
        sub_group=f"{group.full_name}/{sub_group.name}",
    )


def subgroup_mins_of(group: PodGroup | None) -> tuple[tuple[str, int], ...]:
    if group is None:
        return ()
    return tuple((f"{group.full_name}/{each.name}", each.min_subgroups) for each in group.sub_groups if each.min_subgroups)


def missing_subgroups(gang: Gang) -> str:
    """Which policy has fewer complete subgroups than the gang needs, as a sentence, or empty."""
    for sub_group, least in gang.subgroup_mins:
        ready = sum(
            subgroup.sub_group == sub_group and len(subgroup.members) + subgroup.succeeded >= subgroup.min
            for subgroup in gang.subgroups
        )
        if ready < least:
            return f"sub-group {sub_group.rsplit('/', 1)[-1]}: {ready} of at least {least} parts have their members"
    return ""


def has_subgroup_minimums(world: World, gang: Gang, phases: Iterable[Phase] = PLACED_OR_NOMINATED) -> bool:
    """True when every policy has enough subgroups with enough members in these phases."""
    return all(
        sum(
            subgroup.sub_group == sub_group and placed_in_subgroup(world, subgroup, phases) >= subgroup.min
            for subgroup in gang.subgroups
        )
        >= least
        for sub_group, least in gang.subgroup_mins
    )


def with_subgroup_members(world: World, gang: Gang, needed: list[Pod], others: list[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Which members are needed and which are not, with whole subgroups among the needed: those that are still missing, where that
    takes fewest of the others, and those that would be begun anyway."""
    if not gang.subgroups:
        return needed, others
    known = {pod.uid for pod in needed}
    more = {subgroup: _to_draw(world, subgroup, known, others) for subgroup in gang.subgroups}
    drawn: set[str] = set()
    for sub_group, least in gang.subgroup_mins:
        drawn.update(*_fewest_for(world, {each: uids for each, uids in more.items() if each.sub_group == sub_group}, least))
    for subgroup, begun in more.items():
        if begun and not known.isdisjoint(subgroup.members):
            drawn.update(begun)
    return [*needed, *(pod for pod in others if pod.uid in drawn)], [pod for pod in others if pod.uid not in drawn]


def _fewest_for(world: World, more: Mapping[Subgroup, list[str] | None], least: int) -> list[list[str]]:
    """What has to be drawn for so many complete subgroups. Of equal ones the first subgroup: UIDs are arbitrary."""
    incomplete = [subgroup for subgroup in more if placed_in_subgroup(world, subgroup) < subgroup.min]
    missing = least - (len(more) - len(incomplete))
    able = [uids for subgroup in incomplete if (uids := more[subgroup]) is not None]
    return sorted(able, key=len)[: max(0, missing)]


def _to_draw(world: World, subgroup: Subgroup, needed: set[str], others: Sequence[Pod]) -> list[str] | None:
    """Which of the others a subgroup needs for its minimum, or None where there are too few."""
    short = max(0, subgroup.min - placed_in_subgroup(world, subgroup) - len(needed & subgroup.members))
    uids = [pod.uid for pod in others if pod.uid in subgroup.members][:short]
    return uids if len(uids) == short else None


def placed_in_subgroup(world: World, subgroup: Subgroup, phases: Iterable[Phase] = PLACED_OR_NOMINATED) -> int:
    """Members of the subgroup in these phases, or already succeeded."""
    placements, phases = world.placements.by_uid, frozenset(phases)
    return subgroup.succeeded + sum(
        (found := placements.get(uid)) is not None and found.phase in phases for uid in subgroup.members
    )
