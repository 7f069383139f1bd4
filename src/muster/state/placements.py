"""Who is placed where: each pod's placement, and every amount that follows from it (node columns, device slots, queue usage).

The only mutation is `move`: a pod gets another placement, and all amounts change with it. Undo is the move back. The store moves
pods between cycles, trials within one; nobody else does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.model.device import DeviceSlot
from muster.model.pod import NOT_PLACED, RELEASING, RESERVATIONS, UNPLACED, Phase, Placement, Pod
from muster.state.changes import Changes
from muster.state.derived_values import DerivedValues
from muster.state.facts import Member
from muster.state.ledger import Ledger
from muster.state.memory import MemoryStep
from muster.state.node_table import NodeTable
from muster.state.resource_columns import Amounts, Columns

_HELD = frozenset({Phase.RESERVED})
_STANDING = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND})
"""Phases in which a pod counts for the same everywhere: on its node and in its queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """One move in the journal: which pod, what it had before, and why it moved."""

    pod: Pod
    before: Placement
    why: str
    cause: str
    for_gang: str = ""


Journal = list[Step | MemoryStep[Any, Any]]
"""All moves of a cycle, and all that was remembered in it, in order."""


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
        """How many members of a gang still wait for a seat that is theirs, for the gangs that have any."""
        self.reservations: dict[str, None] = {}
        """Pods that are held or nominated. Their order here is an accident of what was tried: sort before it can show."""
        self.reserved: dict[str, None] = {}
        """Those of them that are held."""
        self.releasing: dict[str, None] = {}
        """Pods that are leaving or overdue."""
        self.journal: Journal = []

    def steps(self) -> list[Step]:
        """The moves of this cycle that were not undone, in order."""
        return [step for step in self.journal if isinstance(step, Step)]

    def forget_steps(self, cause: str) -> None:
        """Moves with this cause happened before the cycle began: what becomes of those pods in it is a change from there."""
        self.journal[:] = [step for step in self.journal if not isinstance(step, Step) or step.cause != cause]

    def clear_journal(self) -> None:
        """What was done so far is done: a cycle begins, or ends."""
        self.journal.clear()

    def move(self, pod: Pod, placement: Placement) -> Placement:
        """Give the pod another placement and return the one it had."""
        before = self.by_uid.get(pod.uid, UNPLACED)
        self.changes.placements.add(pod.uid)
        member = self._members.get(pod.uid)
        if before.node == placement.node and before.phase in _STANDING and placement.phase in _STANDING:
            # It stays, only more firmly or less so, as everybody does whose bind is reported back: no amount changes.
            self.by_uid[pod.uid] = placement
            self.on_node[placement.node or ""][pod.uid] = pod
        else:
            self._carry(pod, before, placement, member)
        if before.phase is not placement.phase:
            self._regroup(pod.uid, before.phase, placement.phase)
        if member is not None:
            change = (placement.phase in NOT_PLACED) - (before.phase in NOT_PLACED)
            if change:
                self.count_unplaced(member.gang, change)
        return before

    def _carry(self, pod: Pod, before: Placement, placement: Placement, member: Member | None) -> None:
        """Take what it asks for away from where it was counted, and count it where it is now."""
        amounts = self.columns.vector(pod.signature.request)
        if before.node is not None:
            self._leave(pod, before, amounts)
        if placement.node is not None:
            self._enter(pod, placement, amounts)
        if member is not None and before.phase is not placement.phase:
            charge = self.ledger.charge
            charge(member.queue, amounts, phase=before.phase, preemptible=member.preemptible, count=-1)
            charge(member.queue, amounts, phase=placement.phase, preemptible=member.preemptible, count=1)

    def _leave(self, pod: Pod, placement: Placement, amounts: Amounts) -> None:
        node = placement.node or ""
        del self.by_uid[pod.uid]
        here = self.on_node[node]
        del here[pod.uid]
        if not here:
            del self.on_node[node]
        row = self.table.row.get(node)
        if row is not None:
            self.table.add(row, amounts, phase=placement.phase, sign=-1)

    def _enter(self, pod: Pod, placement: Placement, amounts: Amounts) -> None:
        node = placement.node or ""
        self.by_uid[pod.uid] = placement
        self.on_node.setdefault(node, {})[pod.uid] = pod
        row = self.table.row.get(node)
        if row is not None:
            self.table.add(row, amounts, phase=placement.phase, sign=1)

    def _regroup(self, uid: str, before: Phase, after: Phase) -> None:
        for phases, pods in ((RESERVATIONS, self.reservations), (_HELD, self.reserved), (RELEASING, self.releasing)):
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
        if phase not in NOT_PLACED:
            self.count_unplaced(member.gang, -len(pods))

    def count_unplaced(self, gang: str, change: int) -> None:
        left = self.unplaced_members.get(gang, 0) + change
        if left:
            self.unplaced_members[gang] = left
        else:
            self.unplaced_members.pop(gang, None)
