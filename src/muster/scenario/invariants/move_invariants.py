"""Invariants of consolidation: whoever is moved has a place, and is moved seldom."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Evict, SavePlan
from muster.model.pod import Phase, Pod
from muster.scenario.invariants.checked_cycle import CheckedCycle, reserve_pods

MOVES = "consolidate"


def moved_pods_have_a_place(case: CheckedCycle) -> Iterator[str]:
    """A pod that is moved has capacity on another node, and the Plan that is written says so."""
    world = case.world
    kept = {reserve.victim: uid for uid, reserve in reserve_pods(world).items()}
    saved = {
        move.victim: move.node for effect in case.outcome.effects if isinstance(effect, SavePlan) for move in effect.plan.moves
    }
    for effect in _moved(case):
        placement = world.placements.by_uid.get(kept.get(effect.uid, ""))
        if placement is None or placement.phase is not Phase.MOVING or placement.node in (None, effect.node):
            yield f"{effect.pod} is moved from {effect.node}, and has no other place"
        # A Plan that a scheduler before this one wrote need not be written again.
        elif case.outcome.cycle > 1 and saved.get(effect.uid) != placement.node:
            yield f"{effect.pod} is moved to {placement.node}, and its Plan does not say so"


def only_movable_pods_are_moved(case: CheckedCycle) -> Iterator[str]:
    """Whom a controller creates anew, who may be moved, and who does not come before the gang that it is moved for."""
    facts = case.world.facts
    for effect in _moved(case):
        pod = facts.pods[effect.uid]
        own = facts.gangs[facts.members[effect.uid].gang]
        asking = [gang for gang in facts.gangs.values() if gang.full_name == effect.for_gang]
        if not pod.controller:
            yield f"{effect.pod} is moved, and nobody creates it anew"
        if pod.movable is False or (pod.movable is None and not case.policy.settings.movable_queues):
            yield f"{effect.pod} is moved, and may not be"
        if asking and own.priority > max(gang.priority for gang in asking):
            yield f"{effect.pod} is moved for a gang of a lower priority"


def nobody_is_moved_twice(case: CheckedCycle) -> Iterator[str]:
    """Pods of one controller are moved at one time, and not again within the time that the policy sets."""
    every_s = case.policy.settings.move_every_s
    for key in moved_controllers(case):
        before = case.history.moved.get(key)
        # A scheduler that has just started goes on with what the one before it decided.
        if before is not None and case.outcome.now < before + every_s and case.outcome.cycle > 1:
            yield f"pods of {key[1]} in {key[0]} are moved again after {case.outcome.now - before:.0f} s"


def reserve_pods_belong_to_moves(case: CheckedCycle) -> Iterator[str]:
    """Capacity is kept for exactly those pods that were moved and not created anew yet."""
    world = case.world
    kept = reserve_pods(world)
    if kept.keys() != world.placements.reserve_pods.keys():
        wrong = sorted(kept.keys() ^ world.placements.reserve_pods.keys())
        yield f"capacity is kept without a move, or the other way round: {wrong}"
    for uid, reserve in kept.items():
        victim = world.facts.pods.get(reserve.victim)
        if case.phase(uid) is not Phase.MOVING:
            yield f"nothing is kept for {reserve.full_name}"
        elif victim is not None and case.phase(victim.uid) is Phase.BOUND:
            yield f"capacity is kept for {reserve.full_name}, which stays where it is"


def moved_controllers(case: CheckedCycle) -> list[tuple[str, str]]:
    """Of the pods that are moved in this cycle, by namespace."""
    return sorted({(pod.namespace, pod.controller) for pod in _pods(case)})


def _pods(case: CheckedCycle) -> Iterator[Pod]:
    return (case.world.facts.pods[effect.uid] for effect in _moved(case))


def _moved(case: CheckedCycle) -> Iterator[Evict]:
    return (effect for effect in case.outcome.effects if isinstance(effect, Evict) and effect.cause == MOVES)
