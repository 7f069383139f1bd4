"""Recover: reservations that a former scheduler wrote onto pods, taken over if they still hold.

Anybody can write annotations: a reservation counts only where the pod's own status agrees with it and every check passes again. A
plan that was torn before it was carried out is dropped whole.
"""

from __future__ import annotations

from muster.engine.evict.evict_actions import action_for
from muster.engine.nominations import cancel_eviction
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.device import DeviceSlot, satisfy_requests
from muster.model.effects import Condition, Release
from muster.model.gang import Gang
from muster.model.pod import RELEASING, Phase, Placement, Pod, ReservationNote
from muster.state.memory import ActivePlan

RECOVERED = "Recovered"
STALE_RESERVATION = "StaleReservation"


def recover(s: Session) -> None:
    world = s.world
    if not world.facts.reservation_notes:
        return
    notes = world.take_reservation_notes()
    found = sorted((world.facts.pods[uid] for uid in notes if uid in world.facts.pods), key=lambda pod: (pod.full_name, pod.uid))
    torn = _incomplete_plans(s, found, notes)
    for pod in found:
        if pod.node is None and notes[pod.uid].victims and notes[pod.uid].plan not in torn:
            _evict_victims(s, pod, notes[pod.uid])
    for pod in found:
        _restore(s, pod, notes[pod.uid], torn)
    # These reservations existed before the cycle began: effects are changes from there.
    world.placements.forget_steps(RECOVERED)


def _evict_victims(s: Session, pod: Pod, note: ReservationNote) -> None:
    """Victims named by a reservation count as terminating: an eviction that was never sent is sent now."""
    gang = s.world.gang_of(pod)
    if gang is None or _why_stale(s, pod, note, check_fit=False):
        return
    for uid in note.victims:
        victim = s.world.facts.pods.get(uid)
        if victim is None or s.world.phase(victim) is not Phase.BOUND or not _may_evict(s, gang, victim):
            continue
        why = f"evicted for {gang.full_name}, as was decided before the scheduler started"
        with s.trial(why, cause=action_for(s, gang), for_gang=gang.full_name) as trial:
            trial.evict(victim)
            trial.commit()


def _may_evict(s: Session, gang: Gang, victim: Pod) -> bool:
    """Anybody can write an annotation, so it may only name pods that could have been chosen for this gang."""
    loser = s.world.gang_of(victim)
    if loser is None or victim.protected or loser.key == gang.key:
        return False
    return loser.priority < gang.priority or loser.queue != gang.queue


def _incomplete_plans(s: Session, found: list[Pod], notes: dict[str, ReservationNote]) -> set[str]:
    """Plans with fewer reservations than they should have, unless their evictions or binds had begun."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for pod in found:
        note = notes[pod.uid]
        if note.plan:
            sizes[note.plan] = max(note.size, sizes.get(note.plan, 0))
            counts[note.plan] = counts.get(note.plan, 0) + 1
    short = {plan for plan, size in sizes.items() if counts[plan] < size}
    return short - {notes[pod.uid].plan for pod in found if notes[pod.uid].plan in short and _is_started(s, pod, notes[pod.uid])}


def _is_started(s: Session, pod: Pod, note: ReservationNote) -> bool:
    return pod.node is not None or any(_is_releasing(s, uid) for uid in note.victims) or _has_bound_member(s, pod)


def _is_releasing(s: Session, uid: str) -> bool:
    placement = s.world.placements.by_uid.get(uid)
    return placement is not None and placement.phase in RELEASING


def _has_bound_member(s: Session, pod: Pod) -> bool:
    gang = s.world.gang_of(pod)
    return gang is not None and any(s.world.phase(other) is Phase.BOUND for other in gang.pods())


def _restore(s: Session, pod: Pod, note: ReservationNote, torn: set[str]) -> None:
    if pod.node is not None:
        _release(s, pod, note, "it is bound already", "AlreadyBound")
        return
    why = "its plan was never completely written" if note.plan in torn else _why_stale(s, pod, note)
    if why:
        _cancel_evictions(s, note)
        _release(s, pod, note, why, STALE_RESERVATION)
        s.extra_effects.append(
            Condition("pod", pod.full_name, False, STALE_RESERVATION, f"the reservation of node {note.node} was ignored: {why}")
        )
        return
    member = s.world.facts.members[pod.uid]
    if note.plan:
        soft = _is_soft(s, s.world.facts.gangs[member.gang], note)
        if note.plan not in s.world.memory.plans:
            s.world.memory.plans.set(note.plan, ActivePlan(member.gang, note.size, note.victims, note.since, soft=soft))
    with s.trial("reserved before the scheduler started", cause=RECOVERED) as trial:
        trial.restore(pod, Placement(note.phase, note.node, note.since, _devices(s, pod, note), note.plan))
        trial.commit()
    s.count("reservations recovered")


def _cancel_evictions(s: Session, note: ReservationNote) -> None:
    """A plan that was being given up is given up: its soft evictions are cancelled."""
    given_up = any(_eviction_cancelled_since(s, uid, note.since) for uid in note.victims)
    for victim in [
        s.world.facts.pods[uid]
        for uid in note.victims
        if given_up and uid in s.world.placements.releasing and uid in s.world.facts.pods
    ]:
        if victim.eviction_marked_at is not None and victim.deleted_at is None:
            cancel_eviction(s, victim, "the plan for which it was marked for soft eviction was given up")


def _devices(s: Session, pod: Pod, note: ReservationNote) -> tuple[DeviceSlot, ...]:
    """The device slots that the annotation names, where they satisfy the pod's requests; else others on the same node."""
    if satisfy_requests(pod.signature.devices, note.devices, s.world.facts.nodes[note.node].devices):
        return note.devices
    slots = s.slots(pod, (note.node,), after_releases=note.phase is Phase.NOMINATED)
    return slots[0] if slots is not None else ()


def _eviction_cancelled_since(s: Session, uid: str, since: float) -> bool:
    pod = s.world.facts.pods.get(uid)
    return pod is not None and pod.eviction_cancelled_at is not None and pod.eviction_cancelled_at >= since


def _is_soft(s: Session, gang: Gang, note: ReservationNote) -> bool:
    """Are its evictions soft? Then they are cancelled when the nominations end."""
    if s.policy.manner(action_for(s, gang)) == "soft":
        return True
    return any(uid in s.world.facts.pods and s.world.facts.pods[uid].eviction_marked_at is not None for uid in note.victims)


def _why_stale(s: Session, pod: Pod, note: ReservationNote, *, check_fit: bool = True) -> str:
    if pod.uid not in s.world.facts.members:
        return "the pod belongs to no gang"
    if s.world.placements.by_uid.get(pod.uid) is not None:
        return "the pod is placed otherwise"
    if note.phase is Phase.NOMINATED and pod.nominated_node != note.node:
        return f"the pod's status names {pod.nominated_node or 'no node'} instead"
    if any(_eviction_cancelled_since(s, uid, note.since) for uid in note.victims):
        return "its plan was given up: those who should have left for it may stay"
    if note.node not in s.world.table.row:
        return "there is no such node"
    after_releases = note.phase is Phase.NOMINATED
    if not check_fit:
        return ""
    if not fits_on(s, pod, note.node, after_releases=after_releases, devices=_devices(s, pod, note)):
        return "the pod does not fit there"
    quota = s.quota_fit(pod, count=1, phase=note.phase)
    return quota.verdict.why if not quota.fit_count else ""


def _release(s: Session, pod: Pod, note: ReservationNote, why: str, cause: str) -> None:
    member = s.world.facts.members.get(pod.uid)
    gang = s.world.facts.gangs[member.gang].full_name if member is not None else ""
    s.extra_effects.append(Release(pod.uid, pod.full_name, note.node, gang, why, cause))
