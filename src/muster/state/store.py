"""What is known, event by event. `fold` takes a fact in; `world(now)` brings the picture of the cluster up to date for a cycle.

Events may come late, twice or out of order: the newer version of an object wins, and what is gone stays gone. A decision counts
from the moment it was made (a pod is BINDING before the API server knows); facts that arrive later confirm or correct it.
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

# Gone pods are remembered so that a late event cannot bring one back; older ones are forgotten.
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
        """The last version of what is gone, so that late news of it is known to be late."""
        self._rows_stale = False
        self._queues_stale = True
        self._laid_out: Mapping[str, str] = {}
        """The parents of all queues when the ledger was last laid out."""

    # -- facts in --------------------------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        match event:
            case Upsert(obj=Pod() as pod):
                self._upsert_pod(pod)
            case Upsert(obj=thing):
                self._upsert(thing)
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
        """The picture for a cycle at this time: rows laid out, touched gangs made anew."""
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
        for key, pods in self._assembler.swapped().items():
            self._membership.swap(key, pods)
        world.changes.trim()
        return world

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _upsert_pod(self, pod: Pod) -> None:
        known = self._pods.get(pod.uid)
        if pod.uid in self._tombstones or (known is not None and pod.version <= known.version and pod.version):
            return
        if pod.scheduler in self._victim_schedulers:
            # Its gang, if any, is another scheduler's business: here it is one who may have to leave.
            pod = replace(pod, membership=None)
        self._pods[pod.uid] = pod
        world = self._world
        before = world.placements.by_uid.get(pod.uid, UNPLACED)
        after = _placement(
            pod,
            before,
            devices=self._device_slots.slots_of(pod) if pod.signature.devices and pod.node is not None else (),
            cancelled_evictions=pod.uid in world.memory.cancelled_evictions,
            unmarked=known is not None and known.eviction_marked_at is not None and pod.eviction_marked_at is None,
        )
        if pod.eviction_marked_at is None:
            world.memory.cancelled_evictions.drop(pod.uid)
        live = not pod.finished and (after is not UNPLACED or (pod.ours and pod.deleted_at is None))
        if known is not None and known.signature != pod.signature:
            # Resized in place: what it took under its old request is given back under that.
            world.placements.move(known, UNPLACED)
            self._membership.remove_pod(known)
            before = UNPLACED
        if after != before:
            self._move(pod, before, after)
        elif before.node is not None:
            world.placements.replace_pod(pod, relabelled=known is None or known.labels != pod.labels)
        if known is None and pod.reservation_note is not None and pod.ours:
            world.facts.reservation_notes[pod.uid] = pod.reservation_note
        if pod.timed_out:
            world.memory.timed_out.drop(pod.uid)
        if pod.node is not None:
            world.memory.binding_reservations.drop(pod.uid)
        if live:
            world.facts.pods[pod.uid] = pod
        elif known is not None:
            world.facts.pods.pop(pod.uid, None)
            self._membership.remove_pod(pod)
        takes_part = pod.ours or (pod.node is not None and pod.scheduler in self._victim_schedulers)
        if takes_part and (known is None or _FACTS(pod) != _FACTS(known)):
            # What was written onto the pod comes back as news of it, and is no reason to try its gang again.
            self._assembler.put_pod(pod)

    def _move(self, pod: Pod, before: Placement, after: Placement) -> None:
        self._world.placements.move(pod, after)
        if after.node is not None and after.node != before.node:
            self._world.changes.bump(Topic.POD_PLACED)
            self._world.changes.bump(Topic.QUEUE_USAGE)
        if before.node is not None and after.node != before.node:
            self._world.placements.capacity_freed(pod.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        elif before.node is not None and after.phase in RELEASING:
            self._world.placements.capacity_freed(pod.uid, Topic.RELEASING)

    def _delete_pod(self, uid: str) -> None:
        self._add_tombstone(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        if uid in self._world.placements.by_uid:
            self._world.placements.move(pod, UNPLACED)
            self._world.placements.capacity_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        self._world.facts.pods.pop(uid, None)
        self._world.facts.reservation_notes.pop(uid, None)
        self._world.memory.forget_pod(uid)
        self._membership.remove_pod(pod)
        self._assembler.drop_pod(uid)

    def _add_tombstone(self, uid: str) -> None:
        self._tombstones[uid] = None
        _bound(self._tombstones)

    def _on_bind_failed(self, uid: str, node: str) -> None:
        """A bind failed: that pod, and no other, goes back to the claim that it came from, or is unplaced again. Whether the claim
        still holds good is judged with all others."""
        world = self._world
        binding_reservations = world.memory.binding_reservations.drop(uid)
        pod = world.facts.pods.get(uid)
        if pod is None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.BINDING and placement.node == node:
            world.placements.move(
                pod, UNPLACED if binding_reservations is None else self._restored_reservation(binding_reservations)
            )
            self._world.placements.capacity_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            self._retry_gang(uid)

    def _restored_reservation(self, binding_reservations: BindingReservation) -> Placement:
        claim, plan = binding_reservations.claim, binding_reservations.plan
        if plan is not None:
            if claim.plan not in self._world.memory.plans:
                self._world.memory.plans.set(claim.plan, plan)
        # What was held had its gang complete: if it must wait again, that is another wait.
        return claim if claim.phase is Phase.NOMINATED else replace(claim, since=self._world.now)

    def _on_eviction_failed(self, uid: str, budget: str) -> None:
        """An eviction was refused: the pod is still there, and stays. It is not asked again before that budget changes."""
        pod = self._world.facts.pods.get(uid)
        if pod is None or pod.deleted_at is not None:
            return
        placement = self._world.placement(pod)
        if placement.phase is Phase.TERMINATING:
            self._world.memory.refused_evictions.set(uid, EvictionRefusal(budget, self._world.now))
            self._world.placements.move(pod, Placement(Phase.BOUND, placement.node, _start(pod), placement.devices))
            self._world.changes.bump(Topic.FREE_CAPACITY)

    def _on_reservation_failed(self, failed: ReservationFailed) -> None:
        """A claim that only we know of is none. The next cycle ends it, and whatever depends on it."""
        placement = self._world.placements.by_uid.get(failed.uid, UNPLACED)
        if placement.phase in RESERVATIONS and (placement.node, placement.since) == (failed.node, failed.since):
            self._world.memory.unwritten_reservations.set(failed.uid, failed.why)

    def _retry_gang(self, uid: str) -> None:
        """The gang of this pod is worth another attempt."""
        member = self._world.facts.members.get(uid)
        if member is not None:
            self._world.memory.retry(member.gang)

    # -- everything else -------------------------------------------------------------------------------------------------------

    def _version(self, key: tuple[str, str]) -> int:
        """The last version of a thing that was seen, of one that is gone too."""
        return self._versions.get(key, self._deleted_at_version.get(key, -1))

    def _upsert(self, thing: ClusterObject) -> None:
        key = (type(thing).__name__, thing.key if isinstance(thing, Budget | PodGroup | Queue | VolumeClaim) else thing.name)
        if thing.version and thing.version <= self._version(key):
            return
        self._versions[key] = thing.version
        self._deleted_at_version.pop(key, None)
        world = self._world
        match thing:
            case Node():
                self._upsert_node(thing)
                self._note_problems("", thing)
            case Inventory():
                self._note_problems("Device: ", thing)
                if (node := self._device_slots.upsert_inventory(thing)) is not None:
                    self._upsert_node(node)
            case PodGroup():
                self._upsert_group(thing)
            case PriorityClass():
                self._assembler.put_class(thing)
            case Queue():
                self._upsert_queue(thing)
            case Namespace():
                world.facts.namespaces[thing.name] = thing
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.NAMESPACES)
            case DomainSpec():
                world.facts.domains[thing.name] = thing
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.DOMAINS)
            case PersistentVolume() | VolumeClaim() | StorageClass() | CsiNode():
                if world.facts.storage.put(thing):
                    world.changes.bump(Topic.FREE_CAPACITY)
                    world.changes.bump(Topic.STORAGE)
            case Budget():
                self._on_budget_changed(thing.key)
                world.facts.budgets[thing.key] = thing

    def _note_problems(self, where: str, thing: Node | Inventory) -> None:
        """What is wrong with a node or with its list of devices, for whoever looks after it."""
        said = self._world.facts.node_problems.pop(thing.name, {})
        said = {part: why for part, why in said.items() if part != where}
        if thing.problems:
            said[where] = "; ".join(f"{where}{problem.field}: {problem.text}" for problem in thing.problems)
        if said:
            self._world.facts.node_problems[thing.name] = said

    def _on_budget_changed(self, key: str) -> None:
        """A budget changed: whoever it protected may be asked again."""
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
        # What was written about it comes back as news of it, and changes nothing.
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
        """What the pods on a node without a row add up to: used and taken."""
        world = self._world
        here = world.placements.on_node.get(node, {})
        for pod in here.values():
            world.columns.require(pod.signature.request)
        used = world.columns.vector(world.facts.nodes[node].allocatable) * 0
        taken = used.copy()
        for uid, pod in here.items():
            phase = world.placements.by_uid[uid].phase
            used += world.request(pod) * (phase in COUNTS_IN_USED)
            taken += world.request(pod) * (phase in COUNTS_IN_PLANNED)
        return used, taken

    def _update_membership(self, touched: dict[str, Gang]) -> None:
        """Each touched gang in the queues that it belongs to; when the queues changed, those whose queue is another now too."""
        world, roster = self._world, self._membership
        if self._queues_stale:
            world.facts.tree = QueueTree(world.facts.queues)
        gangs = [roster.settled(gang) for gang in touched.values()]
        if self._queues_stale:
            others = [(gang, roster.settled(gang)) for key, gang in world.facts.gangs.items() if key not in touched]
            gangs.extend(now for before, now in others if now is not before)
        self._lay_out_queues({role.queue for gang in gangs for role in gang.roles})
        self._queues_stale = False
        for gang in gangs:
            roster.add_gang(gang)

    def _lay_out_queues(self, named: set[str]) -> None:
        """Rows for the queues there are, and for those that were only named: their pods are somewhere, too."""
        ledger, parents = self._world.ledger, self._world.facts.tree.parents
        if parents == self._laid_out and all(queue in ledger for queue in named):
            return
        charged = {member.queue for member in self._world.facts.members.values()}
        # Gangs without a single pod are charged nothing, and still wait in a queue that somebody may look up.
        waited_in = charged.union(named, self._world.facts.gangs_in_queue)
        ledger.lay_out(dict.fromkeys(sorted(waited_in), "") | parents)
        self._laid_out = parents
        self._membership.charge_all()


def _bound(graves: dict[K, V]) -> None:
    """Forget the oldest half where there are too many."""
    if len(graves) > _MAX_TOMBSTONES:
        for old in list(graves)[: _MAX_TOMBSTONES // 2]:
            del graves[old]


def _start(pod: Pod) -> float:
    return pod.started if pod.started is not None else pod.created


def _placement(
    pod: Pod, before: Placement, *, devices: tuple[DeviceSlot, ...], cancelled_evictions: bool = False, unmarked: bool = False
) -> Placement:
    """Where a pod stands, from what was seen of it and what was decided about it before. `cancelled_evictions`: its mark to leave
    was taken back, which its object may not show yet; `unmarked`: the mark was there and is there no more."""
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
    if pod.eviction_marked_at is not None and not cancelled_evictions:
        return (
            before
            if same and before.phase is Phase.TERMINATING
            else Placement(Phase.TERMINATING, pod.node, pod.eviction_marked_at, devices)
        )
    # Told to go, but the API server does not show it yet: that is no reason to count it as staying.
    if same and before.phase is Phase.TERMINATING and not unmarked:
        return before
    return Placement(Phase.BOUND, pod.node, _start(pod), devices)
