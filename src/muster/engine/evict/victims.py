"""The victim table: all placed pods as columns, which a search for victims looks at. Follows the log of placements.

One row is one member that is bound, binding, reserved or nominated. Gangs are numbered; what is needed of a gang (its priority, its
minimum) is a column over gangs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import PREEMPTABLE, Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.world import World

_VICTIM_PHASES = frozenset({Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND})

_MAX_STALE_GANGS = 1000


POD_COLUMNS = (
    "alive",
    "row",
    "gang",
    "rank",
    "pod_priority",
    "phase",
    "since",
    "started",
    "saved",
    "restart_s",
    "run_s",
    "run_queue",
    "ours",
    "not_evictable",
    "non_preemptible",
    "request",
)
GANG_COLUMNS = ("gang_placed", "gang_priority", "gang_created", "gang_min", "gang_succeeded", "gang_per_pod", "gang_queue")


class VictimTable:
    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.index: dict[str, int] = {}
        self.last_index: dict[str, int] = {}
        """The rows of pods that were placed until this cycle. They are used again only in the next: what was made in this cycle
        still refers to them."""
        self._freed_this_cycle: list[int] = []
        self._cycle = -1
        self._free_rows: list[int] = []
        self._position = -1
        self._layout = -1
        self._seen: tuple[int, ...] = ()
        """The cycle and how far the logs were known when all of this was last brought up to date."""
        size = 1024
        self.alive: BoolColumn = np.zeros(size, dtype=np.bool_)
        self.row: RowIndex = np.full(size, -1, dtype=np.intp)
        self.gang: IntColumn = np.full(size, -1, dtype=np.int64)
        self.rank: IntColumn = np.zeros(size, dtype=np.int64)
        """Which member of its gang it is. Which row of this table a pod has is an accident, and decides nothing."""
        self._rank_of: dict[str, int] = {}
        self.pod_priority: IntColumn = np.zeros(size, dtype=np.int64)
        """The priority of the pod itself: it tells the members of one gang apart."""
        self.phase: npt.NDArray[np.int8] = np.zeros(size, dtype=np.int8)
        self.since: FloatColumn = np.zeros(size)
        self.started: FloatColumn = np.zeros(size)
        """When the pod started; infinite where its node has not said so yet."""
        self.saved: FloatColumn = np.zeros(size)
        """When the pod last saved its work, or started."""
        self.restart_s: FloatColumn = np.zeros(size)
        self.run_s: FloatColumn = np.zeros(size)
        """For how long the pod runs by what its owner declares or its gang's classes set; infinite where neither does."""
        self.run_queue: IntColumn = np.zeros(size, dtype=np.int64)
        """The queue whose run time counts as well; below zero where the owner declares it."""
        self.ours: BoolColumn = np.zeros(size, dtype=np.bool_)
        self.not_evictable: BoolColumn = np.zeros(size, dtype=np.bool_)
        """True for pods that may never be evicted."""
        self.non_preemptible: BoolColumn = np.zeros(size, dtype=np.bool_)
        """True for pods that are not preemptible in their quota."""
        self.request: Amounts = np.zeros((size, 0), dtype=np.int64)
        self.gangs: list[Gang] = []
        self.gang_number: dict[str, int] = {}
        self.gang_placed: IntColumn = np.zeros(size, dtype=np.int64)
        """How many rows it has. Those that nobody is placed of, or that are gone, are no victims."""
        self.gang_priority: IntColumn = np.zeros(size, dtype=np.int64)
        self.gang_created: FloatColumn = np.zeros(size)
        self.gang_min: IntColumn = np.zeros(size, dtype=np.int64)
        self.gang_succeeded: IntColumn = np.zeros(size, dtype=np.int64)
        self.gang_per_pod: BoolColumn = np.zeros(size, dtype=np.bool_)
        """Pods of these are evicted one by one: gangs that are scheduled pod by pod once they are running."""
        self.gang_queue: IntColumn = np.zeros(size, dtype=np.int64)
        self.queue_number: dict[str, int] = {}
        self.multi_queue: dict[int, frozenset[str]] = {}
        """Gangs whose roles are in several queues, and which."""
        self._gangs_position = -1
        self.generation = object()
        """Another object whenever the rows were numbered anew."""
        self._by_name: list[tuple[str, str, int]] = []
        """Full name, key and number of each gang, in order."""
        self._ranks: IntColumn | None = None

    def refresh(self, world: World) -> None:
        changes = world.changes
        at = (world.memory.cycle, changes.gangs.position, changes.placements.position, changes.version(Topic.NODE_LAYOUT))
        if self._seen == at:
            return
        self._seen = at
        if self._cycle != world.memory.cycle:
            self._cycle = world.memory.cycle
            self._free_rows.extend(self._freed_this_cycle)
            self._freed_this_cycle, self.last_index = [], {}
        self._update_gangs(world)
        log = world.changes.placements
        moved = log.since(self._position)
        width = len(world.columns.names)
        if moved is None or self._position < 0 or self.request.shape[1] != width:
            self._rebuild(world, width)
        else:
            for uid in dict.fromkeys(moved):
                self._update_pod(world, uid)
        self._position = log.position
        if self._layout != world.changes.version(Topic.NODE_LAYOUT):
            self._find_rows(world)

    def is_mostly_stale(self, world: World) -> bool:
        """Are most of its numbers those of gangs that are long gone? Between cycles no number is kept anywhere else."""
        return self._cycle != world.memory.cycle and len(self.gangs) > 2 * len(world.facts.gangs) + _MAX_STALE_GANGS

    # -- updates ---------------------------------------------------------------------------------------------------------------

    def _rebuild(self, world: World, width: int) -> None:
        self.pods, self.index, self.last_index, self._free_rows, self._freed_this_cycle = [], {}, {}, [], []
        self.generation = object()
        self.alive[:] = False
        self.gang_placed[:] = 0
        self.request = np.zeros((len(self.alive), width), dtype=np.int64)
        for uid in world.placements.by_uid:
            self._update_pod(world, uid)

    def _update_pod(self, world: World, uid: str) -> None:
        placement = world.placements.by_uid.get(uid)
        member = world.facts.members.get(uid)
        at = self.index.get(uid)
        if placement is None or member is None or placement.phase not in _VICTIM_PHASES or member.gang not in self.gang_number:
            if at is not None:
                self._remove_pod(uid, at)
            return
        pod = world.facts.pods[uid]
        number = self.gang_number[member.gang]
        if at is None:
            at = self._new_row(uid, pod)
        else:
            self.gang_placed[self.gang[at]] -= 1
        self.gang_placed[number] += 1
        self.pods[at] = pod
        self.alive[at] = True
        self.row[at] = world.table.row.get(placement.node or "", -1)
        self.gang[at] = number
        self.rank[at] = self._rank_of.get(uid, 0)
        self.pod_priority[at] = pod.priority
        self.phase[at] = placement.phase
        self.since[at] = placement.since
        self.started[at] = pod.started if pod.started is not None else np.inf
        self.saved[at] = pod.saved_at(placement.since)
        self.restart_s[at] = pod.restart_s
        self.ours[at] = pod.ours
        run_s = self.gangs[number].run_s if pod.run_s is None else pod.run_s
        self.run_s[at] = np.inf if run_s is None else run_s
        self.run_queue[at] = self.queue_number[member.queue] if pod.run_s is None else -1
        self.not_evictable[at] = bool(pod.protected) or is_protected(pod) or uid in world.memory.refused_evictions
        self.non_preemptible[at] = not member.preemptible
        self.request[at] = world.request(pod)

    def _remove_pod(self, uid: str, at: int) -> None:
        del self.index[uid]
        self.last_index[uid] = at
        self._freed_this_cycle.append(at)
        self.gang_placed[self.gang[at]] -= 1
        self.alive[at] = False

    def _new_row(self, uid: str, pod: Pod) -> int:
        if self._free_rows:
            at = self._free_rows.pop()
        else:
            at = len(self.pods)
            self.pods.append(pod)
            if at >= len(self.alive):
                self._grow(POD_COLUMNS)
        self.index[uid] = at
        return at

    def _grow(self, names: tuple[str, ...]) -> None:
        for name in names:
            old = getattr(self, name)
            new = np.zeros((2 * len(old), *old.shape[1:]), dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def _find_rows(self, world: World) -> None:
        for uid, at in self.index.items():
            self.row[at] = world.table.row.get(world.placements.by_uid[uid].node or "", -1)
        self._layout = world.changes.version(Topic.NODE_LAYOUT)

    def _update_gangs(self, world: World) -> None:
        """Gangs keep their number for ever; only those that came, changed or went are looked at."""
        changed = world.changes.gangs.since(self._gangs_position)
        if changed is None:
            changed = list(world.facts.gangs)
        if not changed:
            return
        concerned: dict[str, None] = {}
        for key in dict.fromkeys(changed):
            number = self.gang_number.get(key)
            for pod in self.gangs[number].pods() if number is not None else ():
                self._rank_of.pop(pod.uid, None)
                concerned[pod.uid] = None
        for key in dict.fromkeys(changed):
            gang = world.facts.gangs.get(key)
            if gang is not None:
                self._update_gang(key, world.memory.with_last_minimums(gang))
                for rank, pod in enumerate(gang.pods()):
                    self._rank_of[pod.uid] = rank
                    concerned[pod.uid] = None
        self._gangs_position = world.changes.gangs.position
        # A pod that changed gangs is placed for another one now, though it did not move.
        for uid in concerned if self._position >= 0 and self.request.shape[1] == len(world.columns.names) else ():
            if uid in self.index:
                self._update_pod(world, uid)

    def _update_gang(self, key: str, gang: Gang) -> None:
        number = self.gang_number.setdefault(key, len(self.gangs))
        if number == len(self.gangs):
            self.gangs.append(gang)
            self._rename(number, "", gang.full_name, key=key)
            if number >= len(self.gang_priority):
                self._grow(GANG_COLUMNS)
        self._rename(number, self.gangs[number].full_name, gang.full_name, key=key)
        self.gangs[number] = gang
        self.gang_priority[number] = gang.priority
        self.gang_created[number] = gang.created
        self.gang_min[number] = gang.min
        self.gang_succeeded[number] = sum(role.succeeded for role in gang.roles)
        self.gang_per_pod[number] = gang.match_policy is MatchPolicy.ONCE_SATISFIED
        queues = {role.queue for role in gang.roles}
        for queue in sorted({gang.queue, *queues}):
            self.queue_number.setdefault(queue, len(self.queue_number))
        self.gang_queue[number] = self.queue_number[gang.queue]
        if len(queues) > 1:
            self.multi_queue[number] = frozenset(queues)
        else:
            self.multi_queue.pop(number, None)

    def _rename(self, number: int, old: str, new: str, *, key: str) -> None:
        if old != new:
            if old:
                self._by_name.remove((old, key, number))
            insort(self._by_name, (new, key, number))
            self._ranks = None

    @property
    def is_placed(self) -> BoolColumn:
        """Gangs with members in the table; its numbers are also those of gangs that wait or are gone."""
        placed: BoolColumn = self.gang_placed[: len(self.gangs)] > 0
        return placed

    def placed_queues(self) -> list[str]:
        """Queues of these gangs."""
        numbers = set(np.unique(self.gang_queue[: len(self.gangs)][self.is_placed]).tolist())
        names = {queue for queue, number in self.queue_number.items() if number in numbers}
        return sorted(names.union(*(theirs for number, theirs in self.multi_queue.items() if self.gang_placed[number])))

    @property
    def gang_rank(self) -> IntColumn:
        """Position of each gang's name among all, so that names can break ties in columns."""
        if self._ranks is None:
            self._ranks = np.empty(len(self.gangs), dtype=np.int64)
            self._ranks[[entry[2] for entry in self._by_name]] = np.arange(len(self.gangs))
        return self._ranks


def mask_of(numbers: Sequence[int] | IntColumn, size: int) -> BoolColumn:
    """Which of the numbers below `size` are among these, as a column to look them up in."""
    column = np.zeros(size, dtype=np.bool_)
    column[numbers] = True
    return column


def is_protected(pod: Pod) -> bool:
    """Does its owner forbid its eviction? An annotation wins over a label; what is neither true nor false forbids."""
    value = pod.annotations.get(PREEMPTABLE, pod.labels.get(PREEMPTABLE, "true"))
    return value.lower() not in ("true", "1", "t") or pod.labels.get(PREEMPTIBLE_LABEL) == "false"


_VICTIM_TABLE: Derived[VictimTable] = Derived("victim table")
"""It follows three logs by itself."""


def victim_table_of(world: World) -> VictimTable:
    """The placed pods as they are now."""
    if (found := _VICTIM_TABLE.of(world, VictimTable)).is_mostly_stale(world):
        found.__init__()  # type: ignore[misc]
    found.refresh(world)
    return found
