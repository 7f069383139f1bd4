"""Objects other than pods as they are observed: the newer version wins, and what was deleted stays deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from muster.model.budget import Budget
from muster.model.events import ClusterObject, Delete, PriorityClass, event_subject
from muster.model.gang import CompositePodGroup, PodGroup
from muster.model.node import Inventory, Node
from muster.model.queue import Queue
from muster.model.saved_state import UNKNOWN, SavedHistory, SavedPlan
from muster.model.topics import Topic
from muster.model.topology_spec import DomainSpec
from muster.state.device_slot_facts import DeviceSlotFacts
from muster.state.facts import Facts
from muster.state.gangs.gang_assembler import GangAssembler
from muster.state.tombstones import Tombstones
from muster.state.world import World

_PLAIN: Mapping[str, tuple[Callable[[Facts], Any], Topic]] = {
    "Namespace": (attrgetter("namespaces"), Topic.NAMESPACES),
    "DomainSpec": (attrgetter("domains"), Topic.DOMAINS),
    "PersistentVolume": (attrgetter("storage.volumes"), Topic.STORAGE),
    "VolumeClaim": (attrgetter("storage.claims"), Topic.STORAGE),
    "StorageClass": (attrgetter("storage.classes"), Topic.STORAGE),
    "CsiNode": (attrgetter("storage.csi_nodes"), Topic.STORAGE),
}
"""Objects that are only kept: where, and what changes with them besides the capacity that gangs wait for."""


class ObjectFacts:
    """Whether rows of nodes or queues have to be laid out anew is noted, and left to the store."""

    def __init__(self, world: World, *, assembler: GangAssembler, device_slots: DeviceSlotFacts) -> None:
        self._world, self._assembler, self._device_slots = world, assembler, device_slots
        self._versions: dict[tuple[str, str], int] = {}
        self._deleted: Tombstones[tuple[str, str]] = Tombstones()
        self._changed_budgets: set[str] = set()
        self.rows_stale = False
        self.queues_stale = True

    def upsert(self, obj: ClusterObject) -> None:
        kind, name = event_subject(obj)
        if obj.version and obj.version <= self._version(kind, name):
            return
        self._versions[kind, name] = obj.version
        self._deleted.pop((kind, name), None)
        match obj:
            case Node():
                self._upsert_node(obj)
                self._note_problems("", obj)
            case Inventory():
                self._note_problems("Device: ", obj)
                self._set_devices(obj)
            case PodGroup():
                self._upsert_group(obj)
            case CompositePodGroup():
                self._upsert_composite(obj)
            case PriorityClass():
                self._assembler.put_class(obj)
            case Queue():
                self._upsert_queue(obj)
            case Budget():
                self._on_budget_changed(obj.key)
                self._world.facts.budgets[obj.key] = obj
            case SavedPlan():
                self._upsert_plan(obj)
            case SavedHistory():
                self._upsert_history(obj)
            case _:
                self._upsert_plain(kind, name, obj)

    def delete(self, event: Delete) -> None:
        kind, name = event.kind, event.key
        if event.version and event.version < self._version(kind, name):
            return
        self._versions.pop((kind, name), None)
        self._deleted.add((kind, name), event.version)
        match kind:
            case "Node":
                self._delete_node(name)
            case "Inventory":
                self._note_problems("Device: ", Inventory(name))
                self._set_devices(Inventory(name))
            case "PodGroup":
                self._delete_group(name)
            case "CompositePodGroup":
                self._delete_composite(name)
            case "PriorityClass":
                self._assembler.drop_class(name)
            case "Queue":
                self._delete_queue(name)
            case "Budget" if self._world.facts.budgets.pop(name, None) is not None:
                self._on_budget_changed(name)
            case "SavedPlan":
                self._world.facts.saved_plans.pop(name, None)
            case "SavedHistory":
                self._world.facts.saved_histories.pop(name, None)
            case _ if kind in _PLAIN:
                self._delete_plain(kind, name)

    def _version(self, kind: str, name: str) -> int:
        """The last version of an object that was observed, deleted ones included."""
        return self._versions.get((kind, name), self._deleted.get((kind, name), -1))

    # -- kept as they are ------------------------------------------------------------------------------------------------------

    def _upsert_plain(self, kind: str, name: str, obj: ClusterObject) -> None:
        found, topic = _PLAIN[kind]
        objects = found(self._world.facts)
        known = objects.get(name)
        objects[name] = obj
        if known is None or replace(known, version=obj.version) != obj:
            self._world.changes.bump(Topic.FREE_CAPACITY)
            self._world.changes.bump(topic)

    def _delete_plain(self, kind: str, name: str) -> None:
        found, topic = _PLAIN[kind]
        gone = found(self._world.facts).pop(name, None)
        if gone is None:
            return
        if isinstance(gone, DomainSpec):
            self._world.memory.forget_object(gone.uid or gone.name)
        self._world.changes.bump(Topic.FREE_CAPACITY)
        self._world.changes.bump(topic)

    def _upsert_plan(self, plan: SavedPlan) -> None:
        memory = self._world.memory
        self._world.facts.saved_plans[plan.name] = plan
        if memory.cycle and plan.gang not in memory.saved_plans:
            # A scheduler that was cut off wrote it late: it ends.
            late = SavedPlan(plan.name, name=plan.name) if plan.part_of else plan
            memory.saved_plans.set(late.gang, replace(late, version=UNKNOWN))

    def _upsert_history(self, history: SavedHistory) -> None:
        self._world.facts.saved_histories[history.name] = history
        if not self._world.memory.cycle:
            self._assembler.recover_succeeded(history)

    # -- budgets ---------------------------------------------------------------------------------------------------------------

    def _on_budget_changed(self, key: str) -> None:
        self._changed_budgets.add(key)
        self._world.changes.bump(Topic.BUDGETS)

    def settle_budgets(self) -> None:
        """Evictions that changed budgets refused may be tried again, also those whose refusal was heard of after the change."""
        memory = self._world.memory
        if self._changed_budgets:
            for uid in [uid for uid, refusal in memory.refused_evictions.items() if refusal.budget in self._changed_budgets]:
                memory.allow_eviction(uid)
            self._changed_budgets.clear()

    # -- PodGroups -------------------------------------------------------------------------------------------------------------

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

    def _delete_group(self, key: str) -> None:
        self._assembler.drop_group(key)
        if (group := self._world.facts.groups.pop(key, None)) is not None:
            self._world.memory.forget_object(group.uid)

    def _upsert_composite(self, group: CompositePodGroup) -> None:
        known = self._world.facts.composites.get(group.key)
        self._world.facts.composites[group.key] = group
        if known is not None and known.uid != group.uid:
            self._world.memory.forget_object(known.uid)
        if known is None or replace(known, version=group.version, status=group.status) != group:
            self._assembler.put_composite(group)
        elif known.status != group.status:
            # Its status may have to be written anew.
            self._world.changes.gangs.extend(self._assembler.gangs_below(group.key))

    def _delete_composite(self, key: str) -> None:
        self._assembler.drop_composite(key)
        if (group := self._world.facts.composites.pop(key, None)) is not None:
            self._world.memory.forget_object(group.uid)

    # -- queues ----------------------------------------------------------------------------------------------------------------

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
        self.queues_stale = True
        for configured in (queue.limit, queue.deserved, queue.guarantee):
            self._world.columns.require(configured)
        for topic in (Topic.QUEUES, Topic.QUEUE_CAPACITY, Topic.DEMAND):
            self._world.changes.bump(topic, (queue.key,))

    def _delete_queue(self, key: str) -> None:
        if (gone := self._world.facts.queues.pop(key, None)) is not None:
            self._on_queue_changed(gone)
            self._world.memory.forget_object(gone.uid or gone.key)

    # -- nodes and their devices -----------------------------------------------------------------------------------------------

    def _upsert_node(self, node: Node) -> None:
        world = self._world
        known = world.facts.nodes.get(node.name)
        node = self._device_slots.with_devices(node)
        world.facts.nodes[node.name] = node
        if node.devices != (() if known is None else known.devices):
            self._device_slots.node_changed(node.name)
        if known is None:
            self.rows_stale = True
        elif not self.rows_stale:
            if not world.table.replace(node) and known.allocatable == node.allocatable:
                return
        world.changes.bump(Topic.FREE_CAPACITY)

    def _delete_node(self, name: str) -> None:
        world = self._world
        if (gone := world.facts.nodes.pop(name, None)) is not None:
            world.memory.forget_object(gone.uid or gone.name)
            world.facts.node_problems.pop(name, None)
            self.rows_stale = True
            world.changes.bump(Topic.FREE_CAPACITY)

    def _set_devices(self, found: Inventory) -> None:
        if (node := self._device_slots.set_inventory(found)) is not None:
            self._upsert_node(node)

    def _note_problems(self, where: str, obj: Node | Inventory) -> None:
        """What is wrong with a node or with its list of devices, for its owner."""
        problems = self._world.facts.node_problems.pop(obj.name, {})
        problems = {part: why for part, why in problems.items() if part != where}
        if obj.problems:
            problems[where] = "; ".join(f"{where}{problem.field}: {problem.text}" for problem in obj.problems)
        if problems:
            self._world.facts.node_problems[obj.name] = problems
