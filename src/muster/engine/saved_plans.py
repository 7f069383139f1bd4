"""Plans as they are saved for a scheduler that starts later: one object for each gang with reservations, nominations or victims.

A Plan is written before anything else that it speaks of, and stays until its members are bound or gone and its victims are gone or
no longer evicted. Members that were bound and victims that are gone need no write: a restart sees that itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from muster.engine.session import Session
from muster.model.effects import DeletePlan, SavePlan
from muster.model.gang import Gang
from muster.model.pod import RESERVATIONS, UNPLACED, Phase, Placement, Pod
from muster.model.saved_state import UNKNOWN, SavedEvictions, SavedMember, SavedMove, SavedPlan, saved_plan_name
from muster.state.reserve_pods import Move
from muster.state.world import World


def plan_effects(s: Session) -> list[SavePlan | DeletePlan]:
    """What has to be written so that a restart knows the plans as they are now."""
    world, saved = s.world, s.world.memory.saved_plans
    effects: list[SavePlan | DeletePlan] = []
    moving = {move.for_gang for move in world.memory.moves.values()}
    for key in sorted({*saved, *_gangs_with_reservations(world), *moving}, key=lambda key: _order(world, key)):
        before = saved.get(key)
        if before is not None and not moving and _is_unchanged(world, before):
            continue
        plan = _plan_of(world, key, before or SavedPlan(key, name=saved_plan_name(key)))
        if plan.is_empty:
            if before is not None:
                saved.drop(key)
                effects.append(DeletePlan(key, plan.name))
        elif before is None or before.version == UNKNOWN or plan != _remaining(world, before):
            saved.set(key, plan)
            effects.append(SavePlan(plan))
    return effects


def _order(world: World, key: str) -> tuple[str, str]:
    """By name: the key of a single pod is its UID, which decides nothing."""
    gang, saved = world.facts.gangs.get(key), world.memory.saved_plans.get(key)
    first = saved.members[0].pod if saved is not None and saved.members else ""
    return (gang.full_name if gang is not None else first, key)


def _gangs_with_reservations(world: World) -> set[str]:
    return {world.facts.members[uid].gang for uid in world.placements.reservations}


def _is_unchanged(world: World, saved: SavedPlan) -> bool:
    """Does all of a saved plan that keeps nodes still stand as it was written, as most do from one cycle to the next?"""
    gang, evictions = world.facts.gangs.get(saved.gang), {entry.plan: entry for entry in saved.evictions}
    if gang is None or not saved.members or saved.cancelled or saved.moves or saved.version == UNKNOWN:
        return False
    if evictions.keys() != {member.plan for member in saved.members}:
        return False
    for name, entry in evictions.items():
        plan = world.memory.plans.get(name)
        if plan is None or (plan.action, plan.since, plan.victims) != (entry.action, entry.since, entry.victims):
            return False
    return _are_reserved_as_saved(world, gang, saved.members)


def _are_reserved_as_saved(world: World, gang: Gang, members: Iterable[SavedMember]) -> bool:
    left = iter(members)
    for pod in gang.pods():
        now = world.placements.by_uid.get(pod.uid, UNPLACED)
        if now.phase is Phase.BINDING:
            return False
        if now.phase in RESERVATIONS:
            was = next(left, None)
            if was is None or pod.node is not None or pod.uid != was.uid:
                return False
            if (now.node, now.phase, now.since, now.plan, now.devices) != (was.node, was.phase, was.since, was.plan, was.devices):
                return False
    return next(left, None) is None


def _plan_of(world: World, key: str, before: SavedPlan) -> SavedPlan:
    """The plan as it should be saved now."""
    members = _members(world, key)
    evictions = _evictions(world, before, named={member.plan for member in members})
    victims = {uid for entry in evictions for uid in entry.victims}
    known = dict.fromkeys([*before.cancelled, *(uid for entry in before.evictions for uid in entry.victims)])
    cancelled = tuple(uid for uid in known if uid not in victims and _is_marked(world, uid, Phase.BOUND))
    return replace(before, members=members, evictions=evictions, cancelled=cancelled, moves=_moves(world, key), version=0)


def _members(world: World, key: str) -> tuple[SavedMember, ...]:
    gang = world.facts.gangs.get(key)
    kept = [(pod, _reservation(world, pod)) for pod in gang.pods()] if gang is not None else []
    # What was kept for members that were moved is in the Plan that they were moved for.
    moves = world.memory.moves
    return tuple(_saved_member(pod, placement) for pod, placement in kept if placement is not None and placement.plan not in moves)


def _moves(world: World, key: str) -> tuple[SavedMove, ...]:
    moves = [move for move in world.memory.moves.values() if move.for_gang == key]
    return tuple(sorted(map(_saved_move, moves), key=lambda move: (move.pod, move.victim)))


def _saved_move(move: Move) -> SavedMove:
    pod, member = move.reserve, move.reserve.member
    return SavedMove(
        victim=pod.victim,
        pod=pod.full_name,
        gang=member.gang,
        role=member.role,
        owner=pod.owner,
        queue=member.queue,
        preemptible=member.preemptible,
        priority=pod.priority,
        node=move.placement.node or "",
        since=move.placement.since,
        plan=move.plan,
        request=tuple(sorted(pod.signature.request.items)),
        devices=move.placement.devices,
        uid=move.successor,
    )


def _evictions(world: World, before: SavedPlan, *, named: set[str]) -> tuple[SavedEvictions, ...]:
    """`named`: the plans that have nominations. Of others only those victims still count that were asked to leave and have not."""
    known = {entry.plan: entry for entry in before.evictions}
    found: list[SavedEvictions] = []
    for name in sorted({*known, *named}):
        plan = world.memory.plans.get(name)
        entry = known.get(name) if plan is None else SavedEvictions(name, plan.action, plan.since, plan.victims)
        if entry is not None and name not in named:
            entry = replace(entry, victims=tuple(uid for uid in entry.victims if _is_marked(world, uid, Phase.TERMINATING)))
        if entry is not None and entry.victims:
            found.append(entry)
    return tuple(found)


def _remaining(world: World, saved: SavedPlan) -> SavedPlan:
    """A saved plan without what a restart drops by itself: members that were bound or are gone, and marks that were removed."""
    members = tuple(member for member in saved.members if _is_waiting(world, member.uid))
    marked = tuple(uid for uid in saved.cancelled if _is_marked(world, uid, Phase.BOUND))
    moves = tuple(move for move in saved.moves if not move.uid or _is_waiting(world, move.uid))
    return replace(saved, members=members, cancelled=marked, moves=moves, version=0)


def _is_waiting(world: World, uid: str) -> bool:
    pod = world.facts.pods.get(uid)
    return pod is not None and pod.node is None


def _reservation(world: World, pod: Pod) -> Placement | None:
    """What is kept for the pod, also while it is being bound there: it goes back to that if the bind fails."""
    placement = world.placement(pod)
    if placement.phase in RESERVATIONS:
        return placement
    binding = world.memory.binding_reservations.get(pod.uid)
    return binding.reservation if binding is not None and placement.phase is Phase.BINDING else None


def _saved_member(pod: Pod, placement: Placement) -> SavedMember:
    return SavedMember(
        pod.uid, pod.full_name, placement.node or "", placement.phase, placement.since, placement.plan, placement.devices
    )


def _is_marked(world: World, uid: str, phase: Phase) -> bool:
    """Is the pod there, in this phase, and does it show the mark of a soft eviction, or may it soon?"""
    pod = world.facts.pods.get(uid)
    if pod is None or pod.deleted_at is not None or world.phase(pod) is not phase:
        return False
    return pod.eviction_marked_at is not None or (phase is Phase.TERMINATING)
