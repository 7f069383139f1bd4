"""Pods as they are observed: which of them live, and the placement that follows from a pod and from what was decided about it.

A decision counts from the moment it was made (a pod is BINDING before the API server knows); facts that arrive later confirm or
correct it. A write that failed takes a decision back.
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

from muster.model.device import DeviceSlot
from muster.model.events import BindFailed, EvictFailed, ReservationFailed
from muster.model.pod import PREEMPTABLE, RELEASING, RESERVATIONS, UNPLACED, Phase, Placement, Pod
from muster.model.resource_amounts import GPU
from muster.model.topics import Topic
from muster.state.device_slot_facts import DeviceSlotFacts
from muster.state.gangs.gang_assembler import GangAssembler
from muster.state.gangs.membership import GangMembership
from muster.state.memory import BindingReservation, EvictionRefusal, RefusedBinds
from muster.state.tombstones import Tombstones
from muster.state.world import World

_FACTS = attrgetter(*(field.name for field in fields(Pod) if field.name != "version"))


class PodFacts:
    def __init__(
        self,
        world: World,
        *,
        assembler: GangAssembler,
        membership: GangMembership,
        device_slots: DeviceSlotFacts,
        victim_schedulers: tuple[str, ...],
    ) -> None:
        self._world = world
        self._assembler, self._membership, self._device_slots = assembler, membership, device_slots
        self._victim_schedulers = frozenset(victim_schedulers)
        self._pods: dict[str, Pod] = {}
        self._tombstones: Tombstones[str] = Tombstones()

    def upsert(self, pod: Pod) -> None:
        known = self._pods.get(pod.uid)
        if pod.uid in self._tombstones or (known is not None and pod.version <= known.version and pod.version):
            return
        if pod.scheduler in self._victim_schedulers:
            # Its gang, if any, is another scheduler's business: here it is only a possible victim.
            pod = replace(pod, membership=None)
        self._pods[pod.uid] = pod
        after = self._placement_of(pod, known)
        self._update_placement(pod, known, after)
        self._forget_confirmed(pod)
        self._update_live(pod, known, is_live=not pod.finished and (after is not UNPLACED or (pod.ours and pod.deleted_at is None)))

    def _placement_of(self, pod: Pod, known: Pod | None) -> Placement:
        """Its placement, from its object and from what was decided about it before."""
        before = self._world.placements.by_uid.get(pod.uid, UNPLACED)
        if pod.finished:
            return UNPLACED
        if pod.node is None:
            return UNPLACED if pod.deleted_at is not None else before
        return _placement_on_node(
            pod,
            before if before.node == pod.node else UNPLACED,
            devices=self._device_slots.slots_of(pod) if pod.signature.devices else (),
            is_unmarked=known is not None and known.eviction_marked_at is not None and pod.eviction_marked_at is None,
        )

    def _update_placement(self, pod: Pod, known: Pod | None, after: Placement) -> None:
        placements = self._world.placements
        if known is not None and known.signature != pod.signature:
            # Resized in place: what it used is given back under its old request.
            placements.move(known, UNPLACED)
            placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            self._membership.remove_pod(known)
        before = placements.by_uid.get(pod.uid, UNPLACED)
        if after != before:
            self._move(pod, before, after)
        elif before.node is not None:
            relabelled = known is None or known.labels != pod.labels
            placements.replace_pod(pod, relabelled=relabelled)
            if relabelled and not pod.ours:
                self._world.changes.bump(Topic.FOREIGN_PODS)
            if known is not None and (known.movable, known.annotations.get(PREEMPTABLE)) != (
                pod.movable,
                pod.annotations.get(PREEMPTABLE),
            ):
                self._world.changes.bump(Topic.EVICTABLE)

    def _forget_confirmed(self, pod: Pod) -> None:
        """What the object itself shows need not be remembered."""
        if pod.timed_out:
            self._world.memory.timed_out.drop(pod.uid)
        if pod.node is not None:
            self._world.memory.binding_reservations.drop(pod.uid)
            self._world.memory.refused_binds.drop(pod.uid)

    def _update_live(self, pod: Pod, known: Pod | None, *, is_live: bool) -> None:
        if is_live:
            self._count_gpus(self._world.facts.pods.get(pod.uid), pod)
            self._world.facts.pods[pod.uid] = pod
        elif known is not None:
            self._count_gpus(self._world.facts.pods.pop(pod.uid, None), None)
            self._membership.remove_pod(pod)
        takes_part = pod.ours or (pod.node is not None and pod.scheduler in self._victim_schedulers)
        if takes_part and (known is None or _FACTS(pod) != _FACTS(known)):
            # An event that only echoes what was written onto the pod is no reason to try its gang again.
            self._assembler.put_pod(pod)

    def _count_gpus(self, before: Pod | None, after: Pod | None) -> None:
        counts = self._world.facts.gpu_pods
        for pod, by in ((after, 1), (before, -1)):
            if pod is not None and pod.ours and (pod.signature.devices or pod.signature.request[GPU]):
                counts[pod.signature] = counts.get(pod.signature, 0) + by
                if not counts[pod.signature]:
                    del counts[pod.signature]

    def _move(self, pod: Pod, before: Placement, after: Placement) -> None:
        placements = self._world.placements
        placements.move(pod, after)
        if not pod.ours:
            self._world.changes.bump(Topic.FOREIGN_PODS)
        if before.phase in RESERVATIONS and pod.node is not None:
            self._world.memory.bound_by_others.set(pod.uid, before.node or "")
        if after.node is not None and after.node != before.node:
            self._world.changes.bump(Topic.POD_PLACED)
            self._world.changes.bump(Topic.QUEUE_USAGE)
        if before.node is not None and after.node != before.node:
            placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        elif before.node is not None and after.phase in RELEASING:
            placements.capacity_freed(pod.uid, Topic.RELEASING)

    def delete(self, uid: str) -> None:
        self._tombstones.add(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        world = self._world
        if uid in world.placements.by_uid:
            world.placements.move(pod, UNPLACED)
            world.placements.capacity_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            if not pod.ours:
                world.changes.bump(Topic.FOREIGN_PODS)
        self._count_gpus(world.facts.pods.pop(uid, None), None)
        world.memory.forget_pod(uid)
        self._membership.remove_pod(pod)
        self._assembler.drop_pod(uid)

    # -- effects that failed ---------------------------------------------------------------------------------------------------

    def on_bind_failed(self, failed: BindFailed) -> None:
        """That pod alone goes back to the reservation that it came from, or is unplaced again. Whether the reservation still holds
        is checked with all others."""
        world = self._world
        binding = world.memory.binding_reservations.drop(failed.uid)
        pod = world.facts.pods.get(failed.uid)
        if pod is None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.BINDING and placement.node == failed.node:
            before = world.memory.refused_binds.get(failed.uid)
            count = 1 if before is None else before.count + 1
            world.memory.refused_binds.set(failed.uid, RefusedBinds(count, world.now, failed.why))
            world.placements.move(pod, UNPLACED if binding is None else self._restored_reservation(binding))
            world.placements.capacity_freed(failed.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            if (member := world.facts.members.get(failed.uid)) is not None:
                world.memory.retry(member.gang)

    def _restored_reservation(self, binding: BindingReservation) -> Placement:
        before, plan = binding.reservation, binding.plan
        if plan is not None and before.plan not in self._world.memory.plans:
            self._world.memory.plans.set(before.plan, plan)
        # A reserved pod had its gang complete: if it must wait again, that is another wait.
        return before if before.phase is Phase.NOMINATED else replace(before, since=self._world.now)

    def on_eviction_failed(self, failed: EvictFailed) -> None:
        """The pod is still there, and stays. It is not evicted again before that budget changes."""
        world = self._world
        pod = world.facts.pods.get(failed.uid)
        if pod is None or pod.deleted_at is not None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.TERMINATING:
            world.memory.refused_evictions.set(failed.uid, EvictionRefusal(failed.refused_by, world.now))
            world.memory.take_back_eviction(failed.uid)
            world.placements.move(pod, Placement(Phase.BOUND, placement.node, _start(pod), placement.devices))
            world.changes.bump(Topic.FREE_CAPACITY)

    def on_reservation_failed(self, failed: ReservationFailed) -> None:
        """A reservation that is not written would be lost by a restart. The next cycle ends it, and what depends on it."""
        placement = self._world.placements.by_uid.get(failed.uid, UNPLACED)
        if placement.phase in RESERVATIONS and (placement.node, placement.since) == (failed.node, failed.since):
            self._world.memory.unwritten_reservations.set(failed.uid, failed.why)


def _start(pod: Pod) -> float:
    return pod.started if pod.started is not None else pod.created


def _placement_on_node(pod: Pod, before: Placement, *, devices: tuple[DeviceSlot, ...], is_unmarked: bool) -> Placement:
    """`before`: on this node. `is_unmarked`: somebody removed the mark of its soft eviction. Anybody can write such a mark, so one
    that this scheduler did not decide on means nothing."""
    devices = devices or before.devices
    if pod.deleted_at is not None:
        return before if before.phase is Phase.OVERDUE else Placement(Phase.TERMINATING, pod.node, pod.deleted_at, devices)
    if before.phase is Phase.TERMINATING and not is_unmarked:
        # Its eviction was sent, and the API server may not show it yet.
        return before
    return Placement(Phase.BOUND, pod.node, _start(pod), devices)
