"""Claims: a node kept for a pod across cycles. Redeeming them is the fast path: no search where the room is there."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine import explain
from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import Phase, Pod
from muster.state.lifecycle import reaches_min
from muster.state.trial import Trial
from muster.state.world import World

REDEEMED = "Redeemed"
REDEEMED_WHY = "the room that it was promised is free"
MOVED_WHY = "other room was free before the room that it was promised"


@dataclass(frozen=True, slots=True)
class Attempted:
    """`complete`: the gang has what it needs. The verdict may still say why further members have no node."""

    complete: bool
    verdict: Verdict


NOT_COMPLETE = Attempted(complete=False, verdict=Verdict(ok=False, why="no domain of the cluster is allowed", code=explain.NO_NODE))


def redeem(s: Session, gang: Gang) -> Attempted | None:
    """Bind what the gang was promised, whole, where it was promised or elsewhere. None: it has no nominations."""
    promised = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.NOMINATED]
    if not promised:
        return None
    with s.trial(REDEEMED_WHY, cause=REDEEMED) as trial:
        there = [pod for pod in promised if room_is_there(s.world, pod)]
        for pod in there:
            trial.turn(pod, phase=Phase.BINDING)
        if len(there) == len(promised) and reaches_min(s.world, gang):
            _place_the_others(s, trial, gang)
            trial.commit()
            s.count("claims redeemed", len(there))
            return Attempted(complete=True, verdict=_verdict(s.world, gang))
    moved = _move(s, gang, promised)
    if moved:
        return Attempted(complete=True, verdict=_verdict(s.world, gang))
    return _redeem_some(s, gang, there)


def _redeem_some(s: Session, gang: Gang, there: list[Pod]) -> Attempted:
    """Not all of it is there yet: that is enough where the minimum is reached, else all wait on."""
    with s.trial(REDEEMED_WHY, cause=REDEEMED) as trial:
        for pod in there:
            trial.turn(pod, phase=Phase.BINDING)
        complete = reaches_min(s.world, gang)
        if complete:
            _place_the_others(s, trial, gang)
            trial.commit()
            s.count("claims redeemed", len(there))
    return Attempted(complete=complete, verdict=explain.clearing(s.world, gang))


def _move(s: Session, gang: Gang, promised: list[Pod]) -> bool:
    """The whole gang on room that is free now, its own promises given up."""
    with s.trial(MOVED_WHY, cause="Moved") as trial:
        for pod in promised:
            trial.release(pod)
        waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements]
        placed = place(s, trial, waiting, domain=WHOLE_CLUSTER, phase=Phase.BINDING)
        if placed.first_refused is not None or not reaches_min(s.world, gang):
            return False
        bind_held(s.world, trial, gang)
        trial.commit()
    s.count("claims moved", len(promised))
    return True


def _place_the_others(s: Session, trial: Trial, gang: Gang) -> None:
    bind_held(s.world, trial, gang)
    waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements]
    if waiting:
        place(s, trial, waiting, domain=WHOLE_CLUSTER, phase=Phase.BINDING)


def bind_held(world: World, trial: Trial, gang: Gang) -> None:
    """The gang is complete: what it held is bound with the rest."""
    if gang.mode is Mode.NON_STRICT:
        for pod in gang.pods():
            if world.phase(pod) is Phase.HELD:
                trial.turn(pod, phase=Phase.BINDING)


def _verdict(world: World, gang: Gang) -> Verdict:
    return explain.clearing(world, gang) if world.unseated.get(gang.key) else YES


def room_is_there(world: World, pod: Pod) -> bool:
    """Have those who leave this pod's node gone far enough that it fits now? Its own claim keeps everybody else out."""
    table = world.table
    row = table.row.get(world.placement(pod).node or "")
    return row is not None and bool((table.used[row] + world.request(pod) <= table.allocatable[row]).all())
