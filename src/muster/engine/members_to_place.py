"""Which members of a gang are placed when: those that its minimum needs first, the others after every gang of its priority has had
its turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.model.gang import Gang
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.gang_stage import count, phases_that_count, reaches_min, unplaced
from muster.state.gangs.subgroups import CountsMember, in_phases, ways_to_have_subgroups, with_more
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
    waiting = unplaced(world, gang)
    first = next(ways_to_minimum(world, gang, phases, waiting))
    known = {pod.uid for pod in first}
    return first, tuple(pod for pod in waiting if pod.uid not in known)


def ways_to_minimum(world: World, gang: Gang, phases: Collection[Phase], waiting: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    """Which of these members its minimums lack beside those in these phases; then other choices among its subgroups."""
    phases = phases_that_count(world, gang, phases)
    placed = {role.name: count(world, role, phases) + role.succeeded for role in gang.roles}
    return _ways(world, gang, placed, waiting, in_phases(world, {*phases, Phase.NOMINATED}))


def _ways(
    world: World, gang: Gang, placed: Mapping[str, int], waiting: Sequence[Pod], counts: CountsMember
) -> Iterator[tuple[Pod, ...]]:
    """`placed`: how many members each role has beside those that wait. All that wait, where they are too few."""
    short = {role.name: max(0, role.min - placed[role.name]) for role in gang.roles}
    more = gang.min - sum(max(role.min, placed[role.name]) for role in gang.roles)
    if gang.subgroups:
        yield from _ways_by_subgroup(world, gang, short, more, waiting, counts)
        return
    first: list[Pod] = []
    others: list[Pod] = []
    for pod in waiting:
        role = world.facts.members[pod.uid].role
        (first if short[role] > 0 else others).append(pod)
        short[role] -= 1
    yield (*first, *others[: max(0, more)])


def _ways_by_subgroup(
    world: World, gang: Gang, short: Mapping[str, int], more: int, waiting: Sequence[Pod], counts: CountsMember
) -> Iterator[tuple[Pod, ...]]:
    """Whole subgroups first, then what roles and gang lack beside them: nobody is asked for whose subgroup stays incomplete."""
    pods = {pod.uid: pod for pod in waiting}
    pool = {uid: place for place, uid in enumerate(pods)}
    roles: dict[str, set[str]] = {name: set() for name in short}
    for uid in pods:
        roles[world.facts.members[uid].role].add(uid)
    total, found = sum(short.values()) + max(0, more), False
    for subgroups in ways_to_have_subgroups(gang, counts, pool):
        added: tuple[str, ...] | None = subgroups
        for name, needed in short.items():
            if added is not None:
                added = with_more(gang, counts, pool, added, short=needed - len(roles[name].intersection(added)), among=roles[name])
        if added is not None:
            added = with_more(gang, counts, pool, added, short=total - len(added))
        if added is not None:
            found = True
            yield tuple(pods[uid] for uid in sorted(added, key=pool.__getitem__))
    if not found:
        yield tuple(waiting)


def have_alternatives(world: World, gang: Gang, members: UnplacedMembers) -> bool:
    """Could surplus members find nodes where some that the minimum asks for do not?"""
    if not members.surplus:
        return False
    roles = world.facts.members
    kinds = {(roles[pod.uid].role, pod.signature) for pod in (*members.minimum, *members.surplus)}
    return len(kinds) > 1 or bool(gang.subgroups)


def release_surplus(world: World, trial: Trial, gang: Gang, members: UnplacedMembers, before: Mapping[str, int]) -> None:
    """Of all members that were just placed keep those that the minimum needs. `before`: how many each role had."""
    placed = {pod.uid: pod for pod in (*members.minimum, *members.surplus) if pod.uid in world.placements.by_uid}
    counts = in_phases(world, {*phases_that_count(world, gang, PLACED), Phase.NOMINATED})
    kept = next(_ways(world, gang, before, list(placed.values()), lambda uid: uid not in placed and counts(uid)))
    known = {pod.uid for pod in kept}
    for uid, pod in placed.items():
        if uid not in known:
            trial.release(pod)


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
