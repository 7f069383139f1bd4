"""Invariants of gangs: strict ones placed whole or not at all, and a reason for everything."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Condition, PodGroupStatus, QueueStatus, StateEffect
from muster.model.gang import Gang, MatchPolicy, Mode, Subgroup
from muster.model.pod import Phase
from muster.scenario.invariants.checked_cycle import PLACED, CheckedCycle
from muster.state.gangs.subgroups import all_subgroups


def strict_gang_all_or_nothing(case: CheckedCycle) -> Iterator[str]:
    """A strict gang with a pod placed in this cycle has its minimum placed at the end of it, and never has a node reserved."""
    world = case.world
    touched = {case.gang_key(effect.uid): None for effect in case.placed()}
    for key in touched:
        gang = world.facts.gangs.get(key)
        if gang is None or gang.mode is not Mode.STRICT:
            continue
        nominated = any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods())
        phases = PLACED | {Phase.NOMINATED} if nominated else PLACED
        yield from below_min(case, gang, phases)
    for uid in sorted(world.placements.reservations):
        gang = world.facts.gangs.get(case.gang_key(uid))
        if gang is not None and gang.mode is Mode.STRICT and case.phase(uid) is Phase.RESERVED:
            yield f"{gang.full_name} is strict, and {world.facts.pods[uid].full_name} has a node reserved"


def below_min(case: CheckedCycle, gang: Gang, phases: frozenset[Phase]) -> Iterator[str]:
    bound = any(case.phase(pod.uid) is Phase.BOUND for pod in gang.pods())
    if gang.match_policy is MatchPolicy.ONCE_SATISFIED and bound:
        return
    counted = phases - {Phase.BOUND} if gang.match_policy is MatchPolicy.ONLY_WAITING and _is_fully_bound(case, gang) else phases
    total = 0
    for role in gang.roles:
        placed_count = sum(case.phase(pod.uid) in counted for pod in role.pods) + role.succeeded
        total += placed_count
        if placed_count < role.min:
            yield f"{gang.full_name} was placed, and its role {role.name or 'unnamed'} has {placed_count} of {role.min} members"
    if total < gang.min:
        yield f"{gang.full_name} was placed, and has {total} of {gang.min} members"
    complete = sum(_is_complete(case, subgroup) for subgroup in gang.subgroups)
    if complete < gang.min_subgroups:
        yield f"{gang.full_name} was placed, and has {complete} of {gang.min_subgroups} complete subgroups"


def no_incomplete_subgroup_is_placed(case: CheckedCycle) -> Iterator[str]:
    """A subgroup with a pod placed in this cycle is complete: it has its minimum, and as many complete subgroups as it needs."""
    placed = {effect.uid for effect in case.placed()}
    for key in {case.gang_key(uid): None for uid in placed}:
        gang = case.world.facts.gangs.get(key)
        for subgroup in () if gang is None else all_subgroups(gang):
            if not placed.isdisjoint(subgroup.members) and not _is_complete(case, subgroup):
                have = f"{_count_placed(case, subgroup)} of {subgroup.min} members"
                yield f"{subgroup.title} of {key} was placed, and is not complete: {have}"


def _is_complete(case: CheckedCycle, subgroup: Subgroup) -> bool:
    whole = [each for each in subgroup.subgroups if _is_complete(case, each)]
    return _count_placed(case, subgroup) >= subgroup.min and len(whole) >= subgroup.min_subgroups


def _count_placed(case: CheckedCycle, subgroup: Subgroup) -> int:
    return subgroup.succeeded + sum(case.phase(uid) in PLACED | {Phase.NOMINATED} for uid in subgroup.members)


def _is_fully_bound(case: CheckedCycle, gang: Gang) -> bool:
    """Whether the bound members are all that the gang needs; with fewer it is being bound right now."""
    bound = [sum(case.phase(pod.uid) is Phase.BOUND for pod in role.pods) + role.succeeded for role in gang.roles]
    return sum(bound) >= gang.min and all(placed_count >= role.min for placed_count, role in zip(bound, gang.roles, strict=True))


def every_effect_says_why(case: CheckedCycle) -> Iterator[str]:
    """Every effect, and every gang with unplaced members, has a message and a code."""
    for effect in case.outcome.effects:
        if isinstance(effect, PodGroupStatus | QueueStatus | StateEffect):
            continue
        if isinstance(effect, Condition):
            code, subject = effect.code, f"{effect.subject} {effect.key}"
        else:
            code, subject = effect.cause, effect.pod
        if not (effect.why.strip() and code.strip()):
            yield f"{type(effect).__name__} of {subject} does not say why"
    if "allocate" not in case.policy.actions:
        return
    for gang in case.world.facts.gangs.values():
        waits = [pod for pod in gang.pods() if case.phase(pod.uid) in (Phase.PENDING, Phase.NOMINATED, Phase.RESERVED)]
        verdict = case.world.memory.attempts[gang.key].verdict
        if waits and (verdict is None or verdict.ok or not (verdict.why.strip() and verdict.code.strip())):
            yield f"{len(waits)} members of {gang.full_name} wait, and nothing says why"
