"""Soft evictions that no nomination needs any more: they are cancelled."""

from __future__ import annotations

from muster.engine.lost_reservations import possibly_lost, why_lost
from muster.engine.nominations import EVICTION_CANCELLED, cancel_eviction, leave_plans, nominated_by_plan
from muster.engine.quota import limits
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.resource_columns import Amounts
from muster.state.world import World


def cancel_unneeded_evictions(s: Session) -> None:
    """Soft evictions for nominations that have ended or moved, for whatever reason, are cancelled, unless another nomination
    needs that capacity; those of the scheduler before this one too. Done when a cycle begins, so that nobody counts on their
    capacity, and when it ends, because nominations end in between."""
    world = s.world
    marked = [
        pod
        for uid in world.placements.releasing
        if (pod := world.facts.pods[uid]).eviction_marked_at is not None and pod.deleted_at is None
    ]
    if not marked:
        return
    needed, beneficiaries = _victims_on_nominated_nodes(world), _beneficiaries(world)
    unneeded: dict[str, list[Pod]] = {}
    for victim in sorted((pod for pod in marked if pod.uid not in needed), key=lambda pod: pod.full_name):
        if world.phase(victim) is Phase.TERMINATING and not _is_needed(s, victim):
            member = world.facts.members.get(victim.uid)
            unneeded.setdefault(member.gang if member is not None else victim.uid, []).append(victim)
    for key, victims in unneeded.items():
        if not _end_with_their_gang(s, world.facts.gangs.get(key), victims):
            for victim in victims:
                cancel_eviction(s, victim, f"{beneficiaries.get(victim.uid, 'nobody')} no longer needs its capacity")
                leave_plans(s, victim)


def _victims_on_nominated_nodes(world: World) -> set[str]:
    """Victims of plans on nodes to which a pod of the same plan is nominated."""
    nominated = nominated_by_plan(world)
    found: set[str] = set()
    for name, plan in world.memory.plans.items():
        nodes = {world.placements.by_uid[uid].node for uid in nominated.get(name, ())}
        found.update(
            uid for uid in plan.victims if uid in world.placements.releasing and world.placements.by_uid[uid].node in nodes
        )
    return found


def _beneficiaries(world: World) -> dict[str, str]:
    """For which gang each victim of a plan is evicted, by UID."""
    plans = world.memory.saved_plans.values()
    return {uid: plan.gang.partition(":")[2] for plan in plans for entry in plan.evictions for uid in entry.victims}


def _end_with_their_gang(s: Session, gang: Gang | None, victims: list[Pod]) -> bool:
    """Would the gang be below its minimum even if these were not evicted? Then they are evicted with the others of their gang."""
    if gang is None:
        return False
    with s.trial("would their gang be whole?", cause=EVICTION_CANCELLED) as trial:
        for victim in victims:
            trial.change_phase(victim, phase=Phase.BOUND)
        evicted = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.TERMINATING]
        return bool(evicted) and not reaches_min(s.world, gang)


def _is_needed(s: Session, victim: Pod) -> bool:
    """Does a nomination depend on this victim's end: on its node, a device, inter-pod constraints, or in a queue?"""
    world, request, member = s.world, s.world.request(victim), s.world.facts.members.get(victim.uid)
    queues = world.ledger.path(member.queue)[:-1] if member is not None else ()
    if any(_exceeds_limit(s, queue, request) for queue in queues):
        return True
    with s.trial("would it be missed?", cause=EVICTION_CANCELLED) as trial:
        trial.change_phase(victim, phase=Phase.BOUND)
        return any(why_lost(s, pod, world.placements.by_uid[pod.uid]) for pod in possibly_lost(s))


def _exceeds_limit(s: Session, queue: str, request: Amounts) -> bool:
    """Would so much more usage exceed the queue's limit, with all that is nominated there?"""
    ledger = s.world.ledger
    over = ledger.planned(queue) + request > limits(s.world).rows[ledger.row[queue]]
    return bool((over & (request > 0) & (ledger.nominated(queue) > 0)).any())
