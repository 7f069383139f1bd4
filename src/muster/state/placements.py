"""Placements: the node and phase of each pod, and every amount that follows (node columns, queue usage, indexes by phase).

The only mutation is `move`: a pod gets another placement, and all amounts change with it. Undo is the move back. The store moves
pods between cycles, trials within one; nobody else does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.model.device import DeviceSlot
from muster.model.pod import RELEASING, RESERVATIONS, UNBOUND, UNPLACED, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.changes import Changes
from muster.state.derived_values import DerivedValues
from muster.state.facts import Member
from muster.state.journaled_dict import MemoryStep
from muster.state.ledger import Ledger
from muster.state.node_table import NodeTable
from muster.state.reserve_pods import ReservePod
from muster.state.resource_columns import Amounts, Columns

_RESERVED = frozenset({Phase.RESERVED})
_EQUAL_CHARGE = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND})
"""Phases in which a pod counts for the same everywhere: on its node and in its queue."""

_SETTLED_BY: dict[Phase, tuple[Topic, ...]] = {
    Phase.BINDING: (Topic.POD_PLACED,),
    Phase.RESERVED: (Topic.RESERVATIONS, Topic.POD_PLACED),
    Phase.NOMINATED: (Topic.POD_PLACED,),
    Phase.TERMINATING: (Topic.RELEASING,),
}
"""Topics that change when a cycle decides on a phase."""


@dataclass(frozen=True, slots=True)
class Step:
    """One move in the journal: which pod, what it had before, and why it moved."""

    pod: Pod
    before: Placement
    why: str
    cause: str
    for_gang: str = ""


Journal = list[Step | MemoryStep[Any, Any]]
"""All moves of a cycle, and all writes to memory, in order."""


@dataclass(frozen=True, slots=True)
class NetChange:
    """What a cycle decided about one pod: what it had when the cycle began, what it has now, and the last move on the way."""

    before: Placement
    now: Placement
    step: Step


class Placements:
    def __init__(self, changes: Changes, derived: DerivedValues, members: Mapping[str, Member]) -> None:
        self.changes = changes
        self._members = members
        self.columns = Columns()
        self.table = NodeTable(self.columns, changes, derived)
        self.ledger = Ledger(self.columns, changes)
        self.by_uid: dict[str, Placement] = {}
        self.on_node: dict[str, dict[str, Pod]] = {}
        self.unplaced_members: dict[str, int] = {}
        """How many members of a gang have no node yet, or only a nomination, for the gangs that have any."""
        self.reservations: dict[str, None] = {}
        """Pods that are reserved or nominated. Their order depends on what was tried: sort before it can show."""
        self.reserved: dict[str, None] = {}
        """Those of them that are reserved."""
        self.releasing: dict[str, None] = {}
        """Pods that are terminating or overdue."""
        self.reserve_pods: dict[str, ReservePod] = {}
        """What keeps capacity for pods that were moved."""
        self.journal: Journal = []

    def copied(self) -> Placements:
        """To read while these change: by pod and by phase, and the node columns; neither ledger nor journal."""
        made = copy(self)
        made.table, made.by_uid = self.table.copied(), self.by_uid.copy()
        made.releasing, made.reservations = self.releasing.copy(), self.reservations.copy()
        made.unplaced_members = self.unplaced_members.copy()
        return made

    def steps(self) -> list[Step]:
        """The moves of this cycle that were not undone, in order."""
        return [step for step in self.journal if isinstance(step, Step)]

    def settle(self) -> list[NetChange]:
        """What the cycle decided, pod by pod in the order of the first moves. From now on it counts as settled."""
        first: dict[str, Step] = {}
        last: dict[str, Step] = {}
        for step in self.steps():
            first.setdefault(step.pod.uid, step)
            last[step.pod.uid] = step
        found = [NetChange(step.before, self.by_uid.get(uid, UNPLACED), last[uid]) for uid, step in first.items()]
        changed = [change for change in found if change.now != change.before]
        for change in changed:
            self._bump(change)
        return changed

    def _bump(self, change: NetChange) -> None:
        bump, before, now = self.changes.bump, change.before, change.now
        member = self.charged(change.step.pod)
        if member is not None:
            if before.node is None:
                bump(Topic.QUEUE_USAGE)
            else:
                self.queue_capacity_freed(member.queue)
        for topic in _SETTLED_BY.get(now.phase, ()):
            bump(topic)
        if now.phase is Phase.PENDING and (before.phase in RESERVATIONS or before.phase is Phase.MOVING):
            bump(Topic.FREE_CAPACITY)

    def capacity_freed(self, uid: str, *topics: Topic) -> None:
        """A pod left its node, or is about to: that node and the pod's queues have more free capacity, or will have."""
        for topic in topics:
            self.changes.bump(topic)
        if (member := self._members.get(uid)) is not None:
            self.queue_capacity_freed(member.queue)

    def queue_capacity_freed(self, queue: str) -> None:
        """Usage of a queue fell: gangs that wait in it, or beside it below one of its ancestors, may have been waiting for that."""
        self.changes.bump(Topic.QUEUE_CAPACITY, self.ledger.path(queue))

    def forget_steps(self, cause: str) -> None:
        """Moves with this cause happened before the cycle began: what becomes of those pods in it is a change from there."""
        self.journal[:] = [step for step in self.journal if not isinstance(step, Step) or step.cause != cause]

    def clear_journal(self) -> None:
        """Nothing so far can be undone any more: a cycle begins, or ends."""
        self.journal.clear()

    def move(self, pod: Pod, placement: Placement) -> Placement:
        """Give the pod another placement and return the one it had."""
        before = self.by_uid.get(pod.uid, UNPLACED)
        self.changes.placements.add(pod.uid)
        member = self._members.get(pod.uid)
        if before.node == placement.node and before.phase in _EQUAL_CHARGE and placement.phase in _EQUAL_CHARGE:
            # Only the phase changes, as when a bind is reported back: no amount does.
            self.by_uid[pod.uid] = placement
            self.on_node[placement.node or ""][pod.uid] = pod
        else:
            self._move_charge(pod, before, placement, member or self.charged(pod))
        if before.phase is not placement.phase:
            self._index_phase(pod, before.phase, placement.phase)
        if member is not None:
            change = (placement.phase in UNBOUND) - (before.phase in UNBOUND)
            if change:
                self.count_unplaced(member.gang, change)
        return before

    def replace_pod(self, pod: Pod, *, relabelled: bool) -> None:
        """The pod stays where it is, and its object is another one now."""
        self.on_node[self.by_uid[pod.uid].node or ""][pod.uid] = pod
        if relabelled:
            # Selectors of other pods may match it now, or no longer.
            self.changes.placements.add(pod.uid)
            self.changes.bump(Topic.FREE_CAPACITY)

    def _move_charge(self, pod: Pod, before: Placement, placement: Placement, member: Member | None) -> None:
        """Move its request from where it was counted to where it is now."""
        amounts = self.columns.vector(pod.signature.request)
        if before.node == placement.node and placement.node is not None:
            self.by_uid[pod.uid] = placement
            self.on_node[placement.node][pod.uid] = pod
            self._count_on_node(before.node, amounts, before=before.phase, now=placement.phase)
        else:
            if before.node is not None:
                self._remove_from_node(pod, before.node)
            if placement.node is not None:
                self.by_uid[pod.uid] = placement
                self.on_node.setdefault(placement.node, {})[pod.uid] = pod
            self._count_on_node(before.node, amounts, before=before.phase, now=Phase.PENDING)
            self._count_on_node(placement.node, amounts, before=Phase.PENDING, now=placement.phase)
        if member is not None and before.phase is not placement.phase:
            self.ledger.change_phase(
                member.queue, amounts, before=before.phase, now=placement.phase, preemptible=member.preemptible
            )

    def _remove_from_node(self, pod: Pod, node: str) -> None:
        del self.by_uid[pod.uid]
        here = self.on_node[node]
        del here[pod.uid]
        if not here:
            del self.on_node[node]

    def _count_on_node(self, node: str | None, amounts: Amounts, *, before: Phase, now: Phase) -> None:
        row = self.table.row.get(node) if node is not None else None
        if row is not None:
            self.table.change_phase(row, amounts, before=before, now=now)

    def charged(self, pod: Pod) -> Member | None:
        """The queue that it counts in. Reserve pods are no members of a gang."""
        return pod.member if isinstance(pod, ReservePod) else self._members.get(pod.uid)

    def _index_phase(self, pod: Pod, before: Phase, after: Phase) -> None:
        uid = pod.uid
        if isinstance(pod, ReservePod):
            if after is Phase.MOVING:
                self.reserve_pods[uid] = pod
            else:
                del self.reserve_pods[uid]
        for phases, pods in ((RESERVATIONS, self.reservations), (_RESERVED, self.reserved), (RELEASING, self.releasing)):
            if after in phases:
                pods[uid] = None
            elif before in phases:
                pods.pop(uid, None)

    def move_many(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[str],
        *,
        phase: Phase,
        since: float,
        devices: Sequence[tuple[DeviceSlot, ...]] | None = None,
    ) -> None:
        """Give equal pods of one role, none of which is placed, a node each. The same as moving them one by one."""
        amounts = self.columns.vector(pods[0].signature.request)
        row = self.table.row
        self.table.add_many(np.array([row[node] for node in nodes], dtype=np.intp), amounts, phase=phase)
        made: dict[object, Placement] = {}
        for at, (pod, node) in enumerate(zip(pods, nodes, strict=True)):
            key = node if devices is None else (node, devices[at])
            placement = made.get(key)
            if placement is None:
                placement = made[key] = Placement(phase, node, since, () if devices is None else devices[at])
            self.by_uid[pod.uid] = placement
            self.on_node.setdefault(node, {})[pod.uid] = pod
            if phase in RESERVATIONS:
                self.reservations[pod.uid] = None
            if phase is Phase.RESERVED:
                self.reserved[pod.uid] = None
        self.changes.placements.extend([pod.uid for pod in pods])
        member = self._members[pods[0].uid]
        self.ledger.charge(member.queue, amounts, phase=phase, preemptible=member.preemptible, count=len(pods))
        if phase not in UNBOUND:
            self.count_unplaced(member.gang, -len(pods))

    def count_unplaced(self, gang: str, change: int) -> None:
        left = self.unplaced_members.get(gang, 0) + change
        if left:
            self.unplaced_members[gang] = left
        else:
            self.unplaced_members.pop(gang, None)
