"""The store: facts, event by event. `fold` takes an event in; `world(now)` brings the world up to date for a cycle.

Events may come late, twice or out of order. `pod_facts` and `object_facts` say what becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.events import BindFailed, Delete, Event, EvictFailed, ReservationFailed, SaveFailed, Upsert
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.model.topics import Topic
from muster.state.device_slot_facts import DeviceSlotFacts
from muster.state.gangs.gang_assembler import GangAssembler
from muster.state.gangs.membership import GangMembership
from muster.state.object_facts import ObjectFacts
from muster.state.pod_facts import PodFacts
from muster.state.queue_tree import QueueTree
from muster.state.world import World


class Store:
    def __init__(
        self, *, default_wait_s: float = 600.0, preemptible_by_default: bool = True, victim_schedulers: tuple[str, ...] = ()
    ) -> None:
        world = self._world = World()
        self._assembler = GangAssembler(world.facts.succeeded, default_wait_s=default_wait_s)
        self._membership = GangMembership(world, preemptible_by_default=preemptible_by_default)
        self._device_slots = DeviceSlotFacts(world)
        self._objects = ObjectFacts(world, assembler=self._assembler, device_slots=self._device_slots)
        self._pods = PodFacts(
            world,
            assembler=self._assembler,
            membership=self._membership,
            device_slots=self._device_slots,
            victim_schedulers=victim_schedulers,
        )
        self._laid_out: Mapping[str, str] = {}
        """The parents of all queues when the ledger was last laid out."""

    def fold(self, event: Event) -> None:
        match event:
            case Upsert(obj=Pod() as pod):
                self._pods.upsert(pod)
            case Upsert(obj=obj):
                self._objects.upsert(obj)
            case Delete(kind="Pod", key=uid):
                self._pods.delete(uid)
            case Delete():
                self._objects.delete(event)
            case BindFailed():
                self._pods.on_bind_failed(event)
            case EvictFailed():
                self._pods.on_eviction_failed(event)
            case ReservationFailed():
                self._pods.on_reservation_failed(event)
            case SaveFailed(kind="SavedPlan", key=gang):
                self._world.memory.save_plan_again(gang)
            case SaveFailed(key=namespace):
                self._world.memory.save_history_again(namespace)

    def world(self, now: float) -> World:
        """The world for a cycle at this time: rows laid out, changed gangs assembled anew."""
        world = self._world
        world.now = now
        world.changes.bump(Topic.CYCLE)
        if self._objects.rows_stale:
            self._lay_out_rows()
        self._device_slots.settle()
        self._objects.settle_budgets()
        gangs, gone = self._assembler.assemble()
        for key in gone:
            self._membership.remove_gang(key)
        self._remember_minimums(gangs)
        self._update_membership(gangs)
        for key, pods in self._assembler.replaced_members().items():
            self._membership.swap(key, pods)
        world.changes.trim()
        return world

    def _lay_out_rows(self) -> None:
        """Rows for the nodes that there are. What pods use that came before their node is counted now."""
        table, placements = self._world.table, self._world.placements
        for name in table.lay_out(self._world.facts.nodes):
            for uid, pod in placements.on_node.get(name, {}).items():
                table.change_phase(
                    table.row[name], self._world.request(pod), before=Phase.PENDING, now=placements.by_uid[uid].phase
                )
        self._objects.rows_stale = False

    def _update_membership(self, changed: dict[str, Gang]) -> None:
        """Each changed gang in the queues that it belongs to; when queues changed, gangs whose queue is another now too."""
        world, membership = self._world, self._membership
        if self._objects.queues_stale:
            world.facts.tree = QueueTree(world.facts.queues)
        gangs = [membership.with_queues(gang) for gang in changed.values()]
        if self._objects.queues_stale:
            others = [(gang, membership.with_queues(gang)) for key, gang in world.facts.gangs.items() if key not in changed]
            gangs.extend(now for before, now in others if now is not before)
        self._lay_out_queues({role.queue for gang in gangs for role in gang.roles})
        self._objects.queues_stale = False
        for gang in gangs:
            membership.add_gang(gang)

    def _remember_minimums(self, changed: dict[str, Gang]) -> None:
        """Facts are what the objects say now: a minimum that can no longer be read is only remembered."""
        for key, gang in changed.items():
            last = self._assembler.last_minimums(gang)
            if last is not None:
                self._world.memory.last_minimums.set(key, last)
            else:
                self._world.memory.last_minimums.drop(key)

    def _lay_out_queues(self, named: set[str]) -> None:
        """Rows for the queues that exist, and for those that gangs only name: their pods use capacity, too."""
        ledger, parents = self._world.ledger, self._world.facts.tree.parents
        if parents == self._laid_out and all(queue in ledger for queue in named):
            return
        reserve_pods = self._world.placements.reserve_pods.values()
        charged = {member.queue for member in (*self._world.facts.members.values(), *(pod.member for pod in reserve_pods))}
        # Gangs without pods are charged nothing, and still wait in a queue.
        waited_in = charged.union(named, self._world.facts.gangs_in_queue)
        ledger.lay_out(dict.fromkeys(sorted(waited_in), "") | parents)
        self._laid_out = parents
        self._membership.charge_all()
