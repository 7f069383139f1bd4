"""What is kept for moved pods ends for a gang that could evict them, were they bound there. Nobody is evicted for that."""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.consolidate.movable_pods import MOVE_ENDED
from muster.engine.evict.evict_actions import action_for
from muster.engine.evict.job_preempt import why_may_not_preempt
from muster.engine.members_to_place import has_minimum_placed
from muster.engine.nominations import NOT_COMPLETE, AttemptResult
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.state.reserve_pods import Move
from muster.state.trial import Trial


def end_moves_for(s: Session, gang: Gang, place_on_free: Callable[[Session, Gang], AttemptResult]) -> AttemptResult:
    """Try the gang once more where capacity is kept for pods of a lower priority of its queue, the lowest first; what it can do
    without stays."""
    lower = _of_lower_priority(s, gang)
    if not lower or why_may_not_preempt(s, gang) or action_for(s, gang) not in s.policy.actions:
        return NOT_COMPLETE
    why = f"the capacity that was kept for it was given to {gang.full_name}, which has a higher priority"
    with s.trial(why, cause=MOVE_ENDED, for_gang=gang.full_name) as trial:
        for number, moves in enumerate(lower):
            for move in moves:
                trial.release(move.reserve)
            result = place_on_free(s, gang)
            if result.complete and has_minimum_placed(s.world, gang):
                ended = [move for moves in lower[: number + 1] for move in moves]
                _restore_unneeded(s, trial, lower[:number])
                trial.commit()
                _forget(s, ended)
                return result
    return NOT_COMPLETE


def _of_lower_priority(s: Session, gang: Gang) -> list[list[Move]]:
    """What is kept, by the owner of the moved pods: all of that ends together."""
    queues = {role.queue for role in gang.roles}
    by_owner: dict[str, list[Move]] = {}
    for move in s.world.memory.moves.values() if len(queues) == 1 else ():
        if move.is_open and move.reserve.priority < gang.priority and move.reserve.member.queue in queues:
            by_owner.setdefault(move.reserve.owner, []).append(move)
    return [by_owner[owner] for owner in sorted(by_owner, key=lambda owner: (by_owner[owner][0].reserve.priority, owner))]


def _restore_unneeded(s: Session, trial: Trial, released: list[list[Move]]) -> None:
    for moves in reversed(released):
        mark = trial.mark()
        for move in moves:
            if not fits_on(s, move.reserve, move.placement.node or "", after_releases=True):
                trial.undo_to(mark)
                break
            trial.restore(move.reserve, move.placement)


def _forget(s: Session, moves: list[Move]) -> None:
    for move in moves:
        if move.reserve.uid not in s.world.placements.by_uid:
            s.world.memory.end_move(move.reserve.uid)
            s.count("moves ended")
