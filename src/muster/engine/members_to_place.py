"""Which members of a gang are placed when: those that its minimum needs first, the others after every gang of its priority has had
its turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from muster.model.gang import Gang
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.gang_stage import count, phases_that_count, reaches_min
from muster.state.gangs.subgroups import with_subgroup_members
from muster.state.trial import Trial
from muster.state.world import World


@dataclass(frozen=True, slots=True)
class UnplacedMembers:
    """Members without a node. `together`: the gang starts with all of the `minimum` or not at all; else each helps by itself."""

    minimum: tuple[Pod, ...]
    surplus: tuple[Pod, ...]
    together: bool


def unplaced_members(world: World, gang: Gang) -> UnplacedMembers:
    """The members of a gang without a node: what its minimums lack, and the others."""
    minimum, surplus = split_members(world, gang, PLACED)
    return UnplacedMembers(minimum, surplus, together=not reaches_min(world, gang))


def has_minimum_placed(world: World, gang: Gang) -> bool:
    """Does no member that the minimum asks for lack a node? Also asked of a gang that runs and is placed pod by pod."""
    return not world.placements.unplaced_members.get(gang.key) or not unplaced_members(world, gang).minimum


def split_members(world: World, gang: Gang, phases: Collection[Phase]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """The members without a node: what the minimums lack beside those in these phases, and the others."""
    phases = phases_that_count(world, gang, phases)
    first: list[Pod] = []
    others: list[Pod] = []
    have = 0
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in world.placements.by_uid]
        placed = count(world, role, phases) + role.succeeded
        lacking = max(0, role.min - placed)
        first.extend(waiting[:lacking])
        others.extend(waiting[lacking:])
        have += placed
    first, others = with_subgroup_members(world, gang, first, others)
    more = max(0, gang.min - have - len(first))
    return (*first, *others[:more]), tuple(others[more:])


def have_alternatives(world: World, members: UnplacedMembers) -> bool:
    """Could surplus members find nodes where some that the minimum asks for do not?"""
    if not members.surplus:
        return False
    roles = world.facts.members
    return len({(roles[pod.uid].role, pod.signature) for pod in (*members.minimum, *members.surplus)}) > 1


def release_surplus(world: World, trial: Trial, gang: Gang, members: UnplacedMembers, before: dict[str, int]) -> None:
    """Of all members that were just placed keep those that the minimum needs. `before`: how many each role had."""
    kept: set[str] = set()
    short = {role.name: max(0, role.min - before[role.name]) for role in gang.roles}
    placed = [pod for pod in (*members.minimum, *members.surplus) if pod.uid in world.placements.by_uid]
    for pod in placed:
        role = world.facts.members[pod.uid].role
        if short[role] > 0:
            short[role] -= 1
            kept.add(pod.uid)
    more = gang.min - sum(max(role.min, before[role.name]) for role in gang.roles)
    kept.update([pod.uid for pod in placed if pod.uid not in kept][: max(0, more)])
    mark, complete = trial.mark(), reaches_min(world, gang)
    for pod in placed:
        if pod.uid not in kept:
            trial.release(pod)
    if complete and not reaches_min(world, gang):
        # Its subgroups need others than the first of each role.
        trial.undo_to(mark)


def release_unexpected(world: World, trial: Trial, gang: Gang, pods: Sequence[Pod]) -> bool:
    """Of these members that were just placed give back those beyond the size that the gang expects in one cycle; was there any?"""
    expected = {role.name: role.total for role in gang.roles if role.has_declared_total}
    if not expected:
        return False
    for step in world.placements.steps():
        member = world.facts.members.get(step.pod.uid)
        if member is not None and member.gang == gang.key and step.before.node is None and step.pod.uid in world.placements.by_uid:
            expected[member.role] = expected.get(member.role, 0) - 1
    released = False
    for pod in reversed(pods):
        role = world.facts.members[pod.uid].role
        if expected.get(role, 0) < 0 and pod.uid in world.placements.by_uid:
            trial.release(pod)
            expected[role] += 1
            released = True
    return released
