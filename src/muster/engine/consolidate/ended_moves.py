"""What is kept for moved pods ends for a gang that could evict them, were they bound there. Nobody is evicted for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.engine.consolidate.movable_pods import MOVE_ENDED
from muster.engine.evict.contested import contested, usable_domains
from muster.engine.evict.evict_actions import EVICTION_POLICIES, action_for, preemptor_pods
from muster.engine.evict.eviction_policy import EvictionRules
from muster.engine.evict.job_preempt import JOB_PREEMPT, why_may_not_preempt
from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import has_minimum_placed
from muster.engine.nominations import NOT_COMPLETE, AttemptResult
from muster.engine.place import fits_on
from muster.engine.quota import limits
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.state.reserve_pods import Move
from muster.state.trial import Trial


def end_moves_for(s: Session, gang: Gang, place_on_free: Callable[[Session, Gang], AttemptResult]) -> AttemptResult:
    """Try the gang once more where capacity is kept for pods that it could have evicted, by the action that serves it and then by
    reclaim, the lowest priority first; what it can do without stays."""
    queues = {role.queue for role in gang.roles}
    if not s.world.memory.moves or len(queues) > 1 or why_may_not_preempt(s, gang):
        return NOT_COMPLETE
    for action in (action_for(s, gang), GANG_RECLAIM.name):
        owners = _by_owner(s, gang, action) if action in s.policy.actions else []
        if not owners:
            continue
        ask = Ask(gang, preemptor_pods(s, gang), Purpose.EVICT, action)
        if not ask.pods:
            return NOT_COMPLETE
        rules = EVICTION_POLICIES[action].rules(s, ask, victim_table_of(s.world), contested(s, ask, usable_domains(s, ask)))
        result = _try_without(s, gang, rules, owners, place_on_free)
        if result.complete:
            return result
    return NOT_COMPLETE


def _try_without(
    s: Session,
    gang: Gang,
    rules: EvictionRules,
    owners: Sequence[list[Move]],
    place_on_free: Callable[[Session, Gang], AttemptResult],
) -> AttemptResult:
    with s.trial("", cause=MOVE_ENDED, for_gang=gang.full_name) as trial:
        released: list[list[Move]] = []
        for moves in owners:
            reserves = [move.reserve for move in moves]
            if not rules.allows_eviction(reserves, priority=reserves[0].priority).ok:
                continue
            why = f"the capacity that was kept for it was given to {gang.full_name}: {rules.why_evicted(reserves[0])}"
            with s.trial(why, cause=MOVE_ENDED, for_gang=gang.full_name) as one:
                for reserve in reserves:
                    one.release(reserve)
                one.commit()
            released.append(moves)
            mark = trial.mark()
            result = place_on_free(s, gang)
            if result.complete and has_minimum_placed(s.world, gang):
                ended = _restore_unneeded(s, trial, released)
                if rules.allows_plan([[move.reserve for move in each] for each in ended]).ok:
                    trial.commit()
                    _forget(s, ended)
                    return result
            trial.undo_to(mark)
    return NOT_COMPLETE


def _by_owner(s: Session, gang: Gang, action: str) -> list[list[Move]]:
    """What is kept, by the owner of the moved pods: all of that ends together. A job takes from preemptible pods of lower priority
    alone."""
    own = {role.queue for role in gang.roles}
    is_for_others = action in (GANG_RECLAIM.name, JOB_PREEMPT.name)
    by_owner: dict[str, list[Move]] = {}
    for move in s.world.memory.moves.values():
        member = move.reserve.member
        is_lower = move.reserve.priority < gang.priority
        if action == GANG_RECLAIM.name:
            may = is_lower or member.queue not in own
        else:
            may = is_lower and (is_for_others or member.queue in own)
        if move.is_open and may and (member.preemptible or action != JOB_PREEMPT.name):
            by_owner.setdefault(move.reserve.owner, []).append(move)
    return [by_owner[owner] for owner in sorted(by_owner, key=lambda owner: (by_owner[owner][0].reserve.priority, owner))]


def _restore_unneeded(s: Session, trial: Trial, released: list[list[Move]]) -> list[list[Move]]:
    """Those without which the gang cannot do."""
    needed: list[list[Move]] = []
    for moves in reversed(released):
        mark = trial.mark()
        for move in moves:
            if not fits_on(s, move.reserve, move.placement.node or "", after_releases=True) or not _has_room(s, move):
                trial.undo_to(mark)
                needed.insert(0, moves)
                break
            trial.restore(move.reserve, move.placement)
    return needed


def _has_room(s: Session, move: Move) -> bool:
    """In its queues."""
    rows, request = s.world.ledger.rows_up(move.reserve.member.queue), s.world.request(move.reserve)
    return not ((s.world.ledger.planned_in(rows) + request > limits(s.world).rows[rows]) & (request > 0)).any()


def _forget(s: Session, ended: list[list[Move]]) -> None:
    for move in (move for moves in ended for move in moves):
        s.world.memory.end_move(move.reserve.uid)
        s.count("moves ended")
