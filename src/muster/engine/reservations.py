"""Reservations of gangs that accumulate, and when they are released so that such gangs cannot lock each other out.

One: a gang earlier in the order completes in this cycle because of it. Two: the gang that has them could never complete at all.
A Strict gang keeps none: one that becomes Strict releases them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.engine.domain_placement import place_in_allowed_domains
from muster.engine.members_to_place import has_minimum_placed
from muster.engine.nominations import NOT_COMPLETE, AttemptResult
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.gang import Gang, Mode
from muster.model.pod import Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.empty_world import empty_world
from muster.state.gangs.gang_stage import has_enough_members, reaches_min
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
            if result.complete and has_minimum_placed(s.world, gang):
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
    reserving = {world.facts.members[uid].gang for uid in world.placements.reserved} - visited
    found: list[_ReservingGang] = []
    for gang in sorted((world.facts.gangs[key] for key in reserving), key=s.gang_key):
        pods = [pod for pod in gang.pods() if world.phase(pod) is Phase.RESERVED]
        found.append(_ReservingGang(gang.key, pods, [world.placement(pod) for pod in pods]))
    return found


def _restore_unneeded(s: Session, trial: Trial, released: list[_ReservingGang]) -> None:
    """The most entitled first, and only until one of them does not get everything back: whoever comes after it in the order must
    not keep what it could use. All who lost something are attempted again in this cycle."""
    for one in released:
        back = 0
        for pod, placement in zip(one.pods, one.before, strict=True):
            if _fits_again(s, pod, placement):
                trial.restore(pod, placement)
                back += 1
        if back < len(one.pods):
            break
    for one in released:
        s.world.memory.retry(one.gang)


def _fits_again(s: Session, pod: Pod, placement: Placement) -> bool:
    """Does a reservation that was released still fit, on its node and in its queues?"""
    if not s.quota_fit(pod, count=1, phase=placement.phase).fit_count:
        return False
    return fits_on(s, pod, placement.node or "", after_releases=False, devices=placement.devices)


def release_untenable(s: Session) -> None:
    """End the reservations of gangs that are Strict by now, or that could not complete even with all other pods of ours gone."""
    world = s.world
    for key in sorted({world.facts.members[uid].gang for uid in world.placements.reserved}):
        gang = world.facts.gangs[key]
        if gang.mode is Mode.STRICT:
            _release_all(s, gang, "a Strict gang keeps no reservations: its members are placed together or not at all")
        elif not could_ever_complete(s, gang):
            _release_all(s, gang, "its members would not fit together even if all other pods that Muster schedules had ended")


def _release_all(s: Session, gang: Gang, why: str) -> None:
    with s.trial(why, cause=RESERVATION_RELEASED) as trial:
        for pod in gang.pods():
            if s.world.phase(pod) is Phase.RESERVED:
                trial.release(pod)
        trial.commit()
    s.world.memory.retry(gang.key)


_COMPLETES: Derived[dict[str, bool]] = Derived(
    "which gangs could ever complete",
    *(Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.NODE_TAINTS, Topic.NODE_DEVICES, Topic.ALLOCATABLE),
    *(Topic.QUEUES, Topic.NAMESPACES, Topic.DOMAINS, Topic.STORAGE, Topic.FOREIGN_PODS),
    follows=Topic.GANGS,
)


def could_ever_complete(s: Session, gang: Gang) -> bool:
    """Would the gang fit a cluster with no other pods than those of other schedulers? Computed on such a copy, and kept while
    nothing of that changes."""
    known = _COMPLETES.of(s.world, dict, key=s.policy, update=_forget)
    if gang.key not in known:
        known[gang.key] = _fits_empty_cluster(s, gang)
    return known[gang.key]


def _forget(known: dict[str, bool], changed: list[str]) -> None:
    for key in changed:
        known.pop(key, None)


def _fits_empty_cluster(s: Session, gang: Gang) -> bool:
    """Bound members stay where they are; where the others have nodes reserved does not count. Of a gang that waits for pods nobody
    knows: a member may be re-created at any moment."""
    if gang.waiting_for or not has_enough_members(gang):
        return True
    pods = [_as_if_alone(s.world, pod) for pod in gang.pods()]
    placed = {pod.uid: s.world.placement(pod) for pod in pods if s.world.phase(pod) in (Phase.BINDING, Phase.BOUND)}
    empty = empty_world(s.world, gang, pods, placed)
    alone = Session(empty, s.policy)
    alone.prepare()
    with alone.trial("alone", cause="Alone") as trial:
        unplaced = [pod for pod in pods if pod.uid not in placed]
        if unplaced:
            place_in_allowed_domains(alone, trial, gang, unplaced, phase=Phase.BINDING)
        return reaches_min(empty, gang)


def _as_if_alone(world: World, pod: Pod) -> Pod:
    """Other pods that its affinity requires are not on the empty copy; they are assumed to be possible."""
    required = pod.signature.affinity.required
    if not required or terms_of(pod).required_affinity[0].selection.matches_pod(world.facts.namespaces, pod):
        return replace(pod, nominated_node=None)
    signature = replace(pod.signature, affinity=replace(pod.signature.affinity, required=()))
    return replace(pod, signature=signature, nominated_node=None)
