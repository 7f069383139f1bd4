"""What a PodGroup's status should read: derived from its members, written only where it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from muster.engine.reporting import is_news
from muster.engine.session import Session
from muster.model.effects import PodGroupStatus
from muster.model.gang import Gang, PodGroup, Role, phase_in
from muster.model.pod import ApiFlavour, Phase, PodStatusPhase
from muster.state.gangs.gang_stage import has_enough_members, has_minimum
from muster.state.gangs.subgroups import all_subgroups, in_phases, is_complete
from muster.state.world import World


def statuses(s: Session, gangs: Sequence[str]) -> Iterator[PodGroupStatus]:
    """New statuses for the PodGroups of these gangs."""
    world = s.world
    for gang in [world.facts.gangs[key] for key in gangs]:
        for key in dict.fromkeys(role.group for role in gang.roles if role.group):
            group = world.facts.groups.get(key)
            if group is None:
                continue
            status = status_of(world, gang, key)
            if is_news(world, group.uid, status, group.status, says=partial(_says, group, status)):
                yield status
        yield from _composite_statuses(world, gang)


def _composite_statuses(world: World, gang: Gang) -> Iterator[PodGroupStatus]:
    """Of the CompositePodGroups of a gang: only whether they were scheduled is written there."""
    parts = {subgroup.title: subgroup for subgroup in all_subgroups(gang)} if gang.parent else {}
    for key in gang.key.split(",") if gang.parent else ():
        group = world.facts.composites.get(key)
        if group is None:
            continue
        part, bound = parts.get(group.full_name), in_phases(world, {Phase.BOUND})
        is_whole = has_minimum(world, gang, {Phase.BOUND}) if part is None else is_complete(part, bound)
        scheduled = sum(bound(pod.uid) for pod in gang.pods() if part is None or pod.uid in part.members)
        phase = "Scheduled" if is_whole and scheduled else "Scheduling" if scheduled else "Pending"
        status = PodGroupStatus(key, phase, scheduled)
        if is_news(world, group.uid, status, group.status, says=lambda: False):
            yield status


def _says(group: PodGroup, status: PodGroupStatus) -> bool:
    """Does the object's own status read so already, in the words of its API?"""
    known = group.status
    counts = {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
    if group.flavour is not ApiFlavour.VOLCANO:
        counts["scheduled"] = status.scheduled
    if known.get("phase", "") != phase_in(group.flavour, status.phase, scheduled=status.scheduled):
        return False
    if group.flavour is not ApiFlavour.VOLCANO and group.started != status.start_time:
        return False
    return all(known.get(name, "0") == str(count) for name, count in counts.items())


def status_of(world: World, gang: Gang, group: str) -> PodGroupStatus:
    roles = [role for role in gang.roles if role.group == group]
    scheduled = sum(_count_scheduled(world, role) for role in roles)
    running = sum(pod.status_phase is PodStatusPhase.RUNNING for role in roles for pod in role.pods)
    succeeded = sum(role.succeeded for role in roles)
    failed = sum(role.failed for role in roles)
    live = sum(len(role.pods) for role in roles)
    least = gang.min if len(roles) == len(gang.roles) else sum(role.min for role in roles)
    if gang.parent:
        least = world.facts.groups[group].min_member
    phase = _phase(
        ready=_is_ready(world, gang),
        least=max(1, least),
        live=live,
        scheduled=scheduled,
        running=running,
        succeeded=succeeded,
        failed=failed,
    )
    memory = world.memory.attempts.get(gang.key)
    return PodGroupStatus(group, phase, scheduled, running, succeeded, failed, memory.started if memory is not None else None)


def _is_ready(world: World, gang: Gang) -> bool:
    """May its members be scheduled? Volcano's controllers make pods only after this was said of their PodGroup."""
    if gang.flavour is ApiFlavour.VOLCANO:
        memory = world.memory.attempts.get(gang.key)
        return memory is None or not memory.not_admitted
    return has_enough_members(gang) and not gang.waiting_for and not gang.invalid_because


def _count_scheduled(world: World, role: Role) -> int:
    return sum(world.phase(pod) is Phase.BOUND for pod in role.pods)


def _phase(*, ready: bool, least: int, live: int, scheduled: int, running: int, succeeded: int, failed: int) -> str:
    """One failed child does not make a gang Failed while enough others run or can still be scheduled."""
    if succeeded >= least and live == 0:
        return "Finished"
    if failed and live + succeeded < least:
        return "Failed"
    if running + succeeded >= least:
        return "Running"
    if scheduled + succeeded >= least:
        return "Scheduled"
    if scheduled:
        return "Scheduling"
    return "PreScheduling" if ready else "Pending"
