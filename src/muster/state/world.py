"""One picture of the cluster: pods, nodes, gangs, queues, and who is placed where.

The only mutation of a cycle is `move`: a pod gets another placement, and every figure that follows from it (node columns, device
slots, queue usage) changes with it. Undo is the move back. Facts (pods, nodes, gangs) change between cycles, by the store alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.model.budget import Budget
from muster.model.devices import Slot
from muster.model.effects import Condition, GroupStatus, QueueStatus, Verdict
from muster.model.events import Namespace
from muster.model.gang import Gang
from muster.model.node import Node
from muster.model.pod import CLAIMS, GOING, UNPLACED, UNSEATED, ClaimNote, Phase, Placement, Pod
from muster.model.queue import Queue
from muster.model.topology import DomainSpec
from muster.state.columns import Amounts, Columns
from muster.state.ledger import Ledger
from muster.state.queues import QueueTree
from muster.state.storage import Storage
from muster.state.table import NodeTable

# Past this many remembered moves, what is derived from placements is worked out anew.
_LONGEST_LOG = 400_000
_HELD = frozenset({Phase.HELD})
_STANDING = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND})
"""Phases in which a pod counts for the same everywhere: on its node and in its queue."""


@dataclass(frozen=True, slots=True)
class Member:
    """How a pod takes part: in which gang and role, charged to which queue."""

    gang: str
    role: str
    queue: str
    preemptible: bool = True


@dataclass(slots=True)
class Attempts:
    """What is remembered of a gang's attempts: how many, and why the last one was refused."""

    count: int = 0
    verdict: Verdict | None = None
    versions: tuple[int, ...] = ()
    """Of what the verdict's `wakes` name, when it was given."""
    tried_at: float = 0.0
    said: tuple[str, str] | None = None
    """Code and sentence of the condition last written."""
    complaint: str = ""
    """What was last said to be wrong with the gang's objects."""
    started: float | None = None
    """When it was first attempted."""
    enqueued: bool = False
    """True once its minimum resources were found to fit."""
    kept_out: bool = False
    """True while they were found not to."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which disruption budget would not let a pod go, or none in particular, and when."""

    budget: str
    at: float


@dataclass(frozen=True, slots=True)
class PlanNote:
    """A plan under way: for which gang, how many claims, who leaves for it, and since when."""

    gang: str
    size: int
    victims: tuple[str, ...]
    since: float
    soft: bool = False
    """Those who leave were only asked to: it can be taken back."""
    left_at: float = 0.0
    """By when the last of those who leave should be gone, as far as is known."""


@dataclass(frozen=True, slots=True)
class Redeemed:
    """A claim whose bind is under way: the pod goes back to it if that fails."""

    claim: Placement
    plan: PlanNote | None


@dataclass(frozen=True, slots=True)
class Step:
    """One move in the journal: which pod, what it had before, and why it moved."""

    pod: Pod
    before: Placement
    why: str
    cause: str
    for_gang: str = ""


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.cycle = 0
        self.decided_at = -1.0
        """The time of the last cycle."""
        self.columns = Columns()
        self.table = NodeTable(self.columns)
        self.ledger = Ledger(self.columns)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """Live pods: ours, and others' that stand on a node. Finished pods are no longer here."""
        self.placements: dict[str, Placement] = {}
        self.on_node: dict[str, dict[str, Pod]] = {}
        self.members: dict[str, Member] = {}
        self.gangs: dict[str, Gang] = {}
        self.unseated: dict[str, int] = {}
        """How many members of a gang still wait for a seat that is theirs, for the gangs that have any."""
        self.claims: dict[str, None] = {}
        """Pods that are held or nominated. Their order here is an accident of what was tried: sort before it can show."""
        self.held: dict[str, None] = {}
        """Those of them that are held."""
        self.going: dict[str, None] = {}
        """Pods that are leaving or overdue."""
        self.awaited: dict[str, None] = {}
        """Gangs of which only the PodGroup exists so far."""
        self.queues: dict[str, Queue] = {}
        self.tree = QueueTree({})
        self.in_queue: dict[str, dict[str, None]] = {}
        """The gangs with a role in each queue that has any."""
        self.namespaces: dict[str, Namespace] = {}
        self.domains: dict[str, DomainSpec] = {}
        self.storage = Storage()
        self.budgets: dict[str, Budget] = {}
        self.plans: dict[str, PlanNote] = {}
        """Plans whose claims are not all redeemed or ended, by name."""
        self.standing: dict[str, float] = {}
        """Since when gangs have had a nomination, when the last cycle ended: their wait time stands still."""
        self.redeemed: dict[str, Redeemed] = {}
        """Claims that are being bound, until the API server shows the pod on its node."""
        self.notes: dict[str, ClaimNote] = {}
        """Claims found on pods when they were first seen, to be judged by the next cycle."""
        self.unwritten: dict[str, str] = {}
        """Claims that could not be written and why, until the next cycle ends them."""
        self.marked: dict[str, None] = {}
        """Pods that were told they timed out, until their objects say so themselves."""
        self.touched: dict[str, None] = {}
        """Gangs that something happened to since their status was last looked at."""
        self.attempts: dict[str, Attempts] = {}
        self.statuses: dict[str, GroupStatus] = {}
        """The status last written for each PodGroup."""
        self.queue_statuses: dict[str, QueueStatus] = {}
        """The status last written for each queue."""
        self.domain_conditions: dict[str, Condition] = {}
        """The condition last written for each HyperNode with which something is wrong."""
        self.queue_conditions: dict[str, Condition] = {}
        """The condition last written for each queue that has one."""
        self.versions: dict[str, int] = {}
        self.journal: list[Step] = []
        self.moves: list[str] = []
        """UIDs of the pods that moved, in order, undone moves included; `moves_start` counts those that were forgotten. What is
        derived from placements follows this, and looks each pod's placement up."""
        self.moves_start = 0
        self.regrouped: list[str] = []
        """Keys of the gangs that were made, changed or disbanded, in order; `regrouped_start` counts those that were forgotten."""
        self.regrouped_start = 0
        self.refused: dict[str, Refusal] = {}
        """Pods whose eviction was refused: not asked again before the budget changes that refused it, or for a while."""
        self.spared: dict[str, float] = {}
        """Pods whose soft eviction was taken back and when, until their objects show it."""
        self.faulty: dict[str, dict[str, str]] = {}
        """What is wrong with a node's own fields and with its list of devices, where something is."""
        self.faults_told: dict[str, str] = {}
        self.memo: dict[object, object] = {}
        """Columns derived from the table, kept by the engine between cycles. Never a fact of its own."""

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def placement(self, pod: Pod) -> Placement:
        return self.placements.get(pod.uid, UNPLACED)

    def phase(self, pod: Pod) -> Phase:
        placement = self.placements.get(pod.uid)
        return Phase.PENDING if placement is None else placement.phase

    def request(self, pod: Pod) -> Amounts:
        return self.columns.vector(pod.kind.request)

    def gang_of(self, pod: Pod) -> Gang | None:
        member = self.members.get(pod.uid)
        return None if member is None else self.gangs.get(member.gang)

    def version(self, wake: str) -> int:
        return self.versions.get(wake, 0)

    @property
    def moves_position(self) -> int:
        return self.moves_start + len(self.moves)

    def moved_since(self, position: int) -> list[str] | None:
        """Pods that moved since that position, or None when that is no longer known."""
        return None if position < self.moves_start else self.moves[position - self.moves_start :]

    def trim_logs(self) -> None:
        if len(self.moves) > _LONGEST_LOG:
            self.moves_start += len(self.moves)
            self.moves = []
        if len(self.regrouped) > _LONGEST_LOG:
            self.regrouped_start += len(self.regrouped)
            self.regrouped = []

    # -- changing: the store between cycles, trials within one ---------------------------------------------------------------------

    def wake(self, *things: str) -> None:
        """Something changed that a waiting gang may have been waiting for."""
        for thing in things:
            self.versions[thing] = self.versions.get(thing, 0) + 1

    def wake_queue(self, queue: str) -> None:
        """Something changed that gangs in this queue, or beside it below one of its ancestors, may have been waiting for."""
        self.wake(*self.ledger.path(queue))

    def move(self, pod: Pod, placement: Placement) -> Placement:
        """Give the pod another placement and return the one it had."""
        before = self.placements.get(pod.uid, UNPLACED)
        self.moves.append(pod.uid)
        member = self.members.get(pod.uid)
        if before.node == placement.node and before.phase in _STANDING and placement.phase in _STANDING:
            # It stays, only more firmly or less so, as everybody does whose bind is reported back: no amount changes.
            self.placements[pod.uid] = placement
            self.on_node[placement.node or ""][pod.uid] = pod
        else:
            self._carry(pod, before, placement, member)
        if before.phase is not placement.phase:
            self._regroup(pod.uid, before.phase, placement.phase)
        if member is not None:
            self.touched[member.gang] = None
            change = (placement.phase in UNSEATED) - (before.phase in UNSEATED)
            if change:
                self.count_unseated(member.gang, change)
        return before

    def _carry(self, pod: Pod, before: Placement, placement: Placement, member: Member | None) -> None:
        """Take what it asks for away from where it was counted, and count it where it is now."""
        amounts = self.columns.vector(pod.kind.request)
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
        del self.placements[pod.uid]
        here = self.on_node[node]
        del here[pod.uid]
        if not here:
            del self.on_node[node]
        row = self.table.row.get(node)
        if row is not None:
            self.table.add(row, amounts, phase=placement.phase, sign=-1)

    def _enter(self, pod: Pod, placement: Placement, amounts: Amounts) -> None:
        node = placement.node or ""
        self.placements[pod.uid] = placement
        self.on_node.setdefault(node, {})[pod.uid] = pod
        row = self.table.row.get(node)
        if row is not None:
            self.table.add(row, amounts, phase=placement.phase, sign=1)

    def _regroup(self, uid: str, before: Phase, after: Phase) -> None:
        for phases, pods in ((CLAIMS, self.claims), (_HELD, self.held), (GOING, self.going)):
            if after in phases:
                pods[uid] = None
            elif before in phases:
                pods.pop(uid, None)

    def move_many(
        self, pods: Sequence[Pod], nodes: Sequence[str], *, phase: Phase, devices: Sequence[tuple[Slot, ...]] | None = None
    ) -> None:
        """Give equal pods of one role, none of which is placed, a node each. The same as moving them one by one."""
        amounts = self.columns.vector(pods[0].kind.request)
        row = self.table.row
        self.table.add_many(np.array([row[node] for node in nodes], dtype=np.intp), amounts, phase=phase)
        made: dict[object, Placement] = {}
        for at, (pod, node) in enumerate(zip(pods, nodes, strict=True)):
            key = node if devices is None else (node, devices[at])
            placement = made.get(key)
            if placement is None:
                placement = made[key] = Placement(phase, node, self.now, () if devices is None else devices[at])
            self.placements[pod.uid] = placement
            self.on_node.setdefault(node, {})[pod.uid] = pod
            if phase in CLAIMS:
                self.claims[pod.uid] = None
            if phase is Phase.HELD:
                self.held[pod.uid] = None
        self.moves.extend([pod.uid for pod in pods])
        member = self.members[pods[0].uid]
        self.touched[member.gang] = None
        self.ledger.charge(member.queue, amounts, phase=phase, preemptible=member.preemptible, count=len(pods))
        if phase not in UNSEATED:
            self.count_unseated(member.gang, -len(pods))

    def count_unseated(self, gang: str, change: int) -> None:
        left = self.unseated.get(gang, 0) + change
        if left:
            self.unseated[gang] = left
        else:
            self.unseated.pop(gang, None)
