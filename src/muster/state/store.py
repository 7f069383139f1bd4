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
from muster.model.devices import Slot
from muster.model.events import BindFailed, ClaimFailed, Event, EvictFailed, Gone, Namespace, PriorityClass, Seen, Thing
from muster.model.gang import Gang, Group
from muster.model.node import Inventory, Node
from muster.model.pod import CLAIMS, GOING, UNPLACED, Phase, Placement, Pod
from muster.model.queue import Queue
from muster.model.topics import Topic
from muster.model.topology import DomainSpec
from muster.model.volumes import CsiNode, PersistentVolume, StorageClass, VolumeClaim
from muster.state.columns import Amounts
from muster.state.gangs import GangBook
from muster.state.memory import Redeemed, Refusal
from muster.state.queues import QueueTree
from muster.state.roster import Roster
from muster.state.slot_facts import SlotFacts
from muster.state.table import COUNTS_IN_TAKEN, COUNTS_IN_USED
from muster.state.world import World

# Gone pods are remembered so that a late event cannot bring one back; older ones are forgotten.
_GRAVES = 200_000
_FACTS = attrgetter(*(field.name for field in fields(Pod) if field.name != "version"))

K = TypeVar("K")
V = TypeVar("V")


class Store:
    def __init__(
        self, *, default_wait_s: float = 600.0, preemptible_by_default: bool = True, victim_schedulers: tuple[str, ...] = ()
    ) -> None:
        self._world = World()
        self._victim_schedulers = frozenset(victim_schedulers)
        self._book = GangBook(default_wait_s=default_wait_s)
        self._roster = Roster(self._world, preemptible_by_default=preemptible_by_default)
        self._slots = SlotFacts(self._world)
        self._seen: dict[str, Pod] = {}
        self._graves: dict[str, None] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._gone_at: dict[tuple[str, str], int] = {}
        """The last version of what is gone, so that late news of it is known to be late."""
        self._rows_stale = False
        self._queues_stale = True
        self._laid_out: Mapping[str, str] = {}
        """The parents of all queues when the ledger was last laid out."""

    # -- facts in --------------------------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        match event:
            case Seen(thing=Pod() as pod):
                self._see_pod(pod)
            case Seen(thing=thing):
                self._see(thing)
            case Gone(what="Pod", key=uid):
                self._lose_pod(uid)
            case Gone():
                self._lose(event)
            case BindFailed(uid=uid, node=node):
                self._take_back(uid, node)
            case EvictFailed(uid=uid, refused_by=budget):
                self._stay(uid, budget)
            case ClaimFailed():
                self._doubt(event)

    def world(self, now: float) -> World:
        """The picture for a cycle at this time: rows laid out, touched gangs made anew."""
        world = self._world
        world.now = now
        world.changes.bump(Topic.CYCLE)
        if self._rows_stale:
            self._lay_out_rows()
        self._slots.settle()
        gangs, gone = self._book.assemble()
        for key in gone:
            self._roster.disband(key)
        self._enlist(gangs)
        for key, pods in self._book.swapped().items():
            self._roster.swap(key, pods)
        world.changes.trim()
        return world

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _see_pod(self, pod: Pod) -> None:
        known = self._seen.get(pod.uid)
        if pod.uid in self._graves or (known is not None and pod.version <= known.version and pod.version):
            return
        if pod.scheduler in self._victim_schedulers:
            # Its gang, if any, is another scheduler's business: here it is one who may have to leave.
            pod = replace(pod, membership=None)
        self._seen[pod.uid] = pod
        world = self._world
        before = world.placements.by_uid.get(pod.uid, UNPLACED)
        after = _placement(
            pod,
            before,
            devices=self._slots.slots_of(pod) if pod.kind.devices and pod.node is not None else (),
            spared=pod.uid in world.memory.spared,
            unmarked=known is not None and known.told_at is not None and pod.told_at is None,
        )
        if pod.told_at is None:
            world.memory.spared.drop(pod.uid)
        live = not pod.finished and (after is not UNPLACED or (pod.ours and pod.deleted_at is None))
        if known is not None and known.kind != pod.kind:
            # Resized in place: what it took under its old request is given back under that.
            world.placements.move(known, UNPLACED)
            self._roster.dismiss(known)
            before = UNPLACED
        if after != before:
            self._shift(pod, before, after)
        elif before.node is not None:
            world.placements.on_node[before.node][pod.uid] = pod
            if known is None or known.labels != pod.labels:
                # Whoever looks for pods by their labels finds another one here now.
                world.changes.placements.add(pod.uid)
                world.changes.bump(Topic.FREE_CAPACITY)
        if known is None and pod.claim is not None and pod.ours:
            world.facts.notes[pod.uid] = pod.claim
        if pod.timed_out:
            world.memory.marked.drop(pod.uid)
        if pod.node is not None:
            world.memory.redeemed.drop(pod.uid)
        if live:
            world.facts.pods[pod.uid] = pod
        elif known is not None:
            world.facts.pods.pop(pod.uid, None)
            self._roster.dismiss(pod)
        takes_part = pod.ours or (pod.node is not None and pod.scheduler in self._victim_schedulers)
        if takes_part and (known is None or _FACTS(pod) != _FACTS(known)):
            # What was written onto the pod comes back as news of it, and is no reason to try its gang again.
            self._book.put_pod(pod)

    def _shift(self, pod: Pod, before: Placement, after: Placement) -> None:
        self._world.placements.move(pod, after)
        if after.node is not None and after.node != before.node:
            self._world.changes.bump(Topic.POD_PLACED)
            self._world.changes.bump(Topic.QUEUE_USAGE)
        if before.node is not None and after.node != before.node:
            self._bump_freed(pod.uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        elif before.node is not None and after.phase in GOING:
            self._bump_freed(pod.uid, Topic.RELEASING)

    def _lose_pod(self, uid: str) -> None:
        self._bury(uid)
        pod = self._seen.pop(uid, None)
        if pod is None:
            return
        if uid in self._world.placements.by_uid:
            self._world.placements.move(pod, UNPLACED)
            self._bump_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
        self._world.facts.pods.pop(uid, None)
        self._world.facts.notes.pop(uid, None)
        self._world.memory.forget_pod(uid)
        self._roster.dismiss(pod)
        self._book.drop_pod(uid)

    def _bury(self, uid: str) -> None:
        self._graves[uid] = None
        _bound(self._graves)

    def _take_back(self, uid: str, node: str) -> None:
        """A bind failed: that pod, and no other, goes back to the claim that it came from, or is unplaced again. Whether the claim
        still holds good is judged with all others."""
        world = self._world
        redeemed = world.memory.redeemed.drop(uid)
        pod = world.facts.pods.get(uid)
        if pod is None:
            return
        placement = world.placement(pod)
        if placement.phase is Phase.BINDING and placement.node == node:
            world.placements.move(pod, UNPLACED if redeemed is None else self._claim_again(redeemed))
            self._bump_freed(uid, Topic.FREE_CAPACITY, Topic.RELEASING)
            self._touch(uid)

    def _claim_again(self, redeemed: Redeemed) -> Placement:
        claim, plan = redeemed.claim, redeemed.plan
        if plan is not None:
            if claim.plan not in self._world.memory.plans:
                self._world.memory.plans.set(claim.plan, plan)
        # What was held had its gang complete: if it must wait again, that is another wait.
        return claim if claim.phase is Phase.NOMINATED else replace(claim, since=self._world.now)

    def _stay(self, uid: str, budget: str) -> None:
        """An eviction was refused: the pod is still there, and stays. It is not asked again before that budget changes."""
        pod = self._world.facts.pods.get(uid)
        if pod is None or pod.deleted_at is not None:
            return
        placement = self._world.placement(pod)
        if placement.phase is Phase.LEAVING:
            self._world.memory.refused.set(uid, Refusal(budget, self._world.now))
            self._world.placements.move(pod, Placement(Phase.BOUND, placement.node, _start(pod), placement.devices))
            self._world.changes.bump(Topic.FREE_CAPACITY)

    def _doubt(self, failed: ClaimFailed) -> None:
        """A claim that only we know of is none. The next cycle ends it, and whatever depends on it."""
        placement = self._world.placements.by_uid.get(failed.uid, UNPLACED)
        if placement.phase in CLAIMS and (placement.node, placement.since) == (failed.node, failed.since):
            self._world.memory.unwritten.set(failed.uid, failed.why)

    def _bump_freed(self, uid: str, *topics: Topic) -> None:
        """The pod left, or is leaving: its node and its queues have more room than before."""
        for topic in topics:
            self._world.changes.bump(topic)
        if (member := self._world.facts.members.get(uid)) is not None:
            self._world.bump_queue(member.queue)

    def _touch(self, uid: str) -> None:
        """The gang of this pod is worth another attempt."""
        member = self._world.facts.members.get(uid)
        if member is not None:
            self._world.memory.retry(member.gang)

    # -- everything else -------------------------------------------------------------------------------------------------------

    def _version(self, key: tuple[str, str]) -> int:
        """The last version of a thing that was seen, of one that is gone too."""
        return self._versions.get(key, self._gone_at.get(key, -1))

    def _see(self, thing: Thing) -> None:
        key = (type(thing).__name__, thing.key if isinstance(thing, Budget | Group | Queue | VolumeClaim) else thing.name)
        if thing.version and thing.version <= self._version(key):
            return
        self._versions[key] = thing.version
        self._gone_at.pop(key, None)
        world = self._world
        match thing:
            case Node():
                self._see_node(thing)
                self._note_faults("", thing)
            case Inventory():
                self._note_faults("Device: ", thing)
                if (node := self._slots.see_inventory(thing)) is not None:
                    self._see_node(node)
            case Group():
                self._see_group(thing)
            case PriorityClass():
                self._book.put_class(thing)
            case Queue():
                self._see_queue(thing)
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
                self._mind_budget(thing.key)
                world.facts.budgets[thing.key] = thing

    def _note_faults(self, where: str, thing: Node | Inventory) -> None:
        """What is wrong with a node or with its list of devices, for whoever looks after it."""
        said = self._world.facts.faulty.pop(thing.name, {})
        said = {part: why for part, why in said.items() if part != where}
        if thing.problems:
            said[where] = "; ".join(f"{where}{problem.field}: {problem.text}" for problem in thing.problems)
        if said:
            self._world.facts.faulty[thing.name] = said

    def _mind_budget(self, key: str) -> None:
        """A budget changed: whoever it protected may be asked again."""
        world = self._world
        for uid in [uid for uid, refusal in world.memory.refused.items() if refusal.budget == key]:
            world.memory.refused.drop(uid)
            world.changes.placements.add(uid)
        world.changes.bump(Topic.BUDGETS)

    def _see_group(self, group: Group) -> None:
        known = self._world.facts.groups.get(group.key)
        self._world.facts.groups[group.key] = group
        self._book.put_group(group)
        if known is None:
            return
        if known.uid != group.uid:
            self._world.memory.forget_object(known.uid)
        if (known.uid, known.status) != (group.uid, group.status):
            # Its status may have to be written anew.
            gang = self._book.gang_of(group.key)
            self._world.changes.gangs.extend([gang] if gang is not None else [])

    def _see_queue(self, queue: Queue) -> None:
        known = self._world.facts.queues.get(queue.key)
        self._world.facts.queues[queue.key] = queue
        if known is not None and known.uid != queue.uid:
            self._world.memory.forget_object(known.uid or known.key)
        if known is not None and known.status != queue.status and queue.key in self._world.ledger:
            # Its status may have to be written anew.
            self._world.changes.ledger.add(queue.key)
        # What was written about it comes back as news of it, and changes nothing.
        if known is None or replace(queue, version=known.version, status=known.status) != known:
            self._mind_queue(queue)

    def _mind_queue(self, queue: Queue) -> None:
        self._queues_stale = True
        for configured in (queue.limit, queue.deserved, queue.guarantee):
            self._world.columns.require(configured)
        for topic in (Topic.QUEUES, Topic.QUEUE_CAPACITY, Topic.DEMAND):
            self._world.changes.bump(topic, (queue.key,))

    def _see_node(self, node: Node) -> None:
        world = self._world
        known = world.facts.nodes.get(node.name)
        node = self._slots.with_devices(node)
        world.facts.nodes[node.name] = node
        if node.devices != (() if known is None else known.devices):
            self._slots.see_node(node.name)
        if known is None:
            self._rows_stale = True
        elif not self._rows_stale:
            if not world.table.replace(node) and known.allocatable == node.allocatable:
                return
        world.changes.bump(Topic.FREE_CAPACITY)

    def _lose(self, event: Gone) -> None:
        world = self._world
        key = (event.what, event.key)
        if event.version and event.version < self._version(key):
            return
        self._versions.pop(key, None)
        self._gone_at[key] = event.version
        _bound(self._gone_at)
        if event.what == "Inventory":
            self._note_faults("Device: ", Inventory(event.key))
        match event.what:
            case "Node" if (lost := world.facts.nodes.pop(event.key, None)) is not None:
                world.memory.forget_object(lost.uid or lost.name)
                world.facts.faulty.pop(event.key, None)
                self._rows_stale = True
                world.changes.bump(Topic.FREE_CAPACITY)
            case "Inventory" if (node := self._slots.lose_inventory(event.key)) is not None:
                self._see_node(node)
            case "Group":
                self._book.drop_group(event.key)
                if (group := world.facts.groups.pop(event.key, None)) is not None:
                    world.memory.forget_object(group.uid)
            case "PriorityClass":
                self._book.drop_class(event.key)
            case "Queue" if (gone := world.facts.queues.pop(event.key, None)) is not None:
                self._mind_queue(gone)
                world.memory.forget_object(gone.uid or gone.key)
            case "Namespace":
                world.facts.namespaces.pop(event.key, None)
                world.changes.bump(Topic.NAMESPACES)
            case what if world.facts.storage.drop(what, event.key):
                world.changes.bump(Topic.FREE_CAPACITY)
                world.changes.bump(Topic.STORAGE)
            case "Budget" if world.facts.budgets.pop(event.key, None) is not None:
                self._mind_budget(event.key)
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
        fresh = {name: self._stands_on(name) for name in world.facts.nodes if name not in world.table.row}
        world.table.lay_out(world.facts.nodes, fresh)
        self._rows_stale = False

    def _stands_on(self, node: str) -> tuple[Amounts, Amounts]:
        """What the pods on a node without a row add up to: used and taken."""
        world = self._world
        here = world.placements.on_node.get(node, {})
        for pod in here.values():
            world.columns.require(pod.kind.request)
        used = world.columns.vector(world.facts.nodes[node].allocatable) * 0
        taken = used.copy()
        for uid, pod in here.items():
            phase = world.placements.by_uid[uid].phase
            used += world.request(pod) * (phase in COUNTS_IN_USED)
            taken += world.request(pod) * (phase in COUNTS_IN_TAKEN)
        return used, taken

    def _enlist(self, touched: dict[str, Gang]) -> None:
        """Each touched gang in the queues that it belongs to; when the queues changed, those whose queue is another now too."""
        world, roster = self._world, self._roster
        if self._queues_stale:
            world.facts.tree = QueueTree(world.facts.queues)
        gangs = [roster.settled(gang) for gang in touched.values()]
        if self._queues_stale:
            others = [(gang, roster.settled(gang)) for key, gang in world.facts.gangs.items() if key not in touched]
            gangs.extend(now for before, now in others if now is not before)
        self._lay_out_queues({role.queue for gang in gangs for role in gang.roles})
        self._queues_stale = False
        for gang in gangs:
            roster.enlist(gang)

    def _lay_out_queues(self, named: set[str]) -> None:
        """Rows for the queues there are, and for those that were only named: their pods are somewhere, too."""
        ledger, parents = self._world.ledger, self._world.facts.tree.parents
        if parents == self._laid_out and all(queue in ledger for queue in named):
            return
        charged = {member.queue for member in self._world.facts.members.values()}
        # Gangs without a single pod are charged nothing, and still wait in a queue that somebody may look up.
        waited_in = charged.union(named, self._world.facts.in_queue)
        ledger.lay_out(dict.fromkeys(sorted(waited_in), "") | parents)
        self._laid_out = parents
        self._roster.charge_all()


def _bound(graves: dict[K, V]) -> None:
    """Forget the oldest half where there are too many."""
    if len(graves) > _GRAVES:
        for old in list(graves)[: _GRAVES // 2]:
            del graves[old]


def _start(pod: Pod) -> float:
    return pod.started if pod.started is not None else pod.created


def _placement(
    pod: Pod, before: Placement, *, devices: tuple[Slot, ...], spared: bool = False, unmarked: bool = False
) -> Placement:
    """Where a pod stands, from what was seen of it and what was decided about it before. `spared`: its mark to leave was taken
    back, which its object may not show yet; `unmarked`: the mark was there and is there no more."""
    if pod.finished:
        return UNPLACED
    if pod.node is None:
        return UNPLACED if pod.deleted_at is not None else before
    same = before.node == pod.node
    devices = devices or (before.devices if same else ())
    if pod.deleted_at is not None:
        if same and before.phase is Phase.OVERDUE:
            return before
        return Placement(Phase.LEAVING, pod.node, pod.deleted_at, devices)
    if pod.told_at is not None and not spared:
        return before if same and before.phase is Phase.LEAVING else Placement(Phase.LEAVING, pod.node, pod.told_at, devices)
    # Told to go, but the API server does not show it yet: that is no reason to count it as staying.
    if same and before.phase is Phase.LEAVING and not unmarked:
        return before
    return Placement(Phase.BOUND, pod.node, _start(pod), devices)
