"""Expire: what time ended, and claims that can no longer be redeemed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from muster.engine.claims import SPARED, end_claims, let_stay
from muster.engine.domains import why_apart
from muster.engine.holds import release_hopeless
from muster.engine.quota import limits
from muster.engine.session import Session
from muster.engine.waits import stand_still
from muster.model.effects import Release
from muster.model.gang import Gang
from muster.model.pod import Kind, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.columns import Amounts
from muster.state.devices import overfull
from muster.state.table import BoolColumn
from muster.state.world import World

OVERDUE_AFTER_S = 60.0
REFUSED_FOR_S = 300.0
TIMED_OUT = "TimedOut"
CLAIM_LOST = "ClaimLost"


def expire(s: Session) -> None:
    _mark_overdue(s)
    _forget_refusals(s)
    _end_lost_claims(s)
    _end_claims_apart(s)
    _end_late_plans(s)
    # Claims that were about to pass from one gang to another when the scheduler before us died may have been in between: whoever
    # should have had them takes them in the first cycle, and only what is left over at its end is not needed.
    if not s.is_first:
        spare_the_unneeded(s)
    release_hopeless(s)
    stand_still(s)
    _end_waits(s)


def _forget_refusals(s: Session) -> None:
    """Evictions that failed for no budget's sake may be tried again after a while."""
    world = s.world
    for uid in [uid for uid, refusal in world.memory.refused.items() if not refusal.budget and s.now >= refusal.at + REFUSED_FOR_S]:
        world.memory.refused.drop(uid)
        world.changes.placements.add(uid)


def _mark_overdue(s: Session) -> None:
    """A pod that should have left long ago still fills its node, but nobody counts on its going any more."""
    world = s.world
    for pod in [world.facts.pods[uid] for uid in sorted(uid for uid in world.placements.going if _is_late(s, uid))]:
        with s.trial("still there long after it was told to go", cause="Overdue") as trial:
            trial.turn(pod, phase=Phase.OVERDUE)
            trial.commit()
        # It no longer counts in its queue: who waited for that may come now.
        world.changes.bump(Topic.FREE_CAPACITY)
        if (member := world.facts.members.get(pod.uid)) is not None:
            world.bump_queue(member.queue)


def _is_late(s: Session, uid: str) -> bool:
    placement = s.world.placements.by_uid[uid]
    if s.now < placement.since + OVERDUE_AFTER_S:
        return False
    return placement.phase is Phase.LEAVING and s.world.facts.pods[uid].deleted_at is not None


def _end_lost_claims(s: Session) -> None:
    """A claim on a node that is gone, no longer takes the pod, or has no room for it any more is no claim."""
    for pod in sorted(_doubtful(s), key=lambda pod: _loses_first(s, pod)):
        uid = pod.uid
        why = _why_lost(s, pod, s.world.placements.by_uid[uid])
        if why:
            with s.trial(why, cause=CLAIM_LOST) as trial:
                trial.release(pod)
                trial.commit()
                s.count("claims lost")
    s.world.memory.unwritten.clear()


def _doubtful(s: Session) -> Iterator[Pod]:
    """Those whose claim may be lost. Most are not, and one look at all nodes tells: a release makes no other claim worse."""
    world, table = s.world, s.world.table
    over: BoolColumn = np.any(table.taken > table.allocatable, axis=1)
    matches: dict[Kind, BoolColumn] = {}
    for uid in world.placements.claims:
        pod, placement = world.facts.pods[uid], world.placements.by_uid[uid]
        row = table.row.get(placement.node or "")
        if row is None or over[row] or placement.devices or uid in world.memory.unwritten:
            yield pod
            continue
        match = matches.get(pod.kind)
        if match is None:
            match = matches[pod.kind] = s.columns(pod, soon=True).match
        if not match[row]:
            yield pod


def _loses_first(s: Session, pod: Pod) -> tuple[int, float, str, str]:
    """Where a node has no room for all claims on it, the least important ends first, then the youngest."""
    gang = s.world.gang_of(pod)
    return (gang.priority if gang is not None else pod.priority, -s.world.placement(pod).since, pod.title, pod.uid)


def _why_lost(s: Session, pod: Pod, placement: Placement) -> str:
    table = s.world.table
    if pod.uid in s.world.memory.unwritten:
        return f"it could not be written: {s.world.memory.unwritten[pod.uid]}"
    row = table.row.get(placement.node or "")
    if row is None:
        return f"node {placement.node} is gone"
    if not s.columns(pod, soon=True).match[row]:
        return f"node {placement.node} no longer takes the pod"
    # Whoever came later, or will not leave: the room was lost. Claims end one by one until what is left fits.
    over = table.taken[row] > table.allocatable[row]
    if bool((over & (s.world.request(pod) > 0)).any()):
        return f"the room on node {placement.node} was taken by others, or is not being left"
    device = overfull(s.world, placement.node or "", placement.devices) if placement.devices else None
    if device is not None:
        return f"device {device} of node {placement.node} is gone, was taken by others, or is not being left"
    return ""


def _end_claims_apart(s: Session) -> None:
    """Domains change under a gang that waits: claims that no longer lie together as they must end together."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.claims}):
        gang = world.facts.gangs[key]
        why = why_apart(s, gang)
        if why:
            for pod in gang.pods():
                if pod.uid in world.placements.claims:
                    with s.trial(why, cause=CLAIM_LOST) as trial:
                        trial.release(pod)
                        trial.commit()
                        s.count("claims lost")


def _end_late_plans(s: Session) -> None:
    """Claims that are not redeemed in time end, all of a gang's together."""
    world = s.world
    live = _live(world)
    for name in [name for name in world.memory.plans if name not in live]:
        world.memory.plans.drop(name)
    for name, plan in list(world.memory.plans.items()):
        left = [world.placements.by_uid[uid].since for uid in plan.victims if uid in world.placements.going]
        since = max(plan.since, plan.left_at, *left) if left else max(plan.since, plan.left_at)
        if since != plan.left_at:
            world.memory.plans.set(name, replace(plan, left_at=since))
        gang = world.facts.gangs.get(plan.gang)
        if gang is not None and s.now >= since + s.policy.settings.claim_s:
            end_claims(
                s, gang, f"the room that it was promised did not become free within {s.now - since:.0f} s", cause="ClaimExpired"
            )
            s.count("claims expired")


def _live(world: World) -> set[str]:
    """Plans of which claims are left, by name."""
    return {world.placements.by_uid[uid].plan for uid in world.placements.claims}


def spare_the_unneeded(s: Session) -> None:
    """Whoever was softly asked to leave for a gang whose claims have ended, however they did, may stay: unless somebody else was
    promised what it has. That goes for those whom the scheduler before us asked as well. Asked when a cycle begins, so that nobody
    counts on their leaving, and when it ends, because claims give way in between."""
    world = s.world
    asked = [pod for uid in world.placements.going if (pod := world.facts.pods[uid]).told_for and pod.deleted_at is None]
    if not asked:
        return
    live = _live(world)
    needed = {uid for name, plan in world.memory.plans.items() if name in live for uid in plan.victims}
    for victim in sorted((pod for pod in asked if pod.uid not in needed), key=lambda pod: pod.title):
        if world.phase(victim) is Phase.LEAVING and not _is_awaited(s, victim):
            let_stay(s, victim, f"{victim.told_for} no longer needs its room")


def _is_awaited(s: Session, victim: Pod) -> bool:
    """Whether somebody was promised what is there only without it: on a node, of a device, beside others, or in a queue."""
    world, request, member = s.world, s.world.request(victim), s.world.facts.members.get(victim.uid)
    queues = world.ledger.path(member.queue)[:-1] if member is not None else ()
    if any(_is_tight(s, queue, request) for queue in queues):
        return True
    with s.trial("would it be missed?", cause=SPARED) as trial:
        trial.turn(victim, phase=Phase.BOUND)
        return any(_why_lost(s, pod, world.placements.by_uid[pod.uid]) for pod in _doubtful(s))


def _is_tight(s: Session, queue: str, request: Amounts) -> bool:
    """Whether so much more leaves no room in the queue for all that is promised there."""
    ledger = s.world.ledger
    over = ledger.taken(queue) + request > limits(s.world).rows[ledger.row[queue]]
    return bool((over & (request > 0) & (ledger.promised(queue) > 0)).any())


def _end_waits(s: Session) -> None:
    """A gang that has held nodes for longer than its wait time gives them back and is marked."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.held}):
        gang = world.facts.gangs[key]
        phases = [world.placement(pod) for pod in gang.pods()]
        since = min(p.since for p in phases if p.phase is Phase.HELD)
        # While somebody leaves for it the gang is not to blame for waiting: the plan's own bound counts then.
        if s.now - since >= gang.wait_s and not any(p.phase is Phase.NOMINATED for p in phases):
            _time_out(s, gang, f"waited {s.now - since:.0f} s of at most {gang.wait_s:.0f} s for its other members")
            s.count("gangs timed out")


def _time_out(s: Session, gang: Gang, why: str) -> None:
    """Only the unbound are released and marked; the bound run on. Those who hold a node come last: if that is torn, somebody still
    holds one for too long, and all of this is done again."""
    for pod in sorted(gang.pods(), key=lambda pod: (pod.uid in s.world.placements.held, -pod.created, pod.title)):
        placement = s.world.placement(pod)
        if placement.phase is not Phase.HELD and (placement.phase is not Phase.PENDING or _is_marked(s, pod)):
            continue
        s.world.memory.marked.set(pod.uid, None)
        s.extra.append(Release(pod.uid, pod.title, placement.node or "", gang.title, why, TIMED_OUT, timed_out=True))
        if placement.phase is Phase.HELD:
            with s.trial(why, cause=TIMED_OUT) as trial:
                trial.release(pod)
                trial.commit()


def _is_marked(s: Session, pod: Pod) -> bool:
    return pod.timed_out or pod.uid in s.world.memory.marked
