"""What is known, event by event. `fold` takes a fact in; `world(now)` brings the picture of the cluster up to date for a cycle.

Events may come late, twice or out of order: the newer version of an object wins, and what is gone stays gone. A decision counts
from the moment it was made (a pod is BINDING before the API server knows); facts that arrive later confirm or correct it.
"""

from __future__ import annotations

from muster.model.events import BindFailed, Event, EvictFailed, Gone, Namespace, PriorityClass, Seen, Thing
from muster.model.gang import Gang, Group
from muster.model.node import Node
from muster.model.pod import GOING, UNPLACED, Phase, Placement, Pod
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from muster.model.topology import DomainSpec
from muster.state.columns import Amounts
from muster.state.gangs import GangBook
from muster.state.roster import Roster
from muster.state.table import COUNTS_IN_TAKEN, COUNTS_IN_USED
from muster.state.world import World

ROOM = "room"
HOLDS = "holds"

# Gone pods are remembered so that a late event cannot bring one back; older ones are forgotten.
_GRAVES = 200_000


class Store:
    def __init__(self, *, default_wait_s: float = 600.0) -> None:
        self._world = World()
        self._book = GangBook(default_wait_s=default_wait_s)
        self._roster = Roster(self._world)
        self._seen: dict[str, Pod] = {}
        self._graves: dict[str, None] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._rows_stale = False
        self._queues_stale = True

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
            case EvictFailed(uid=uid):
                self._stay(uid)

    def world(self, now: float) -> World:
        """The picture for a cycle at this time: rows laid out, touched gangs made anew."""
        world = self._world
        world.now = now
        if self._rows_stale:
            self._lay_out_rows()
        gangs, gone = self._book.assemble()
        if self._queues_stale or any(role.queue not in world.ledger for g in gangs.values() for role in g.roles):
            self._lay_out_queues(gangs)
        for key in gone:
            self._roster.disband(key)
        for gang in gangs.values():
            self._roster.enlist(gang)
        world.table.trim_log()
        world.trim_moves()
        return world

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _see_pod(self, pod: Pod) -> None:
        known = self._seen.get(pod.uid)
        if pod.uid in self._graves or (known is not None and pod.version <= known.version and pod.version):
            return
        self._seen[pod.uid] = pod
        world = self._world
        before = world.placements.get(pod.uid, UNPLACED)
        after = _placement(pod, before)
        live = not pod.finished and (after is not UNPLACED or (pod.ours and pod.deleted_at is None))
        if known is not None and known.kind != pod.kind:
            # Resized in place: what it took under its old request is given back under that.
            world.move(known, UNPLACED)
            self._roster.dismiss(known)
            before = UNPLACED
        if after != before:
            self._shift(pod, before, after)
        elif before.node is not None:
            world.on_node[before.node][pod.uid] = pod
        if known is None and pod.claim is not None and pod.ours:
            world.notes[pod.uid] = pod.claim
        if pod.timed_out:
            world.marked.pop(pod.uid, None)
        if live:
            world.pods[pod.uid] = pod
        elif known is not None:
            world.pods.pop(pod.uid, None)
            self._roster.dismiss(pod)
        if pod.ours:
            self._book.put_pod(pod)

    def _shift(self, pod: Pod, before: Placement, after: Placement) -> None:
        self._world.move(pod, after)
        if before.node is not None and (after.node != before.node or after.phase in GOING):
            self._world.wake(ROOM)

    def _lose_pod(self, uid: str) -> None:
        self._bury(uid)
        pod = self._seen.pop(uid, None)
        if pod is None:
            return
        if uid in self._world.placements:
            self._world.move(pod, UNPLACED)
            self._world.wake(ROOM)
        self._world.pods.pop(uid, None)
        self._world.marked.pop(uid, None)
        self._world.notes.pop(uid, None)
        self._roster.dismiss(pod)
        self._book.drop_pod(uid)

    def _bury(self, uid: str) -> None:
        self._graves[uid] = None
        if len(self._graves) > _GRAVES:
            for old in list(self._graves)[: _GRAVES // 2]:
                del self._graves[old]

    def _take_back(self, uid: str, node: str) -> None:
        """A bind failed: the pod is unplaced again, and only that pod."""
        pod = self._world.pods.get(uid)
        if pod is None:
            return
        placement = self._world.placement(pod)
        if placement.phase is Phase.BINDING and placement.node == node:
            self._world.move(pod, UNPLACED)
            self._world.wake(ROOM)
            self._touch(uid)

    def _stay(self, uid: str) -> None:
        """An eviction was refused: the pod is still there, and stays."""
        pod = self._world.pods.get(uid)
        if pod is None or pod.deleted_at is not None:
            return
        placement = self._world.placement(pod)
        if placement.phase is Phase.LEAVING:
            self._world.move(pod, Placement(Phase.BOUND, placement.node, _start(pod), placement.devices))

    def _touch(self, uid: str) -> None:
        """The gang of this pod is worth another attempt."""
        member = self._world.members.get(uid)
        if member is not None and (memory := self._world.attempts.get(member.gang)) is not None:
            memory.verdict = None

    # -- everything else -------------------------------------------------------------------------------------------------------

    def _see(self, thing: Thing) -> None:
        key = (type(thing).__name__, thing.key if isinstance(thing, Group | Queue) else thing.name)
        if thing.version and thing.version <= self._versions.get(key, -1):
            return
        self._versions[key] = thing.version
        world = self._world
        match thing:
            case Node():
                self._see_node(thing)
            case Group():
                self._book.put_group(thing)
            case PriorityClass():
                self._book.put_class(thing)
            case Queue():
                world.queues[thing.key] = thing
                self._queues_stale = True
                world.wake(thing.key)
            case Namespace():
                world.namespaces[thing.name] = thing
                world.wake(ROOM)
            case DomainSpec():
                world.domains[thing.name] = thing
                world.wake(ROOM)

    def _see_node(self, node: Node) -> None:
        world = self._world
        known = world.nodes.get(node.name)
        world.nodes[node.name] = node
        if known is None:
            self._rows_stale = True
        elif not self._rows_stale:
            if not world.table.replace(node) and known.allocatable == node.allocatable:
                return
        world.wake(ROOM)

    def _lose(self, event: Gone) -> None:
        world = self._world
        key = (event.what, event.key)
        if event.version and event.version < self._versions.get(key, -1):
            return
        self._versions[key] = event.version
        match event.what:
            case "Node" if world.nodes.pop(event.key, None) is not None:
                self._rows_stale = True
                world.wake(ROOM)
            case "Group":
                self._book.drop_group(event.key)
            case "PriorityClass":
                self._book.drop_class(event.key)
            case "Queue" if world.queues.pop(event.key, None) is not None:
                self._queues_stale = True
                world.wake(event.key)
            case "Namespace":
                world.namespaces.pop(event.key, None)
            case "DomainSpec":
                world.domains.pop(event.key, None)

    # -- bringing the world up to date -----------------------------------------------------------------------------------------

    def _lay_out_rows(self) -> None:
        world = self._world
        fresh = {name: self._stands_on(name) for name in world.nodes if name not in world.table.row}
        world.table.lay_out(world.nodes, fresh)
        self._rows_stale = False

    def _stands_on(self, node: str) -> tuple[Amounts, Amounts]:
        """What the pods on a node without a row add up to: used and taken."""
        world = self._world
        here = world.on_node.get(node, {})
        for pod in here.values():
            world.columns.require(pod.kind.request)
        used = world.columns.vector(world.nodes[node].allocatable) * 0
        taken = used.copy()
        for uid, pod in here.items():
            phase = world.placements[uid].phase
            used += world.request(pod) * (phase in COUNTS_IN_USED)
            taken += world.request(pod) * (phase in COUNTS_IN_TAKEN)
        return used, taken

    def _lay_out_queues(self, gangs: dict[str, Gang]) -> None:
        """Rows for the queues there are, and for those that gangs name: all members are charged anew."""
        world = self._world
        parents = {key: queue.parent for key, queue in world.queues.items()}
        parents.setdefault(DEFAULT_QUEUE, "")
        for gang in (*world.gangs.values(), *gangs.values()):
            for role in gang.roles:
                parents.setdefault(role.queue, "")
        known = {key: parent if parent in parents else "" for key, parent in parents.items()}
        known.pop(ROOT_QUEUE, None)
        world.ledger.lay_out(known)
        self._roster.charge_all()
        self._queues_stale = False


def _start(pod: Pod) -> float:
    return pod.started if pod.started is not None else pod.created


def _placement(pod: Pod, before: Placement) -> Placement:
    """Where a pod stands, from what was seen of it and what was decided about it before."""
    if pod.finished:
        return UNPLACED
    if pod.node is None:
        return UNPLACED if pod.deleted_at is not None else before
    same = before.node == pod.node
    devices = before.devices if same else ()
    if pod.deleted_at is not None:
        if same and before.phase is Phase.OVERDUE:
            return before
        return Placement(Phase.LEAVING, pod.node, pod.deleted_at, devices)
    # Told to go, but the API server does not show it yet: that is no reason to count it as staying.
    if same and before.phase in (Phase.LEAVING, Phase.BOUND):
        return before
    return Placement(Phase.BOUND, pod.node, _start(pod), devices)
