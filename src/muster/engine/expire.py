"""Expire: what ran out of time, and reservations and nominations that no longer hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from muster.engine.domain_placement import why_topology_violated
from muster.engine.nominations import EVICTION_CANCELLED, cancel_eviction, end_nominations
from muster.engine.permit_wait import pause_permit_waits
from muster.engine.quota import limits
from muster.engine.reservations import release_infeasible
from muster.engine.session import Refusals, Session
from muster.model.effects import Release
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod, PodSignature
from muster.model.topics import Topic
from muster.state.derived.device_usage import overcommitted_device
from muster.state.node_table import BoolColumn
from muster.state.resource_columns import Amounts
from muster.state.world import World

OVERDUE_AFTER_S = 60.0
EVICTION_RETRY_S = 300.0
TIMED_OUT = "TimedOut"
RESERVATION_LOST = "ReservationLost"


def expire(s: Session, refusals: Refusals) -> None:  # noqa: ARG001
    _mark_overdue(s)
    _expire_eviction_refusals(s)
    _end_lost_reservations(s)
    _end_topology_violations(s)
    _expire_plans(s)
    # Claims that were about to pass from one gang to another when the scheduler before us died may have been in between: whoever
    # should have had them takes them in the first cycle, and only what is left over at its end is not needed.
    if not s.is_first_cycle:
        cancel_unneeded_evictions(s)
    release_infeasible(s)
    pause_permit_waits(s)
    _expire_permit_waits(s)


def _expire_eviction_refusals(s: Session) -> None:
    """Evictions that failed for no budget's sake may be tried again after a while."""
    world = s.world
    for uid in [
        uid
        for uid, refusal in world.memory.refused_evictions.items()
        if not refusal.budget and s.now >= refusal.at + EVICTION_RETRY_S
    ]:
        world.memory.allow_eviction(uid)


def _mark_overdue(s: Session) -> None:
    """A pod that should have terminated long ago still uses its node, but its capacity is no longer expected to be released."""
    world = s.world
    for pod in [world.facts.pods[uid] for uid in sorted(uid for uid in world.placements.releasing if _is_overdue(s, uid))]:
        with s.trial("still there long after it should have terminated", cause="Overdue") as trial:
            trial.change_phase(pod, phase=Phase.OVERDUE)
            trial.commit()
        # It no longer counts in its queue: who waited for that may come now.
        world.placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY)


def _is_overdue(s: Session, uid: str) -> bool:
    placement = s.world.placements.by_uid[uid]
    if s.now < placement.since + OVERDUE_AFTER_S:
        return False
    return placement.phase is Phase.TERMINATING and s.world.facts.pods[uid].deleted_at is not None


def _end_lost_reservations(s: Session) -> None:
    """A reservation or nomination is lost when its node is gone, no longer matches the pod, or is overcommitted."""
    for pod in sorted(_possibly_lost(s), key=lambda pod: _loss_order(s, pod)):
        uid = pod.uid
        why = _why_lost(s, pod, s.world.placements.by_uid[uid])
        if why:
            with s.trial(why, cause=RESERVATION_LOST) as trial:
                trial.release(pod)
                trial.commit()
                s.count("reservations lost")
    s.world.memory.unwritten_reservations.clear()


def _possibly_lost(s: Session) -> Iterator[Pod]:
    """Pods whose reservation may be lost, found with one look at all nodes: a release makes no other one worse."""
    world, table = s.world, s.world.table
    over: BoolColumn = np.any(table.planned > table.allocatable, axis=1)
    matches: dict[PodSignature, BoolColumn] = {}
    for uid in world.placements.reservations:
        pod, placement = world.facts.pods[uid], world.placements.by_uid[uid]
        row = table.row.get(placement.node or "")
        if row is None or over[row] or placement.devices or uid in world.memory.unwritten_reservations:
            yield pod
            continue
        match = matches.get(pod.signature)
        if match is None:
            match = matches[pod.signature] = s.node_scores(pod, after_releases=True).match
        if not match[row]:
            yield pod


def _loss_order(s: Session, pod: Pod) -> tuple[int, float, str, str]:
    """Where a node cannot take all reservations on it, the lowest priority ends first, then the youngest."""
    gang = s.world.gang_of(pod)
    return (gang.priority if gang is not None else pod.priority, -s.world.placement(pod).since, pod.full_name, pod.uid)


def _why_lost(s: Session, pod: Pod, placement: Placement) -> str:
    table = s.world.table
    if pod.uid in s.world.memory.unwritten_reservations:
        return f"it could not be written: {s.world.memory.unwritten_reservations[pod.uid]}"
    row = table.row.get(placement.node or "")
    if row is None:
        return f"node {placement.node} is gone"
    if not s.node_scores(pod, after_releases=True).match[row]:
        return f"node {placement.node} no longer takes the pod"
    # Another pod took the capacity, or a victim does not terminate. Reservations end one by one until the rest fits.
    over = table.planned[row] > table.allocatable[row]
    if bool((over & (s.world.request(pod) > 0)).any()):
        return f"the capacity on node {placement.node} was taken by other pods, or is not being released"
    device = overcommitted_device(s.world, placement.node or "", placement.devices) if placement.devices else None
    if device is not None:
        return f"device {device} of node {placement.node} is gone, was taken by other pods, or is not being released"
    return ""


def _end_topology_violations(s: Session) -> None:
    """Domains may change meanwhile: reservations that no longer meet a hard topology constraint end together."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.reservations}):
        gang = world.facts.gangs[key]
        why = why_topology_violated(s, gang)
        if why:
            for pod in gang.pods():
                if pod.uid in world.placements.reservations:
                    with s.trial(why, cause=RESERVATION_LOST) as trial:
                        trial.release(pod)
                        trial.commit()
                        s.count("reservations lost")


def _expire_plans(s: Session) -> None:
    """Nominations that are not bound in time end, all of a gang's together."""
    world = s.world
    live = _live_plans(world)
    for name in [name for name in world.memory.plans if name not in live]:
        world.memory.plans.drop(name)
    for name, plan in list(world.memory.plans.items()):
        left = [world.placements.by_uid[uid].since for uid in plan.victims if uid in world.placements.releasing]
        since = max(plan.since, plan.released_by, *left) if left else max(plan.since, plan.released_by)
        if since != plan.released_by:
            world.memory.plans.set(name, replace(plan, released_by=since))
        gang = world.facts.gangs.get(plan.gang)
        if gang is not None and s.now >= since + s.policy.settings.nomination_s:
            end_nominations(
                s,
                gang,
                f"the capacity on its nominated nodes was not released within {s.now - since:.0f} s",
                cause="NominationExpired",
            )
            s.count("reservations expired")


def _live_plans(world: World) -> set[str]:
    """Plans of which reservations are left, by name."""
    return {world.placements.by_uid[uid].plan for uid in world.placements.reservations}


def cancel_unneeded_evictions(s: Session) -> None:
    """Soft evictions for a gang whose nominations have ended, for whatever reason, are cancelled, unless another nomination
    needs that capacity; those of the scheduler before this one too. Done when a cycle begins, so that nobody counts on their
    capacity, and when it ends, because nominations end in between."""
    world = s.world
    marked = [
        pod for uid in world.placements.releasing if (pod := world.facts.pods[uid]).eviction_marked_for and pod.deleted_at is None
    ]
    if not marked:
        return
    live = _live_plans(world)
    needed = {uid for name, plan in world.memory.plans.items() if name in live for uid in plan.victims}
    for victim in sorted((pod for pod in marked if pod.uid not in needed), key=lambda pod: pod.full_name):
        if world.phase(victim) is Phase.TERMINATING and not _is_needed(s, victim):
            cancel_eviction(s, victim, f"{victim.eviction_marked_for} no longer needs its capacity")


def _is_needed(s: Session, victim: Pod) -> bool:
    """Does a nomination depend on this victim's end: on its node, a device, inter-pod constraints, or in a queue?"""
    world, request, member = s.world, s.world.request(victim), s.world.facts.members.get(victim.uid)
    queues = world.ledger.path(member.queue)[:-1] if member is not None else ()
    if any(_exceeds_limit(s, queue, request) for queue in queues):
        return True
    with s.trial("would it be missed?", cause=EVICTION_CANCELLED) as trial:
        trial.change_phase(victim, phase=Phase.BOUND)
        return any(_why_lost(s, pod, world.placements.by_uid[pod.uid]) for pod in _possibly_lost(s))


def _exceeds_limit(s: Session, queue: str, request: Amounts) -> bool:
    """Would so much more usage exceed the queue's limit, with all that is nominated there?"""
    ledger = s.world.ledger
    over = ledger.planned(queue) + request > limits(s.world).rows[ledger.row[queue]]
    return bool((over & (request > 0) & (ledger.nominated(queue) > 0)).any())


def _expire_permit_waits(s: Session) -> None:
    """A gang that has had nodes reserved for longer than its wait time releases them and is marked."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.reserved}):
        gang = world.facts.gangs[key]
        phases = [world.placement(pod) for pod in gang.pods()]
        since = min(p.since for p in phases if p.phase is Phase.RESERVED)
        # While victims terminate for it its wait is paused: the plan's own bound counts then.
        if s.now - since >= gang.wait_s and not any(p.phase is Phase.NOMINATED for p in phases):
            _time_out(s, gang, f"waited {s.now - since:.0f} s of at most {gang.wait_s:.0f} s for its other members")
            s.count("gangs timed out")


def _time_out(s: Session, gang: Gang, why: str) -> None:
    """Only the unbound are released and marked; the bound run on. Pods with a reserved node come last: after a crash in between
    one of them is still reserved for too long, and all of this is done again."""
    for pod in sorted(gang.pods(), key=lambda pod: (pod.uid in s.world.placements.reserved, -pod.created, pod.full_name)):
        placement = s.world.placement(pod)
        if placement.phase is not Phase.RESERVED and (placement.phase is not Phase.PENDING or _is_marked(s, pod)):
            continue
        s.world.memory.timed_out.set(pod.uid, None)
        s.extra_effects.append(
            Release(pod.uid, pod.full_name, placement.node or "", gang.full_name, why, TIMED_OUT, timed_out=True)
        )
        if placement.phase is Phase.RESERVED:
            with s.trial(why, cause=TIMED_OUT) as trial:
                trial.release(pod)
                trial.commit()


def _is_marked(s: Session, pod: Pod) -> bool:
    return pod.timed_out or pod.uid in s.world.memory.timed_out
