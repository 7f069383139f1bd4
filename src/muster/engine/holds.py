"""Holds of gangs that accumulate, and the two cases in which they are released so that such gangs cannot lock each other out.

One: a gang earlier in the order completes in this cycle because of it. Two: the holder could never complete at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.engine.claims import NOT_COMPLETE, Attempted
from muster.engine.domains import place_where_allowed
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.state.lifecycle import reaches_min
from muster.state.storage import STORAGE
from muster.state.store import DOMAINS
from muster.state.terms import wants
from muster.state.trial import Trial
from muster.state.world import World

RELEASED = "HoldReleased"


def take_holds(s: Session, gang: Gang, visited: set[str], seat: Callable[[Session, Gang], Attempted]) -> Attempted:
    """Try the gang once more with the holds of gangs later in the order released, the least entitled gang's first; what it can do
    without is given back."""
    holders = _holders(s, visited)
    if not holders:
        return NOT_COMPLETE
    with s.trial(f"released for {gang.title}, which completes with it", cause=RELEASED, for_gang=gang.title) as trial:
        released: list[_Holder] = []
        for holder in reversed(holders):
            released.insert(0, holder)
            for pod in holder.pods:
                trial.release(pod)
            result = seat(s, gang)
            if result.complete:
                _give_back(s, trial, released)
                trial.commit()
                return result
    return NOT_COMPLETE


@dataclass(frozen=True, slots=True)
class _Holder:
    gang: str
    pods: list[Pod]
    before: list[Placement]


def _holders(s: Session, visited: set[str]) -> list[_Holder]:
    """Gangs later in the order that hold nodes, the most entitled first."""
    world = s.world
    holding = {world.members[uid].gang for uid in world.held} - visited
    found: list[_Holder] = []
    for gang in sorted((world.gangs[key] for key in holding), key=s.gang_key):
        pods = [pod for pod in gang.pods() if world.phase(pod) is Phase.HELD]
        found.append(_Holder(gang.key, pods, [world.placement(pod) for pod in pods]))
    return found


def _give_back(s: Session, trial: Trial, released: list[_Holder]) -> None:
    """The most entitled first, and only until one of them does not get everything back: whoever comes after it in the order must
    not keep what it could use. All who lost something are attempted again in this cycle."""
    for holder in released:
        back = 0
        for pod, placement in zip(holder.pods, holder.before, strict=True):
            if fits_on(s, pod, placement.node or "", soon=False, devices=placement.devices):
                trial.restore(pod, placement)
                back += 1
        if back < len(holder.pods):
            break
    for holder in released:
        s.world.attempts[holder.gang].verdict = None


def release_hopeless(s: Session) -> None:
    """End the holds of gangs that could not complete even on an empty cluster."""
    world = s.world
    holders = {world.members[uid].gang: None for uid in sorted(world.held)}
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
    known = world.memo.setdefault("could complete", {})
    assert isinstance(known, dict)
    state = (id(gang), id(world.tree), world.table.layout, world.version(DOMAINS), world.version(STORAGE))
    found = known.get(gang.key)
    if found is not None and found[0] == state:
        return bool(found[1])
    for gone in [key for key in known if key not in world.gangs]:
        del known[gone]
    answer = _fits_alone(s, gang)
    # The gang and the tree are kept with the answer, so that nothing else gets their identity.
    known[gang.key] = (state, answer, gang, world.tree)
    return answer


def _fits_alone(s: Session, gang: Gang) -> bool:
    empty = World()
    empty.now = s.now
    empty.nodes, empty.namespaces, empty.queues = s.world.nodes, s.world.namespaces, s.world.queues
    empty.domains, empty.storage = s.world.domains, s.world.storage
    empty.table.lay_out_empty(empty.nodes)
    for queue in empty.queues.values():
        # Every column must be there before the session begins: figures of one cycle are equally wide.
        for amounts in (queue.limit, queue.deserved, queue.guarantee):
            empty.columns.require(amounts)
    empty.tree = s.world.tree
    empty.ledger.lay_out(s.world.ledger.parents)
    pods = [_as_if_in_company(s.world, pod) for pod in gang.pods()]
    for pod in pods:
        member = empty.members[pod.uid] = s.world.members[pod.uid]
        empty.pods[pod.uid] = pod
        empty.ledger.request(member.queue, empty.request(pod), preemptible=member.preemptible, count=1)
    empty.gangs[gang.key] = gang
    empty.unseated[gang.key] = gang.size
    alone = Session(empty, s.policy)
    alone.prepare()
    with alone.trial("alone", cause="Alone") as trial:
        place_where_allowed(alone, trial, gang, pods, phase=Phase.BINDING)
        return reaches_min(empty, gang)


def _as_if_in_company(world: World, pod: Pod) -> Pod:
    """Other pods that a member must be near are not on the empty copy; that they could be there is taken for granted."""
    required = pod.kind.affinity.required
    if not required or wants(pod).near[0].selection.means_pod(world.namespaces, pod):
        return pod
    return replace(pod, kind=replace(pod.kind, affinity=replace(pod.kind.affinity, required=())))
