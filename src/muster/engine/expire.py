"""Expire: what ran out of time, and reservations and nominations that no longer hold."""

from __future__ import annotations

from dataclasses import replace

from muster.engine.domain_placement import why_topology_violated
from muster.engine.explain import bind_refused
from muster.engine.lost_reservations import end_lost_reservations, lose_reservation
from muster.engine.nominations import end_nominations, nominated_by_plan
from muster.engine.permit_wait import pause_permit_waits
from muster.engine.reservations import release_untenable
from muster.engine.session import Refusals, Session
from muster.engine.unneeded_evictions import cancel_unneeded_evictions
from muster.model.effects import Release
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.world import World

OVERDUE_AFTER_S = 60.0
EVICTION_RETRY_S = 300.0
MARK_SHOWN_AFTER_S = 120.0
"""After this time a mark that was written is on the pod, or is not there any more: what the API server shows counts."""
TIMED_OUT = "TimedOut"


def expire(s: Session, refusals: Refusals) -> None:  # noqa: ARG001
    _mark_overdue(s)
    _expire_eviction_refusals(s)
    end_lost_reservations(s)
    _end_reservations_of_refused(s)
    _end_topology_violations(s)
    _expire_plans(s)
    # Nominations may have been about to pass from one gang to another when the scheduler before this one died: whoever should have
    # had them takes them in the first cycle, and only what is left over at its end is not needed.
    if not s.is_first_cycle:
        cancel_unneeded_evictions(s)
    release_untenable(s)
    pause_permit_waits(s)
    _forget_marks(s)
    _expire_permit_waits(s)


def _forget_marks(s: Session) -> None:
    """Whether a pod is marked as timed out is what its object shows. A mark that was just written may not show yet."""
    timed_out = s.world.memory.timed_out
    for uid in [uid for uid, at in timed_out.items() if s.now >= at + MARK_SHOWN_AFTER_S]:
        timed_out.drop(uid)
        member = s.world.facts.members.get(uid)
        if member is not None:
            s.world.memory.retry(member.gang)


def _expire_eviction_refusals(s: Session) -> None:
    """Evictions that were refused for another reason than a budget may be tried again after a while."""
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
    for pod in [world.facts.pods[uid] for uid in sorted(_overdue(s))]:
        with s.trial("still there long after it should have terminated", cause="Overdue") as trial:
            trial.change_phase(pod, phase=Phase.OVERDUE)
            trial.commit()
        # It no longer counts in its queue: who waited for that may come now.
        world.placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY)


def _overdue(s: Session) -> list[str]:
    """Those whose time is over. Beside one of these, what its namespace deletes itself is not waited for either: whoever deletes
    one pod after the other that never terminates would otherwise keep others waiting for each in turn."""
    world = s.world
    releasing = [(world.facts.pods[uid], world.placements.by_uid[uid]) for uid in world.placements.releasing]
    late = {pod.namespace for pod, placement in releasing if placement.phase is Phase.OVERDUE or _is_late(s, pod, placement)}
    if not late:
        return []
    evicted = {uid for plan in world.memory.plans.values() for uid in plan.victims}
    return [
        pod.uid
        for pod, placement in releasing
        if placement.phase is Phase.TERMINATING
        and pod.deleted_at is not None
        and (_is_late(s, pod, placement) or (pod.namespace in late and pod.uid not in evicted))
    ]


def _is_late(s: Session, pod: Pod, placement: Placement) -> bool:
    return pod.deleted_at is not None and s.now >= placement.since + OVERDUE_AFTER_S


def _end_topology_violations(s: Session) -> None:
    """Domains may change meanwhile: reservations that no longer meet a hard topology constraint end together."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.reservations}):
        gang = world.facts.gangs[key]
        why = why_topology_violated(s, gang)
        if why:
            for pod in gang.pods():
                if pod.uid in world.placements.reservations:
                    lose_reservation(s, pod, why)


def _end_reservations_of_refused(s: Session) -> None:
    """A gang whose binds are refused again and again keeps no capacity, and nobody is evicted for it."""
    world = s.world
    members = (world.facts.members.get(uid) for uid, _ in world.memory.refused_binds.items())
    for key in sorted({member.gang for member in members if member is not None}):
        refused = bind_refused(world, world.facts.gangs[key])
        for pod in () if refused.ok else world.facts.gangs[key].pods():
            if pod.uid in world.placements.reservations:
                lose_reservation(s, pod, refused.why)


def _expire_plans(s: Session) -> None:
    """Nominations that are not bound in time end, all of a gang's together, whatever became of the gang that they were made for."""
    world = s.world
    nominated = nominated_by_plan(world)
    for name in [name for name in world.memory.plans if name not in nominated]:
        world.memory.plans.drop(name)
    for name, plan in list(world.memory.plans.items()):
        left = [world.placements.by_uid[uid].since for uid in plan.victims if uid in world.placements.releasing]
        since = max(plan.since, plan.released_by, *left)
        if since != plan.released_by:
            world.memory.plans.set(name, replace(plan, released_by=since))
        wait_s = s.policy.settings.nomination_s
        if s.now >= since + wait_s:
            _end_late(s, nominated[name], waited_s=s.now - since)


def _end_late(s: Session, nominated: list[str], *, waited_s: float) -> None:
    """Of a gang that has nominations by several plans all end with those of the first: then these have ended already."""
    waiting = [uid for uid in nominated if uid in s.world.placements.by_uid]
    if waiting and s.now >= _last_release_on(s.world, waiting) + s.policy.settings.nomination_s:
        why = f"the capacity on its nominated nodes was not released within {waited_s:.0f} s"
        for key in sorted({s.world.facts.members[uid].gang for uid in waiting}):
            end_nominations(s, s.world.facts.gangs[key], why, cause="NominationExpired")
        s.count("reservations expired")


def _last_release_on(world: World, nominated: list[str]) -> float:
    """When the last of the pods that terminate on these pods' nodes should have terminated."""
    nodes = {world.placements.by_uid[uid].node or "" for uid in nominated}
    return max(
        (
            world.placements.by_uid[uid].since
            for node in nodes
            for uid in world.placements.on_node[node]
            if world.placements.by_uid[uid].phase is Phase.TERMINATING
        ),
        default=0.0,
    )


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
        s.world.memory.timed_out.set(pod.uid, s.now)
        s.extra_effects.append(
            Release(pod.uid, pod.full_name, placement.node or "", gang.full_name, why, TIMED_OUT, timed_out=True)
        )
        if placement.phase is Phase.RESERVED:
            with s.trial(why, cause=TIMED_OUT) as trial:
                trial.release(pod)
                trial.commit()


def _is_marked(s: Session, pod: Pod) -> bool:
    return pod.timed_out or pod.uid in s.world.memory.timed_out
