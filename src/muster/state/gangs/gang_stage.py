"""How far a gang is: counts over its members and the stage that follows. Nothing here is stored."""

from __future__ import annotations

from collections.abc import Collection

from muster.model.gang import Gang, MatchPolicy, Role, Stage
from muster.model.pod import PLACED, PLACED_OR_NOMINATED, Phase, Pod
from muster.state.gangs.subgroups import has_subgroups, in_phases
from muster.state.world import World

_BOUND = frozenset({Phase.BOUND})


def count(world: World, role: Role, phases: Collection[Phase]) -> int:
    """Members of a role in one of the phases."""
    placements = world.placements.by_uid
    placed = 0
    for pod in role.pods:
        placement = placements.get(pod.uid)
        if (Phase.PENDING if placement is None else placement.phase) in phases:
            placed += 1
    return placed


def is_running(world: World, gang: Gang) -> bool:
    """True from the first bound member on, for as long as one is bound."""
    return any(count(world, role, _BOUND) for role in gang.roles)


def reaches_min(world: World, gang: Gang, phases: Collection[Phase] = PLACED) -> bool:
    """True when every role has its minimum, and the gang its own, with members in these phases or already succeeded."""
    if gang.match_policy is MatchPolicy.ONCE_SATISFIED and is_running(world, gang):
        return True
    return has_minimum(world, gang, phases_that_count(world, gang, phases))


def phases_that_count(world: World, gang: Gang, phases: Collection[Phase]) -> Collection[Phase]:
    """With `only-waiting` bound members do not count for those that come after them. They do in a partially bound gang:
    it is still the one that waited."""
    if gang.match_policy is MatchPolicy.ONLY_WAITING and has_minimum(world, gang, _BOUND):
        return frozenset(phases) - _BOUND
    return phases


def has_minimum(world: World, gang: Gang, phases: Collection[Phase]) -> bool:
    """Its own, that of each role, and as many complete subgroups as it needs."""
    total = 0
    for role in gang.roles:
        placed = count(world, role, phases) + role.succeeded
        if placed < role.min:
            return False
        total += placed
    return total >= gang.min and (not gang.subgroups or has_subgroups(gang, in_phases(world, phases)))


def is_partially_bound(world: World, gang: Gang) -> bool:
    """Some members are bound or binding, but a role has fewer than its minimum: by a failure, a crash or a lost node."""
    if world.placements.unplaced_members.get(gang.key, 0) >= gang.size:
        return False
    binding_or_bound = frozenset({Phase.BINDING, Phase.BOUND})
    return any(count(world, role, binding_or_bound) for role in gang.roles) and not has_minimum(world, gang, binding_or_bound)


def members_missing(world: World, gang: Gang, phases: Collection[Phase] = PLACED) -> dict[str, int]:
    """How many members each role still needs to reach its minimum."""
    return {role.name: max(0, role.min - count(world, role, phases) - role.succeeded) for role in gang.roles}


def has_enough_members(gang: Gang) -> bool:
    """True when every role has as many children as its minimum: before that an attempt makes no sense."""
    if any(len(role.pods) + role.succeeded < role.min for role in gang.roles):
        return False
    return sum(len(role.pods) + role.succeeded for role in gang.roles) >= gang.min and has_subgroups(gang, lambda _: True)


def unplaced(world: World, gang: Gang) -> list[Pod]:
    placements = world.placements.by_uid
    return [pod for pod in gang.pods() if pod.uid not in placements]


def stage(world: World, gang: Gang) -> Stage:
    pods = gang.pods()
    if not pods and any(role.succeeded or role.failed for role in gang.roles):
        return Stage.FINISHED
    if any(pod.timed_out or pod.uid in world.memory.timed_out for pod in pods):
        return Stage.TIMED_OUT
    if is_running(world, gang):
        return Stage.RUNNING
    if gang.waiting_for or gang.invalid_because or not has_enough_members(gang):
        return Stage.WAITING_FOR_PODS
    phases = {world.phase(pod) for pod in pods}
    if Phase.NOMINATED in phases:
        return Stage.PREEMPTING
    return Stage.WAITING_ON_PERMIT if phases & (PLACED_OR_NOMINATED - {Phase.BOUND}) else Stage.WAITING
