"""Recover: what the scheduler before this one had reserved, nominated and evicted, taken over in the first cycle if it still holds.

Only Plans are believed, because nobody else may write them, and each member and each victim passes every check again. What stands
on pods without a Plan means nothing: it is cleared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.engine.consolidate.movable_pods import CONSOLIDATE, movable_now, move_ask
from muster.engine.consolidate.moved_pods import recover_move
from muster.engine.evict.evict_actions import EVICTION_POLICIES, action_for
from muster.engine.evict.eviction_candidates import evictable_now
from muster.engine.evict.eviction_history import record_plans
from muster.engine.hooks import Ask, Purpose
from muster.engine.nominations import cancel_eviction, plan_name
from muster.engine.place import fits_on
from muster.engine.saved_history import recover_history
from muster.engine.session import Session, UnsentPlan
from muster.model.device import DeviceSlot, satisfy_requests
from muster.model.effects import Condition, Release
from muster.model.gang import Gang, Mode
from muster.model.pod import RESERVATIONS, Phase, Placement, Pod
from muster.model.queue import show_queue
from muster.model.saved_state import SavedEvictions, SavedMember, SavedMove, SavedPlan, saved_plan_name
from muster.state.memory import ActivePlan
from muster.state.reserve_pods import MOVED

RECOVERED = "Recovered"
STALE_RESERVATION = "StaleReservation"
ALREADY_BOUND = "AlreadyBound"


def recover(s: Session) -> None:
    _clear_bound(s)
    if s.world.memory.cycle > 1:
        return
    plans = _saved_plans(s)
    _recover_marked(s, plans)
    continued = [(plan.gang, _continue_evictions(s, plan, entry, before)) for plan, entry, before in _as_decided(s, plans)]
    # Only now: what these very evictions cost their victims must not protect those that are left.
    recover_history(s)
    record_plans(s, continued)
    for plan in plans:
        for member in plan.members:
            _restore(s, plan, member)
        for move in plan.moves:
            _restore_move(s, plan, move)
    _clear_unexplained(s)
    # These reservations existed before the cycle began: effects are changes from there.
    s.world.placements.forget_steps(RECOVERED)


def _saved_plans(s: Session) -> list[SavedPlan]:
    """Those that are whole. What is left of others has no gang, and ends."""
    found = s.world.facts.saved_plans
    whole: list[SavedPlan] = []
    used: set[str] = set()
    for name, plan in sorted(found.items()):
        rest = [found[part] for part in plan.parts if part in found and found[part].part_of == name]
        if len(rest) == len(plan.parts) and not plan.part_of and all(map(_is_sound, (plan, *rest))):
            whole.append(plan.with_rest(rest))
            used |= {name, *plan.parts}
    for name in sorted(found.keys() - used):
        s.world.memory.saved_plans.set(name, SavedPlan(name, name=name) if found[name].part_of else found[name])
    for plan in whole:
        s.world.memory.saved_plans.set(plan.gang, plan)
    return whole


def _is_sound(plan: SavedPlan) -> bool:
    return not plan.problems and (plan.part_of or plan.name) == saved_plan_name(plan.gang)


def _clear_bound(s: Session) -> None:
    """What was written onto a pod that somebody else bound meanwhile is cleared: nothing is reserved for it any more."""
    bound = s.world.memory.bound_by_others
    for uid, node in sorted(bound.items()):
        pod = s.world.facts.pods.get(uid)
        if pod is not None:
            _release(s, pod, node, f"it was bound to {pod.node} by somebody else", ALREADY_BOUND)
    bound.clear()


# --- victims ------------------------------------------------------------------------------------------------------------------


def _recover_marked(s: Session, plans: list[SavedPlan]) -> None:
    """Victims that show the mark of a soft eviction are terminating; those whose eviction was being cancelled no longer are."""
    for plan in plans:
        for entry in plan.evictions:
            _recover_terminating(s, entry.victims, since=entry.since)
        _recover_terminating(s, plan.cancelled, since=s.now)
    s.world.placements.forget_steps(RECOVERED)
    for plan in plans:
        for victim in _marked(s, plan.cancelled, Phase.TERMINATING):
            cancel_eviction(s, victim, "the plan for which it was marked for soft eviction was given up")


def _recover_terminating(s: Session, uids: tuple[str, ...], *, since: float) -> None:
    for victim in _marked(s, uids, Phase.BOUND):
        with s.trial("marked before the scheduler started", cause=RECOVERED) as trial:
            trial.restore(victim, replace(s.world.placement(victim), phase=Phase.TERMINATING, since=since))
            trial.commit()


def _marked(s: Session, uids: tuple[str, ...], phase: Phase) -> Iterator[Pod]:
    for uid in uids:
        pod = s.world.facts.pods.get(uid)
        if pod is not None and pod.eviction_marked_at is not None and s.world.phase(pod) is phase:
            yield pod


def _as_decided(s: Session, plans: list[SavedPlan]) -> Iterator[tuple[SavedPlan, SavedEvictions, list[SavedMember]]]:
    """All evictions in the order in which they were decided, as far as it can be known, with who was nominated before."""
    turn = {name: at for at, name in enumerate(s.policy.actions)}
    gangs = s.world.facts.gangs
    known = [(plan, entry) for plan in plans if plan.gang in gangs for entry in plan.evictions]
    before: list[SavedMember] = []
    for plan, entry in sorted(
        known, key=lambda one: (one[1].since, turn.get(one[1].action, len(turn)), s.gang_key(gangs[one[0].gang]))
    ):
        yield plan, entry, before
        before = [*before, *_members_of(s, plan, entry)]


def _members_of(s: Session, plan: SavedPlan, entry: SavedEvictions) -> list[SavedMember]:
    return [member for member in plan.members if member.plan == entry.plan and not _why_stale(s, plan, member, check_fit=False)]


def _continue_evictions(s: Session, plan: SavedPlan, entry: SavedEvictions, before: list[SavedMember]) -> UnsentPlan:
    """Evictions that were never sent are sent now, if the gang's action could choose these victims now for these nodes, with those
    nominated who were so when they were decided."""
    members = _members_of(s, plan, entry)
    with s.trial("judged as it was decided", cause="") as trial:
        for member in before:
            trial.restore(
                s.world.facts.pods[member.uid], Placement(member.phase, member.node, member.since, member.devices, member.plan)
            )
        evictable, crossing = _evictable(s, plan, entry, members) if members else ([], ())
    found = [(pod, s.world.placement(pod)) for pod in evictable]
    for victim, _ in found:
        gang, first = s.world.facts.gangs[plan.gang], s.world.facts.pods[members[0].uid]
        sides = f"{_queue_and_priority(s, victim)} against {_queue_and_priority(s, first)}"
        why = f"evicted for {gang.full_name}, as was decided before the scheduler started: {sides}"
        with s.trial(why, cause=entry.action, for_gang=gang.full_name) as trial:
            trial.evict(victim)
            trial.commit()
    return UnsentPlan(entry.plan, entry.action, tuple(found), crossing)


def _evictable(s: Session, plan: SavedPlan, entry: SavedEvictions, members: list[SavedMember]) -> tuple[list[Pod], tuple[str, ...]]:
    """Those, and the gangs of the plan that bring a queue below its share."""
    policy = EVICTION_POLICIES.get(entry.action)
    victims = [s.world.facts.pods[uid] for uid in entry.victims if uid in s.world.facts.pods]
    if entry.action == CONSOLIDATE:
        asking = s.world.facts.gangs[plan.gang]
        movable = movable_now(s, move_ask(asking, [s.world.facts.pods[member.uid] for member in members]), victims)
        return [victim for victim in victims if victim.uid in movable], ()
    if policy is None or not any(s.world.phase(victim) is Phase.BOUND for victim in victims):
        return [], ()
    pods = tuple(s.world.facts.pods[member.uid] for member in members)
    ask = Ask(s.world.facts.gangs[plan.gang], pods, Purpose.EVICT, policy.name)
    evictable, crossing = evictable_now(s, ask, policy, nodes={member.node for member in members}, victims=victims)
    return [victim for victim in victims if victim.uid in evictable], crossing


def _queue_and_priority(s: Session, pod: Pod) -> str:
    gang = s.world.gang_of(pod)
    assert gang is not None
    return f"{show_queue(s.world.facts.members[pod.uid].queue)} (priority {gang.priority})"


# --- members ------------------------------------------------------------------------------------------------------------------


def _restore(s: Session, plan: SavedPlan, member: SavedMember) -> None:
    pod = s.world.facts.pods.get(member.uid)
    if pod is None:
        return
    why = _why_stale(s, plan, member)
    if pod.node is not None:
        _release(s, pod, member.node, "it is bound already", ALREADY_BOUND)
    elif why:
        _release(s, pod, member.node, why, STALE_RESERVATION)
        text = f"the reservation of node {member.node} was given up: {why}"
        s.extra_effects.append(Condition("pod", pod.full_name, False, STALE_RESERVATION, text))
    else:
        _restore_reservation(s, s.world.facts.gangs[plan.gang], pod, member, plan)


def _restore_move(s: Session, plan: SavedPlan, saved: SavedMove) -> None:
    """What is kept for a pod that was moved, or the nomination of the one that took it."""
    victim, pod = s.world.facts.pods.get(saved.victim), s.world.facts.pods.get(saved.uid)
    if (victim is not None and s.world.phase(victim) is Phase.BOUND) or (pod is not None and pod.node is not None):
        return
    gang = s.world.gang_of(pod) if pod is not None else None
    if not recover_move(s, saved, for_gang=plan.gang, is_taken=gang is not None) or pod is None or gang is None:
        return
    member = SavedMember(pod.uid, pod.full_name, saved.node, Phase.NOMINATED, saved.since, f"{MOVED}{saved.victim}")
    if _why_stale(s, None, member):
        s.world.memory.end_move(member.plan)
    else:
        _restore_reservation(s, gang, pod, member)


def _restore_reservation(s: Session, gang: Gang, pod: Pod, member: SavedMember, plan: SavedPlan | None = None) -> None:
    if member.plan and member.plan not in s.world.memory.plans:
        entry = next((one for one in plan.evictions if one.plan == member.plan), None) if plan is not None else None
        victims, action = (entry.victims, entry.action) if entry is not None else ((), "")
        soft = s.policy.manner(action or action_for(s, gang)) == "soft"
        s.world.memory.plans.set(member.plan, ActivePlan(gang.key, victims, member.since, action, soft=soft))
    placement = Placement(member.phase, member.node, member.since, _devices(s, pod, member), member.plan)
    # Where its object does not show it yet, that is written now.
    cause = RECOVERED if pod.nominated_node == member.node else "Nominated"
    with s.trial("reserved before the scheduler started", cause=cause) as trial:
        trial.restore(pod, placement)
        trial.commit()
    s.count("reservations recovered")


def _devices(s: Session, pod: Pod, member: SavedMember) -> tuple[DeviceSlot, ...]:
    """The device slots that were saved, where they satisfy the pod's requests; else others on the same node."""
    if satisfy_requests(pod.signature.devices, member.devices, s.world.facts.nodes[member.node].devices):
        return member.devices
    slots = s.slots(pod, (member.node,), after_releases=member.phase is Phase.NOMINATED)
    return slots[0] if slots is not None else ()


def _why_stale(s: Session, plan: SavedPlan | None, member: SavedMember, *, check_fit: bool = True) -> str:
    pod = s.world.facts.pods.get(member.uid)
    gang = s.world.gang_of(pod) if pod is not None else None
    if pod is None or gang is None or (plan is not None and gang.key != plan.gang):
        return "the pod is no member of that gang any more"
    if s.world.placements.by_uid.get(pod.uid) is not None:
        return "the pod is placed otherwise"
    if member.phase is Phase.RESERVED and gang.mode is Mode.STRICT:
        return "a Strict gang reserves nothing"
    if member.node not in s.world.table.row:
        return "there is no such node"
    if not check_fit:
        return ""
    after_releases = member.phase is Phase.NOMINATED
    if not fits_on(s, pod, member.node, after_releases=after_releases, devices=_devices(s, pod, member)):
        return "the pod does not fit there"
    quota = s.quota_fit(pod, count=1, phase=member.phase)
    return quota.verdict.why if not quota.fit_count else ""


# --- what stands on pods ------------------------------------------------------------------------------------------------------


def _clear_unexplained(s: Session) -> None:
    """A nomination that no Plan explains is taken over from Volcano, if the policy says so, or else cleared."""
    cleared = {effect.uid for effect in s.extra_effects if isinstance(effect, Release)}
    shown = [pod for pod in s.world.facts.pods.values() if pod.ours and (pod.nominated_node or pod.pipelined_node)]
    for pod in sorted(shown, key=lambda pod: (pod.full_name, pod.uid)):
        node = pod.nominated_node or pod.pipelined_node
        if pod.uid in cleared or _has_reservation_on(s, pod, node):
            continue
        if pod.node is not None:
            _release(s, pod, node, "it is bound already", ALREADY_BOUND)
        elif not (s.policy.settings.adopt_volcano and _adopt(s, pod, node)):
            _release(s, pod, node, "no Plan of this scheduler explains it", STALE_RESERVATION)


def _has_reservation_on(s: Session, pod: Pod, node: str) -> bool:
    placement = s.world.placements.by_uid.get(pod.uid)
    return placement is not None and placement.phase in RESERVATIONS and placement.node == node


def _adopt(s: Session, pod: Pod, node: str) -> bool:
    """A nomination of Volcano becomes one that evicts nobody: free capacity, or capacity that is being released."""
    gang = s.world.gang_of(pod)
    if gang is None or pod.nominated_node != pod.pipelined_node:
        return False
    names = {placement.plan for other in gang.pods() if (placement := s.world.placement(other)).phase is Phase.NOMINATED}
    member = SavedMember(pod.uid, pod.full_name, node, Phase.NOMINATED, s.now, min(names) if names else plan_name(s, gang))
    if _why_stale(s, None, member):
        return False
    _restore_reservation(s, gang, pod, member)
    return True


def _release(s: Session, pod: Pod, node: str, why: str, cause: str) -> None:
    gang = s.world.gang_of(pod)
    s.extra_effects.append(Release(pod.uid, pod.full_name, node, gang.full_name if gang is not None else "", why, cause))
