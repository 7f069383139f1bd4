"""Pods that were moved: their capacity is kept until their controllers have created them anew, and given to the new ones then.

A gang takes what is kept for it when it has what it needs with that, or when all of it can be taken: from then on these are
nominations like any other. What is kept ends as nominations end: its node is lost, the time is over, the pod was not evicted.
"""

from __future__ import annotations

from dataclasses import replace

from muster.engine.allocate import may_attempt
from muster.engine.consolidate.movable_pods import CONSOLIDATE, MOVE_ENDED
from muster.engine.evict.eviction_history import gangs_by_history
from muster.engine.place import fits_on
from muster.engine.quota import limits
from muster.engine.session import Session
from muster.model.effects import Condition
from muster.model.gang import Gang
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod, PodSignature
from muster.model.queue import ROOT_QUEUE
from muster.model.resource_amounts import Resources
from muster.model.saved_state import SavedMove
from muster.state.facts import Member
from muster.state.gangs.gang_stage import reaches_min
from muster.state.memory import ActivePlan
from muster.state.reserve_pods import MOVED, Move, ReservePod, kept_on
from muster.state.trial import Trial

TAKEN = "MoveTaken"
RECOVERED = "Recovered"


def settle_moves(s: Session) -> None:
    """What happened to moved pods since the last cycle: who was created anew takes what is kept for it."""
    moves = s.world.memory.moves
    if not len(moves):
        return
    for uid, move in moves.items():
        _follow(s, uid, move)
    by_owner: dict[str, dict[str, Move]] = {}
    for uid, move in moves.items():
        if move.is_open:
            by_owner.setdefault(move.reserve.owner, {})[uid] = move
    gangs = gangs_by_history(s)
    for owner in sorted(by_owner):
        for key in sorted(gangs.get(owner, ()), key=lambda key: (s.world.facts.gangs[key].created, key)):
            left = {uid: move for uid, move in by_owner[owner].items() if moves[uid].is_open}
            _take(s, s.world.facts.gangs[key], left)


def _follow(s: Session, uid: str, move: Move) -> None:
    if move.is_open:
        why = _why_ended(s, move)
        if why:
            _end(s, uid, move, why)
        else:
            _wait_for_victim(s, uid, move)
        return
    pod = s.world.facts.pods.get(move.successor)
    if pod is None:
        _keep_again(s, uid, move)
    elif pod.node is not None or not _is_on_its_way(s, pod, uid):
        s.world.memory.end_move(uid)


def _is_on_its_way(s: Session, pod: Pod, uid: str) -> bool:
    """Is it nominated by this move, or being bound from there?"""
    placement = s.world.placement(pod)
    if placement.phase is Phase.BINDING:
        binding = s.world.memory.binding_reservations.get(pod.uid)
        return binding is not None and binding.reservation.plan == uid
    return placement.phase is Phase.NOMINATED and placement.plan == uid


def _wait_for_victim(s: Session, uid: str, move: Move) -> None:
    """The time begins when the pod that is moved should have terminated."""
    victim = s.world.placements.by_uid.get(move.reserve.victim)
    if victim is not None and victim.since > move.placement.since:
        s.world.memory.moves.set(uid, replace(move, placement=replace(move.placement, since=victim.since)))


def _why_ended(s: Session, move: Move) -> str:
    reserve, node = move.reserve, move.placement.node or ""
    victim, now = s.world.facts.pods.get(reserve.victim), s.now
    if victim is not None and s.world.phase(victim) is Phase.BOUND:
        return f"{victim.full_name} was not evicted, and stays on {victim.node}"
    if now >= move.placement.since + s.policy.settings.nomination_s:
        return f"it was not created anew within {now - move.placement.since:.0f} s"
    return why_not_kept(s, reserve, node)


def why_not_kept(s: Session, reserve: ReservePod, node: str) -> str:
    """Why capacity that is kept for a pod on a node is lost; empty where it is not."""
    world, row = s.world, s.world.table.row.get(node)
    if row is None:
        return f"node {node} is gone"
    asked = world.request(reserve) > 0
    if ((world.table.planned[row] > world.table.allocatable[row]) & asked).any():
        return f"the capacity on node {node} was taken by other pods, or is not being released"
    rows = world.ledger.rows_up(reserve.member.queue)
    if ((world.ledger.planned_in(rows) > limits(world).rows[rows]) & asked).any():
        return "its queue is over its limit"
    return ""


def _end(s: Session, uid: str, move: Move, why: str) -> None:
    with s.trial(why, cause=MOVE_ENDED, for_gang=move.for_gang) as trial:
        trial.release(move.reserve)
        trial.commit()
    s.world.memory.end_move(uid)
    s.count("moves ended")
    victim = s.world.facts.pods.get(move.reserve.victim)
    if victim is not None:
        text = f"the capacity that was kept for it on {move.placement.node} was given up: {why}"
        s.extra_effects.append(Condition("pod", victim.full_name, False, MOVE_ENDED, text))


def _keep_again(s: Session, uid: str, move: Move) -> None:
    """The pod that took it is gone before it was bound: another one will come."""
    node = move.placement.node or ""
    if s.now < move.placement.since + s.policy.settings.nomination_s and fits_on(s, move.reserve, node, after_releases=True):
        with s.trial("its pod was deleted before it was bound", cause=TAKEN) as trial:
            trial.restore(move.reserve, move.placement)
            trial.commit()
        s.world.memory.moves.set(uid, replace(move, successor=""))
    else:
        s.world.memory.end_move(uid)


# -- taking ------------------------------------------------------------------------------------------------------------------------


def _take(s: Session, gang: Gang, moves: dict[str, Move]) -> None:
    """Members without a node take what is kept for their role."""
    if not moves or not may_attempt(s.world, gang).ok:
        return
    with s.trial("created anew after it was moved", cause=TAKEN) as trial:
        taken, lost = _taken(s, trial, gang, moves)
        is_whole = len(taken) + len(lost) == len(moves) or reaches_min(s.world, gang, PLACED_OR_NOMINATED)
        if taken and is_whole:
            trial.commit()
        else:
            taken = {}
    for uid, why in lost.items():
        _end(s, uid, moves[uid], why)
    for uid, pod in taken.items():
        s.world.memory.moves.set(uid, replace(moves[uid], successor=pod.uid))
        s.world.memory.plans.set(uid, ActivePlan(gang.key, (), s.now, CONSOLIDATE))
    if taken or lost:
        s.world.memory.retry(gang.key)


def _taken(s: Session, trial: Trial, gang: Gang, moves: dict[str, Move]) -> tuple[dict[str, Pod], dict[str, str]]:
    """Which pod takes what, and what is lost because its node does not take the pod, with the reason."""
    taken: dict[str, Pod] = {}
    lost: dict[str, str] = {}
    for pod in _waiting(s, gang):
        for uid in _kept_for(s, pod, moves):
            node = moves[uid].placement.node or ""
            if uid in taken or uid in lost:
                continue
            trial.release(moves[uid].reserve)
            if fits_on(s, pod, node, after_releases=True):
                slots = s.slots(pod, (node,), after_releases=True)
                trial.place(pod, node, phase=Phase.NOMINATED, devices=slots[0] if slots is not None else (), plan=uid)
                taken[uid] = pod
                break
            trial.restore(moves[uid].reserve, moves[uid].placement)
            lost[uid] = f"node {node} no longer takes {pod.full_name}"
    return taken, lost


def _waiting(s: Session, gang: Gang) -> list[Pod]:
    waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
    return sorted(waiting, key=lambda pod: (pod.created, pod.full_name))


def _kept_for(s: Session, pod: Pod, moves: dict[str, Move]) -> list[str]:
    """What is kept for a pod of this role and request; that of its own name first."""
    role = s.world.facts.members[pod.uid].role
    fitting = [
        uid
        for uid, move in moves.items()
        if move.reserve.member.role == role and move.reserve.signature.request == pod.signature.request
    ]
    return sorted(fitting, key=lambda uid: (moves[uid].reserve.full_name != pod.full_name, moves[uid].reserve.full_name, uid))


def drop_settled_moves(s: Session) -> None:
    """At the end of a cycle: what was taken and lost again is over."""
    for uid, move in s.world.memory.moves.items():
        if move.successor:
            pod = s.world.facts.pods.get(move.successor)
            if pod is None or not _is_taken_or_bound(s, pod, uid):
                s.world.memory.end_move(uid)


def _is_taken_or_bound(s: Session, pod: Pod, uid: str) -> bool:
    """Still nominated by this move, or being bound: then it ends when that is seen."""
    placement = s.world.placement(pod)
    return placement.phase is Phase.BINDING or (placement.phase is Phase.NOMINATED and placement.plan == uid)


# -- after a restart ---------------------------------------------------------------------------------------------------------------


def recover_move(s: Session, saved: SavedMove, *, for_gang: str, is_taken: bool) -> bool:
    """Take over what the scheduler before this one kept, if it still fits. Its amounts and its role are all that is known of it."""
    namespace, _, name = saved.pod.partition("/")
    queue = saved.queue if saved.queue in s.world.ledger else ROOT_QUEUE
    reserve = ReservePod(
        uid=f"{MOVED}{saved.victim}",
        namespace=namespace,
        name=name,
        signature=PodSignature(request=Resources.of(dict(saved.request))),
        priority=saved.priority,
        member=Member(saved.gang, saved.role, queue, saved.preemptible),
        owner=saved.owner,
        victim=saved.victim,
    )
    move = Move(
        reserve, kept_on(saved.node, since=saved.since, devices=saved.devices), saved.plan, for_gang, saved.uid if is_taken else ""
    )
    row = s.world.table.row.get(saved.node)
    if row is None or (s.world.table.planned[row] + s.world.request(reserve) > s.world.table.allocatable[row]).any():
        return False
    s.world.memory.moves.set(reserve.uid, move)
    if not is_taken:
        with s.trial("kept before the scheduler started", cause=RECOVERED) as trial:
            trial.restore(reserve, move.placement)
            trial.commit()
    s.count("moves recovered")
    return True
