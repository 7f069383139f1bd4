"""Evictions that this cycle decided on and that lost their purpose before it ended: the gang they were for was preempted itself.

Nothing was sent yet, so they are cancelled, for all members of a gang. Where another gang was nominated to the capacity meanwhile,
the victims are evicted for that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.state.placements import Step


def end_orphaned_evictions(s: Session) -> None:
    for pods, before, step in _orphaned(s):
        if not _cancel(s, pods, before, step):
            _reassign(s, pods, step)


_Orphaned = tuple[list[Pod], list[Placement], Step]
"""Victims of one gang for one beneficiary, where they were placed, and a step that evicted them."""


def _orphaned(s: Session) -> Iterable[_Orphaned]:
    world = s.world
    if not any(step.for_gang for step in world.placements.steps()):
        return []
    before: dict[str, Placement] = {}
    last: dict[str, Step] = {}
    for step in world.placements.steps():
        before.setdefault(step.pod.uid, step.before)
        last[step.pod.uid] = step
    served = {
        world.facts.gangs[world.facts.members[uid].gang].full_name
        for uid in world.placements.reservations
        if world.placements.by_uid[uid].phase is Phase.NOMINATED
    }
    found: dict[tuple[str, str], _Orphaned] = {}
    for uid, step in last.items():
        if world.phase(step.pod) is not Phase.TERMINATING or before[uid].phase is not Phase.BOUND or step.for_gang in served:
            continue
        member = world.facts.members.get(uid)
        pods, places, _ = found.setdefault((member.gang if member is not None else uid, step.for_gang), ([], [], step))
        pods.append(step.pod)
        places.append(before[uid])
    return found.values()


def _cancel(s: Session, pods: list[Pod], before: list[Placement], step: Step) -> bool:
    table = s.world.table
    rows = [table.row[place.node] for place in before if place.node in table.row]
    with s.trial(f"{step.for_gang} no longer needs the capacity", cause=step.cause) as trial:
        for pod, place in zip(pods, before, strict=True):
            trial.restore(pod, place)
        if (table.planned[rows] > table.allocatable[rows]).any() or not all(
            _still_fits(s, beneficiary) for beneficiary in _beneficiaries(s, pods)
        ):
            return False
        trial.commit()
    return True


def _still_fits(s: Session, beneficiary: Pod) -> bool:
    """Would this pod be nominated to the same node again, with the victims back?"""
    placement = s.world.placement(beneficiary)
    with s.trial("simulated", cause="Simulated") as trial:
        trial.release(beneficiary)
        fits = fits_on(s, beneficiary, placement.node or "", after_releases=True, devices=placement.devices)
        return fits and s.quota_fit(beneficiary, count=1, phase=Phase.NOMINATED).fit_count > 0


def _beneficiaries(s: Session, pods: list[Pod]) -> list[Pod]:
    """Pods that may depend on these evictions: nominated to the same nodes, or charged to the same queues. What was nominated last
    comes first: the nominations of the others may be older than the eviction."""
    world = s.world
    nominated_at = {step.pod.uid: number for number, step in enumerate(world.placements.steps())}
    nodes = {world.placement(pod).node for pod in pods}
    queues = {
        queue
        for pod in pods
        if pod.uid in world.facts.members
        for queue in world.facts.tree.path(world.facts.members[pod.uid].queue)
    }
    found = [
        (world.placements.by_uid[uid].node not in nodes, -nominated_at.get(uid, -1), world.facts.pods[uid].full_name, uid)
        for uid in world.placements.reservations
        if world.placements.by_uid[uid].phase is Phase.NOMINATED
        and (
            world.placements.by_uid[uid].node in nodes
            or not queues.isdisjoint(world.facts.tree.path(world.facts.members[uid].queue))
        )
    ]
    return [world.facts.pods[uid] for *_, uid in sorted(found)]


def _reassign(s: Session, pods: list[Pod], step: Step) -> None:
    """For the last pod nominated to their nodes; else for one that needs what they use of a queue."""
    world = s.world
    beneficiary = next(iter(_beneficiaries(s, pods)), None)
    gang = world.gang_of(beneficiary) if beneficiary is not None else None
    if beneficiary is None or gang is None:
        return
    with s.trial(f"evicted for {gang.full_name}", cause=step.cause, for_gang=gang.full_name) as trial:
        for pod in pods:
            trial.evict(pod)
        trial.commit()
    name = world.placement(beneficiary).plan
    if name in world.memory.plans:
        plan = world.memory.plans[name]
        world.memory.plans.set(name, replace(plan, victims=(*plan.victims, *(pod.uid for pod in pods))))
