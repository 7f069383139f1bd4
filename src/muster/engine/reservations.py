"""Holds of gangs that accumulate, and the two cases in which they are released so that such gangs cannot lock each other out.

One: a gang earlier in the order completes in this cycle because of it. Two: the gang that has them could never complete at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.engine.domain_placement import place_in_allowed_domains
from muster.engine.nominations import NOT_COMPLETE, AttemptResult
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.empty_world import empty_world
from muster.state.gangs.gang_stage import reaches_min
from muster.state.pod_terms import terms_of
from muster.state.trial import Trial
from muster.state.world import World

RESERVATION_RELEASED = "ReservationReleased"


def take_reservations(
    s: Session, gang: Gang, visited: set[str], place_on_free: Callable[[Session, Gang], AttemptResult]
) -> AttemptResult:
    """Try the gang once more with the reservations of gangs later in the order released, the least entitled gang's first; what it
    can do without is given back."""
    reserving = _reserving_gangs(s, visited)
    if not reserving:
        return NOT_COMPLETE
    with s.trial(
        f"released for {gang.full_name}, which completes with it", cause=RESERVATION_RELEASED, for_gang=gang.full_name
    ) as trial:
        released: list[_ReservingGang] = []
        for one in reversed(reserving):
            released.insert(0, one)
            for pod in one.pods:
                trial.release(pod)
            result = place_on_free(s, gang)
            if result.complete:
                _restore_unneeded(s, trial, released)
                trial.commit()
                return result
    return NOT_COMPLETE


@dataclass(frozen=True, slots=True)
class _ReservingGang:
    gang: str
    pods: list[Pod]
    before: list[Placement]


def _reserving_gangs(s: Session, visited: set[str]) -> list[_ReservingGang]:
    """Gangs later in the order that have nodes reserved, in their order."""
    world = s.world
    holding = {world.facts.members[uid].gang for uid in world.placements.reserved} - visited
    found: list[_ReservingGang] = []
    for gang in sorted((world.facts.gangs[key] for key in holding), key=s.gang_key):
        pods = [pod for pod in gang.pods() if world.phase(pod) is Phase.RESERVED]
        found.append(_ReservingGang(gang.key, pods, [world.placement(pod) for pod in pods]))
    return found


def _restore_unneeded(s: Session, trial: Trial, released: list[_ReservingGang]) -> None:
    """The most entitled first, and only until one of them does not get everything back: whoever comes after it in the order must
    not keep what it could use. All who lost something are attempted again in this cycle."""
    for one in released:
        back = 0
        for pod, placement in zip(one.pods, one.before, strict=True):
            if fits_on(s, pod, placement.node or "", after_releases=False, devices=placement.devices):
                trial.restore(pod, placement)
                back += 1
        if back < len(one.pods):
            break
    for one in released:
        s.world.memory.retry(one.gang)


def release_infeasible(s: Session) -> None:
    """End the reservations of gangs that could not complete even on an empty cluster."""
    world = s.world
    reserving = {world.facts.members[uid].gang: None for uid in sorted(world.placements.reserved)}
    for key in reserving:
        gang = world.facts.gangs[key]
        if not could_ever_complete(s, gang):
            why = "it could not complete even if all other gangs released their reservations and all running pods had ended"
            with s.trial(why, cause=RESERVATION_RELEASED) as trial:
                for pod in gang.pods():
                    if world.phase(pod) is Phase.RESERVED:
                        trial.release(pod)
                trial.commit()


_COMPLETES: Derived[dict[str, bool]] = Derived(
    "which gangs could ever complete",
    *(Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.NODE_TAINTS, Topic.NODE_DEVICES, Topic.ALLOCATABLE),
    *(Topic.QUEUES, Topic.NAMESPACES, Topic.DOMAINS, Topic.STORAGE),
    follows=Topic.GANGS,
)


def could_ever_complete(s: Session, gang: Gang) -> bool:
    """Would the gang fit an empty cluster? Computed on an empty copy of the nodes, and kept while neither changes."""
    known = _COMPLETES.of(s.world, dict, key=s.policy, update=_forget)
    if gang.key not in known:
        known[gang.key] = _fits_empty_cluster(s, gang)
    return known[gang.key]


def _forget(known: dict[str, bool], changed: list[str]) -> None:
    for key in changed:
        known.pop(key, None)


def _fits_empty_cluster(s: Session, gang: Gang) -> bool:
    pods = [_without_required_affinity(s.world, pod) for pod in gang.pods()]
    empty = empty_world(s.world, gang, pods)
    alone = Session(empty, s.policy)
    alone.prepare()
    with alone.trial("alone", cause="Alone") as trial:
        place_in_allowed_domains(alone, trial, gang, pods, phase=Phase.BINDING)
        return reaches_min(empty, gang)


def _without_required_affinity(world: World, pod: Pod) -> Pod:
    """Other pods that its affinity requires are not on the empty copy; they are assumed to be possible."""
    required = pod.signature.affinity.required
    if not required or terms_of(pod).required_affinity[0].selection.matches_pod(world.facts.namespaces, pod):
        return pod
    return replace(pod, signature=replace(pod.signature, affinity=replace(pod.signature.affinity, required=())))
