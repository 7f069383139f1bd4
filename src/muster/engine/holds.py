"""Holds of gangs that accumulate, and the two cases in which they are released so that such gangs cannot lock each other out.

One: a gang earlier in the order completes in this cycle because of it. Two: the holder could never complete at all.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.claims import NOT_COMPLETE, Attempted
from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.state.lifecycle import reaches_min
from muster.state.trial import Trial
from muster.state.world import World

RELEASED = "HoldReleased"


def take_holds(s: Session, gang: Gang, visited: set[str], seat: Callable[[Session, Gang], Attempted]) -> Attempted:
    """Try the gang once more with the holds of gangs later in the order released; what it can do without is given back."""
    held = _held_by_others(s, visited)
    if not held:
        return NOT_COMPLETE
    with s.trial(f"released for {gang.title}, which completes with it", cause=RELEASED, for_gang=gang.title) as trial:
        before = {pod.uid: s.world.placement(pod) for pod in held}
        for pod in held:
            trial.release(pod)
        result = seat(s, gang)
        if result.complete:
            _give_back(s, trial, held, before)
            trial.commit()
        return result


def _held_by_others(s: Session, visited: set[str]) -> list[Pod]:
    """Held pods of gangs that come later, the most entitled gang's first."""
    world = s.world
    holders: dict[str, list[Pod]] = {}
    for uid in world.claims:
        if world.placements[uid].phase is Phase.HELD and (key := world.members[uid].gang) not in visited:
            holders.setdefault(key, []).append(world.pods[uid])
    order = sorted(holders, key=lambda key: s.gang_key(world.gangs[key]))
    return [pod for key in order for pod in holders[key]]


def _give_back(s: Session, trial: Trial, held: list[Pod], before: dict[str, Placement]) -> None:
    for pod in held:
        placement = before[pod.uid]
        if fits_on(s, pod, placement.node or "", soon=False) and s.room(pod, count=1, phase=Phase.HELD).seats:
            trial.restore(pod, placement)


def release_hopeless(s: Session) -> None:
    """End the holds of gangs that could not complete even on an empty cluster."""
    world = s.world
    holders = {world.members[uid].gang: None for uid in world.claims if world.placements[uid].phase is Phase.HELD}
    for key in holders:
        gang = world.gangs[key]
        if not could_ever_complete(s, gang):
            why = "it could not complete even if everybody else released what they hold and all that runs had ended"
            with s.trial(why, cause=RELEASED) as trial:
                for pod in gang.pods():
                    if world.phase(pod) is Phase.HELD:
                        trial.release(pod)
                trial.commit()


def could_ever_complete(s: Session, gang: Gang) -> bool:
    """Would the gang fit if nobody else were there? Worked out on an empty copy of the nodes, once for each state of both."""
    world = s.world
    key = ("could complete", gang.key)
    state = (id(gang), id(world.tree), world.table.layout)
    found = world.memo.get(key)
    if isinstance(found, tuple) and found[0] == state:
        return bool(found[1])
    answer = _fits_alone(s, gang)
    world.memo[key] = (state, answer, gang, world.tree)
    return answer


def _fits_alone(s: Session, gang: Gang) -> bool:
    empty = World()
    empty.now = s.now
    empty.nodes, empty.namespaces, empty.queues = s.world.nodes, s.world.namespaces, s.world.queues
    empty.table.lay_out_empty(empty.nodes)
    empty.tree = s.world.tree
    empty.ledger.lay_out(s.world.ledger.parents)
    for pod in gang.pods():
        member = empty.members[pod.uid] = s.world.members[pod.uid]
        empty.pods[pod.uid] = pod
        empty.ledger.request(member.queue, empty.request(pod), preemptible=member.preemptible, count=1)
    empty.gangs[gang.key] = gang
    empty.unseated[gang.key] = gang.size
    alone = Session(empty, s.policy)
    alone.prepare()
    with alone.trial("alone", cause="Alone") as trial:
        place(alone, trial, gang.pods(), domain=WHOLE_CLUSTER, phase=Phase.BINDING)
        return reaches_min(empty, gang)
