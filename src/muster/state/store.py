"""The store: facts, event by event. `fold` takes an event in; `world(now)` brings the world up to date for a cycle.

Events may come late, twice or out of order: the newer version of an object wins, and what was deleted stays deleted. A decision
counts from the moment it was made (a pod is BINDING before the API server knows); facts that arrive later confirm or correct it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import TypeVar

from muster.model.budget import Budget
from muster.model.device import DeviceSlot
from muster.model.events import (
    BindFailed,
    ClusterObject,
    Delete,
    Event,
    EvictFailed,
    Namespace,
    PriorityClass,
    ReservationFailed,
    Upsert,
)
from muster.model.gang import Gang, PodGroup
from muster.model.node import Inventory, Node
from muster.model.pod import RELEASING, RESERVATIONS, UNPLACED, Phase, Placement, Pod
from muster.model.queue import Queue
from muster.model.topics import Topic
from muster.model.topology_spec import DomainSpec
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim
from muster.state.device_slot_facts import DeviceSlotFacts
from muster.state.gangs.gang_assembler import GangAssembler
from muster.state.gangs.membership import GangMembership
from muster.state.memory import BindingReservation, EvictionRefusal
from muster.state.node_table import COUNTS_IN_PLANNED, COUNTS_IN_USED
from muster.state.queue_tree import QueueTree
from muster.state.resource_columns import Amounts
from muster.state.world import World

# Deleted pods are remembered so that a late event cannot bring one back; older ones are forgotten.
_MAX_TOMBSTONES = 200_000
_FACTS = attrgetter(*(field.name for field in fields(Pod) if field.name != "version"))

K = TypeVar("K")
V = TypeVar("V")


class Store:
    def __init__(
        self, *, default_wait_s: float = 600.0, preemptible_by_default: bool = True, victim_schedulers: tuple[str, ...] = ()
    ) -> None:
        self._world = World()
        self._victim_schedulers = frozenset(victim_schedulers)
        self._assembler = GangAssembler(default_wait_s=default_wait_s)
        self._membership = GangMembership(self._world, preemptible_by_default=preemptible_by_default)
        self._device_slots = DeviceSlotFacts(self._world)
        self._pods: dict[str, Pod] = {}
        self._tombstones: dict[str, None] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._deleted_at_version: dict[tuple[str, str], int] = {}
        """The last version of what was deleted, so that late events about it are known to be late."""
        self._rows_stale = False
        self._queues_stale = True
        self._laid_out: Mapping[str, str] = {}
        """The parents of all queues when the ledger was last laid out."""

    # -- facts in --------------------------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        match event:
            case Upsert(obj=Pod() as pod):
                self._upsert_pod(pod)
            case Upsert(obj=obj):
                self._upsert(obj)
            case Delete(kind="Pod", key=uid):
                self._delete_pod(uid)
            case Delete():
                self._delete(event)
            case BindFailed(uid=uid, node=node):
                self._on_bind_failed(uid, node)
            case EvictFailed(uid=uid, refused_by=budget):
                self._on_eviction_failed(uid, budget)
            case ReservationFailed():
                self._on_reservation_failed(event)

    def world(self, now: float) -> World:
        """The world for a cycle at this time: rows laid out, changed gangs assembled anew."""
        world = self._world
        world.now = now
        world.changes.bump(Topic.CYCLE)
        if self._rows_stale:
            self._lay_out_rows()
        self._device_slots.settle()
        gangs, gone = self._assembler.assemble()
        for key in gone:
            self._membership.remove_gang(key)
        self._update_membership(gangs)
        for key, pods in self._assembler.replaced_members().items():
            self._membership.swap(key, pods)
        world.changes.trim()
        return world

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _upsert_pod(self, pod: Pod) -> None:
        known = self._pods.get(pod.uid)
        if pod.uid in self._tombstones or (known is not None and pod.version <= known.version and pod.version):
            return
        if pod.scheduler in self._victim_schedulers:
            # Its gang, if any, is another scheduler's business: here it is only a possible victim.
            pod = replace(pod, membership=None)
        self._pods[pod.uid] = pod
        world = self._world
        after = self._placement_of(pod, known)
        if known is not None and known.signature != pod.signature:
            # Resized in place: what it used is given back under its old request.
            world.placements.move(known, UNPLACED)
            self._membership.remove_pod(known)
        before = world.placements.by_uid.get(pod.uid, UNPLACED)
        if after != before:
            self._move(pod, before, after)
        elif before.node is not None:
            world.placements.replace_pod(pod, relabelled=known is None or known.labels != pod.labels)
        if known is None and pod.reservation_note is not None and pod.ours:
            world.facts.reservation_notes[pod.uid] = pod.reservation_note
        self._forget_confirmed(pod)
        self._update_live(pod, known, is_live=not pod.finished and (after is not UNPLACED or (pod.ours and pod.deleted_at is None)))

    def _placement_of(self, pod: Pod, known: Pod | None) -> Placement:
        world = self._world
        cancelled = pod.uid in world.memory.cancelled_evictions
        if pod.eviction_marked_at is None:
            world.memory.cancelled_evictions.drop(pod.uid)
        return _placement(
            pod,
            world.placements.by_uid.get(pod.uid, UNPLACED),
            devices=self._device_slots.slots_of(pod) if pod.signature.devices and pod.node is not None else (),
            eviction_cancelled=cancelled,
            unmarked=known is not None and known.eviction_marked_at is not None and pod.eviction_marked_at is None,
        )

    def _forget_confirmed(self, pod: Pod) -> None:
        """What the object itself shows need not be remembered."""
        if pod.timed_out:
            self._world.memory.timed_out.drop(pod.uid)
        if pod.node is not None:
            self._world.memory.binding_reservations.drop(pod.uid)

    def _update_live(self, pod: Pod, known: Pod | None, *, is_live: bool) -> None:
        if is_live:
            self._world.facts.pods[pod.uid] = pod
        elif known is not None:
            self._world.facts.pods.pop(pod.uid, None)
            self._membership.remove_pod(pod)
        takes_part = pod.ours or (pod.node is not None and pod.scheduler in self._victim_schedulers)
        if takes_part and (known is None or _FACTS(pod) != _FACTS(known)):
            # An event that only echoes what was written onto the pod is no reason to try its gang again.
            self._assembler.put_pod(pod)

    def _move(self, pod: Pod, before: Placement, after: Placement) -> None:
        placements = self._world.placements
        placements.move(pod, after)
        if after.node is not None and after.node != before.node:
            self._world.changes.bump(Topic.POD_PLACED)
            self._world.changes.bump(Topic.QUEUE_USAGE)
        if before.node is not None and after.node != before.node:
            placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        elif before.node is not None and after.phase in RELEASING:
            placements.capacity_freed(pod.uid, Topic.RELEASING)

    def _delete_pod(self, uid: str) -> None:
        self._add_tombstone(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        world = self._world
        if uid in world.placements.by_uid:
            world.placements.move(pod, UNPLACED)
            world.placements.capacity_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        world.facts.pods.pop(uid, None)
        world.facts.reservation_notes.pop(uid, None)
        world.memory.forget_pod(uid)
        self._membership.remove_pod(pod)
        self._assembler.drop_pod(uid)

    def _add_tombstone(self, uid: str) -> None:
        self._tombstones[uid] = None
        _bound(self._tombstones)

    # -- effects that failed ---------------------------------------------------------------------------------------------------

    def _on_bind_failed(self, uid: str, node: str) -> None:
        """That pod alone goes back to the reservation that it came from, or is unplaced again. Whether the reservation still holds
        is checked with all others."""
        world = self._world
        binding = world.memory.binding_reservations.drop(uid)
        pod = world.facts.pods.get(uid)
        if pod is None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.BINDING and placement.node == node:
            world.placements.move(pod, UNPLACED if binding is None else self._restored_reservation(binding))
            world.placements.capacity_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            if (member := world.facts.members.get(uid)) is not None:
                world.memory.retry(member.gang)

    def _restored_reservation(self, binding: BindingReservation) -> Placement:
        before, plan = binding.reservation, binding.plan
        if plan is not None and before.plan not in self._world.memory.plans:
            self._world.memory.plans.set(before.plan, plan)
        # A reserved pod had its gang complete: if it must wait again, that is another wait.
        return before if before.phase is Phase.NOMINATED else replace(before, since=self._world.now)

    def _on_eviction_failed(self, uid: str, budget: str) -> None:
        """The pod is still there, and stays. It is not evicted again before that budget changes."""
        world = self._world
        pod = world.facts.pods.get(uid)
        if pod is None or pod.deleted_at is not None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.TERMINATING:
            world.memory.refused_evictions.set(uid, EvictionRefusal(budget, world.now))
            world.placements.move(pod, Placement(Phase.BOUND, placement.node, _start(pod), placement.devices))
            world.changes.bump(Topic.FREE_CAPACITY)

    def _on_reservation_failed(self, failed: ReservationFailed) -> None:
        """A reservation that is not written would be lost by a restart. The next cycle ends it, and what depends on it."""
        placement = self._world.placements.by_uid.get(failed.uid, UNPLACED)
        if placement.phase in RESERVATIONS and (placement.node, placement.since) == (failed.node, failed.since):
            self._world.memory.unwritten_reservations.set(failed.uid, failed.why)

    # -- everything else -------------------------------------------------------------------------------------------------------

    def _version(self, key: tuple[str, str]) -> int:
        """The last version of an object that was observed, deleted ones included."""
        return self._versions.get(key, self._deleted_at_version.get(key, -1))

    def _upsert(self, obj: ClusterObject) -> None:
        key = (type(obj).__name__, obj.key if isinstance(obj, Budget | PodGroup | Queue | VolumeClaim) else obj.name)
        if obj.version and obj.version <= self._version(key):
            return
        self._versions[key] = obj.version
        self._deleted_at_version.pop(key, None)
        world = self._world
        match obj:
            case Node():
                self._upsert_node(obj)
                self._note_problems("", obj)
            case Inventory():
                self._note_problems("Device: ", obj)
                if (node := self._device_slots.upsert_inventory(obj)) is not None:
                    self._upsert_node(node)
            case PodGroup():
                self._upsert_group(obj)
            case PriorityClass():
                self._assembler.put_class(obj)
            case Queue():
                self._upsert_queue(obj)
            case Namespace():
                world.facts.namespaces[obj.name] = obj
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.NAMESPACES)
            case DomainSpec():
                world.facts.domains[obj.name] = obj
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.DOMAINS)
            case PersistentVolume() | VolumeClaim() | StorageClass() | CsiNode():
                if world.facts.storage.put(obj):
                    world.changes.bump(Topic.FREE_CAPACITY)
                    world.changes.bump(Topic.STORAGE)
            case Budget():
                self._on_budget_changed(obj.key)
                world.facts.budgets[obj.key] = obj

    def _note_problems(self, where: str, obj: Node | Inventory) -> None:
        """What is wrong with a node or with its list of devices, for its owner."""
        problems = self._world.facts.node_problems.pop(obj.name, {})
        problems = {part: why for part, why in problems.items() if part != where}
        if obj.problems:
            problems[where] = "; ".join(f"{where}{problem.field}: {problem.text}" for problem in obj.problems)
        if problems:
            self._world.facts.node_problems[obj.name] = problems

    def _on_budget_changed(self, key: str) -> None:
        """Evictions that this budget refused may be tried again."""
        world = self._world
        for uid in [uid for uid, refusal in world.memory.refused_evictions.items() if refusal.budget == key]:
            world.memory.allow_eviction(uid)
        world.changes.bump(Topic.BUDGETS)

    def _upsert_group(self, group: PodGroup) -> None:
        known = self._world.facts.groups.get(group.key)
        self._world.facts.groups[group.key] = group
        self._assembler.put_group(group)
        if known is None:
            return
        if known.uid != group.uid:
            self._world.memory.forget_object(known.uid)
        if (known.uid, known.status) != (group.uid, group.status):
            # Its status may have to be written anew.
            gang = self._assembler.gang_of(group.key)
            self._world.changes.gangs.extend([gang] if gang is not None else [])

    def _upsert_queue(self, queue: Queue) -> None:
        known = self._world.facts.queues.get(queue.key)
        self._world.facts.queues[queue.key] = queue
        if known is not None and known.uid != queue.uid:
            self._world.memory.forget_object(known.uid or known.key)
        if known is not None and known.status != queue.status and queue.key in self._world.ledger:
            # Its status may have to be written anew.
            self._world.changes.ledger.add(queue.key)
        # An event that only echoes a status that was written changes nothing else.
        if known is None or replace(queue, version=known.version, status=known.status) != known:
            self._on_queue_changed(queue)

    def _on_queue_changed(self, queue: Queue) -> None:
        self._queues_stale = True
        for configured in (queue.limit, queue.deserved, queue.guarantee):
            self._world.columns.require(configured)
        for topic in (Topic.QUEUES, Topic.QUEUE_CAPACITY, Topic.DEMAND):
            self._world.changes.bump(topic, (queue.key,))

    def _upsert_node(self, node: Node) -> None:
        world = self._world
        known = world.facts.nodes.get(node.name)
        node = self._device_slots.with_devices(node)
        world.facts.nodes[node.name] = node
        if node.devices != (() if known is None else known.devices):
            self._device_slots.node_changed(node.name)
        if known is None:
            self._rows_stale = True
        elif not self._rows_stale:
            if not world.table.replace(node) and known.allocatable == node.allocatable:
                return
        world.changes.bump(Topic.FREE_CAPACITY)

    def _delete(self, event: Delete) -> None:
        world = self._world
        key = (event.kind, event.key)
        if event.version and event.version < self._version(key):
            return
        self._versions.pop(key, None)
        self._deleted_at_version[key] = event.version
        _bound(self._deleted_at_version)
        if event.kind == "Inventory":
            self._note_problems("Device: ", Inventory(event.key))
        match event.kind:
            case "Node" if (lost := world.facts.nodes.pop(event.key, None)) is not None:
                world.memory.forget_object(lost.uid or lost.name)
                world.facts.node_problems.pop(event.key, None)
                self._rows_stale = True
                world.changes.bump(Topic.FREE_CAPACITY)
            case "Inventory" if (node := self._device_slots.delete_inventory(event.key)) is not None:
                self._upsert_node(node)
            case "PodGroup":
                self._assembler.drop_group(event.key)
                if (group := world.facts.groups.pop(event.key, None)) is not None:
                    world.memory.forget_object(group.uid)
            case "PriorityClass":
                self._assembler.drop_class(event.key)
            case "Queue" if (gone := world.facts.queues.pop(event.key, None)) is not None:
                self._on_queue_changed(gone)
                world.memory.forget_object(gone.uid or gone.key)
            case "Namespace":
                world.facts.namespaces.pop(event.key, None)
                world.changes.bump(Topic.NAMESPACES)
            case what if world.facts.storage.drop(what, event.key):
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.STORAGE)
            case "Budget" if world.facts.budgets.pop(event.key, None) is not None:
                self._on_budget_changed(event.key)
            case "DomainSpec" if (domain := world.facts.domains.pop(event.key, None)) is not None:
                world.memory.forget_object(domain.uid or domain.name)
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.DOMAINS)

    # -- bringing the world up to date -----------------------------------------------------------------------------------------

    def _lay_out_rows(self) -> None:
        world = self._world
        for node in world.facts.nodes.values():
            # Every column must be there before the first row is added up: rows of one table are equally wide.
            world.columns.require(node.allocatable)
        fresh = {name: self._usage_on(name) for name in world.facts.nodes if name not in world.table.row}
        world.table.lay_out(world.facts.nodes, fresh)
        self._rows_stale = False

    def _usage_on(self, node: str) -> tuple[Amounts, Amounts]:
        """What the pods on a node without a row add up to: used and planned."""
        world = self._world
        here = world.placements.on_node.get(node, {})
        for pod in here.values():
            world.columns.require(pod.signature.request)
        used = world.columns.vector(world.facts.nodes[node].allocatable) * 0
        planned = used.copy()
        for uid, pod in here.items():
            phase = world.placements.by_uid[uid].phase
            used += world.request(pod) * (phase in COUNTS_IN_USED)
            planned += world.request(pod) * (phase in COUNTS_IN_PLANNED)
        return used, planned

    def _update_membership(self, changed: dict[str, Gang]) -> None:
        """Each changed gang in the queues that it belongs to; when queues changed, gangs whose queue is another now too."""
        world, membership = self._world, self._membership
        if self._queues_stale:
            world.facts.tree = QueueTree(world.facts.queues)
        gangs = [membership.with_queues(gang) for gang in changed.values()]
        if self._queues_stale:
            others = [(gang, membership.with_queues(gang)) for key, gang in world.facts.gangs.items() if key not in changed]
            gangs.extend(now for before, now in others if now is not before)
        self._lay_out_queues({role.queue for gang in gangs for role in gang.roles})
        self._queues_stale = False
        for gang in gangs:
            membership.add_gang(gang)

    def _lay_out_queues(self, named: set[str]) -> None:
        """Rows for the queues that exist, and for those that gangs only name: their pods use capacity, too."""
        ledger, parents = self._world.ledger, self._world.facts.tree.parents
        if parents == self._laid_out and all(queue in ledger for queue in named):
            return
        charged = {member.queue for member in self._world.facts.members.values()}
        # Gangs without pods are charged nothing, and still wait in a queue.
        waited_in = charged.union(named, self._world.facts.gangs_in_queue)
        ledger.lay_out(dict.fromkeys(sorted(waited_in), "") | parents)
        self._laid_out = parents
        self._membership.charge_all()


def _bound(tombstones: dict[K, V]) -> None:
    """Forget the oldest half where there are too many."""
    if len(tombstones) > _MAX_TOMBSTONES:
        for old in list(tombstones)[: _MAX_TOMBSTONES // 2]:
            del tombstones[old]


def _start(pod: Pod) -> float:
    return pod.started if pod.started is not None else pod.created


def _placement(
    pod: Pod, before: Placement, *, devices: tuple[DeviceSlot, ...], eviction_cancelled: bool = False, unmarked: bool = False
) -> Placement:
    """Its placement, from its object and from what was decided about it before. `eviction_cancelled`: its soft-eviction mark is
    being removed, which its object may not show yet; `unmarked`: the mark was there and is there no more."""
    if pod.finished:
        return UNPLACED
    if pod.node is None:
        return UNPLACED if pod.deleted_at is not None else before
    same = before.node == pod.node
    devices = devices or (before.devices if same else ())
    if pod.deleted_at is not None:
        if same and before.phase is Phase.OVERDUE:
            return before
        return Placement(Phase.TERMINATING, pod.node, pod.deleted_at, devices)
    if pod.eviction_marked_at is not None and not eviction_cancelled:
        return (
            before
            if same and before.phase is Phase.TERMINATING
            else Placement(Phase.TERMINATING, pod.node, pod.eviction_marked_at, devices)
        )
    # Its eviction was sent, and the API server does not show it yet: it still counts as terminating.
    if same and before.phase is Phase.TERMINATING and not unmarked:
        return before
    return Placement(Phase.BOUND, pod.node, _start(pod), devices)
