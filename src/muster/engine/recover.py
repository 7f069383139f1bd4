"""Recover: claims that a former scheduler wrote onto pods, taken over if they still hold good.

Anybody can write annotations: a claim counts only where the pod's own status agrees with it and every check passes again. A plan
that was torn before it was carried out is dropped whole.
"""

from __future__ import annotations

from muster.engine.claims import let_stay
from muster.engine.evict.actions import action_for
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.devices import Slot, are_asked_for
from muster.model.effects import Condition, Release
from muster.model.gang import Gang
from muster.model.pod import GOING, ClaimNote, Phase, Placement, Pod
from muster.state.memory import PlanNote

RECOVERED = "Recovered"
STALE = "StaleClaim"


def recover(s: Session) -> None:
    world = s.world
    if not world.facts.notes:
        return
    notes = world.take_notes()
    found = sorted((world.facts.pods[uid] for uid in notes if uid in world.facts.pods), key=lambda pod: (pod.title, pod.uid))
    torn = _torn_plans(s, found, notes)
    for pod in found:
        if pod.node is None and notes[pod.uid].victims and notes[pod.uid].plan not in torn:
            _send_away(s, pod, notes[pod.uid])
    for pod in found:
        _take_over(s, pod, notes[pod.uid], torn)
    # These claims stood before the cycle began: what becomes of them in it is a change from there.
    world.placements.forget_steps(RECOVERED)


def _send_away(s: Session, pod: Pod, note: ClaimNote) -> None:
    """Victims named by a claim count as leaving: an eviction that was never issued is issued now."""
    gang = s.world.gang_of(pod)
    if gang is None or _why_stale(s, pod, note, room=False):
        return
    for uid in note.victims:
        victim = s.world.facts.pods.get(uid)
        if victim is None or s.world.phase(victim) is not Phase.BOUND or not _may_go(s, gang, victim):
            continue
        why = f"evicted for {gang.title}, as was decided before the scheduler started"
        with s.trial(why, cause=action_for(s, gang), for_gang=gang.title) as trial:
            trial.evict(victim)
            trial.commit()


def _may_go(s: Session, gang: Gang, victim: Pod) -> bool:
    """Anybody can write a claim, so it cannot name just anybody: only who could have been chosen for this gang."""
    loser = s.world.gang_of(victim)
    if loser is None or victim.protected or loser.key == gang.key:
        return False
    return loser.priority < gang.priority or loser.queue != gang.queue


def _torn_plans(s: Session, found: list[Pod], notes: dict[str, ClaimNote]) -> set[str]:
    """Plans with fewer claims than they should have, unless they were being carried out already."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for pod in found:
        note = notes[pod.uid]
        if note.plan:
            sizes[note.plan] = max(note.size, sizes.get(note.plan, 0))
            counts[note.plan] = counts.get(note.plan, 0) + 1
    short = {plan for plan, size in sizes.items() if counts[plan] < size}
    return short - {notes[pod.uid].plan for pod in found if notes[pod.uid].plan in short and _is_begun(s, pod, notes[pod.uid])}


def _is_begun(s: Session, pod: Pod, note: ClaimNote) -> bool:
    return pod.node is not None or any(_is_going(s, uid) for uid in note.victims) or _has_bound_sibling(s, pod)


def _is_going(s: Session, uid: str) -> bool:
    placement = s.world.placements.by_uid.get(uid)
    return placement is not None and placement.phase in GOING


def _has_bound_sibling(s: Session, pod: Pod) -> bool:
    gang = s.world.gang_of(pod)
    return gang is not None and any(s.world.phase(other) is Phase.BOUND for other in gang.pods())


def _take_over(s: Session, pod: Pod, note: ClaimNote, torn: set[str]) -> None:
    if pod.node is not None:
        _clear(s, pod, note, "it is bound already", "AlreadyBound")
        return
    why = "its plan was never completely written" if note.plan in torn else _why_stale(s, pod, note)
    if why:
        _let_stay(s, note)
        _clear(s, pod, note, why, STALE)
        s.extra.append(Condition("pod", pod.title, False, STALE, f"the claim on node {note.node} was ignored: {why}"))
        return
    member = s.world.facts.members[pod.uid]
    if note.plan:
        soft = _is_soft(s, s.world.facts.gangs[member.gang], note)
        if note.plan not in s.world.memory.plans:
            s.world.memory.plans.set(note.plan, PlanNote(member.gang, note.size, note.victims, note.since, soft=soft))
    with s.trial("claimed before the scheduler started", cause=RECOVERED) as trial:
        trial.restore(pod, Placement(note.phase, note.node, note.since, _devices(s, pod, note), note.plan))
        trial.commit()
    s.count("claims recovered")


def _let_stay(s: Session, note: ClaimNote) -> None:
    """A plan that was being given up is given up: whoever was only asked to leave for it is asked no more."""
    given_up = any(_was_spared_since(s, uid, note.since) for uid in note.victims)
    for victim in [
        s.world.facts.pods[uid]
        for uid in note.victims
        if given_up and uid in s.world.placements.going and uid in s.world.facts.pods
    ]:
        if victim.told_at is not None and victim.deleted_at is None:
            let_stay(s, victim, "the plan for which it was asked to leave was given up")


def _devices(s: Session, pod: Pod, note: ClaimNote) -> tuple[Slot, ...]:
    """The slots that the claim names, where they are what the pod asks for; else others on the same node."""
    if are_asked_for(pod.kind.devices, note.devices, s.world.facts.nodes[note.node].devices):
        return note.devices
    slots = s.slots(pod, (note.node,), soon=note.phase is Phase.NOMINATED)
    return slots[0] if slots is not None else ()


def _was_spared_since(s: Session, uid: str, since: float) -> bool:
    pod = s.world.facts.pods.get(uid)
    return pod is not None and pod.spared_at is not None and pod.spared_at >= since


def _is_soft(s: Session, gang: Gang, note: ClaimNote) -> bool:
    """Were they asked softly, or are they to be now? Then they may stay when the claims end."""
    if s.policy.manner(action_for(s, gang)) == "soft":
        return True
    return any(uid in s.world.facts.pods and s.world.facts.pods[uid].told_at is not None for uid in note.victims)


def _why_stale(s: Session, pod: Pod, note: ClaimNote, *, room: bool = True) -> str:
    if pod.uid not in s.world.facts.members:
        return "the pod belongs to no gang"
    if s.world.placements.by_uid.get(pod.uid) is not None:
        return "the pod is placed otherwise"
    if note.phase is Phase.NOMINATED and pod.nominated_node != note.node:
        return f"the pod's status names {pod.nominated_node or 'no node'} instead"
    if any(_was_spared_since(s, uid, note.since) for uid in note.victims):
        return "its plan was given up: those who should have left for it may stay"
    if note.node not in s.world.table.row:
        return "there is no such node"
    soon = note.phase is Phase.NOMINATED
    if not room:
        return ""
    if not fits_on(s, pod, note.node, soon=soon, devices=_devices(s, pod, note)):
        return "the pod does not fit there"
    quota = s.room(pod, count=1, phase=note.phase)
    return quota.verdict.why if not quota.seats else ""


def _clear(s: Session, pod: Pod, note: ClaimNote, why: str, cause: str) -> None:
    member = s.world.facts.members.get(pod.uid)
    gang = s.world.facts.gangs[member.gang].title if member is not None else ""
    s.extra.append(Release(pod.uid, pod.title, note.node, gang, why, cause))
