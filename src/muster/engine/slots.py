"""How many more pods of one kind nodes could take by their figures alone, and what that means for domains.

These are bounds, never promises: no check lets more pods in than there are slots, but a check may let fewer in. A domain that lacks
slots need not be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from muster.engine.columns import COLUMNS, MOUNTING_COLUMNS, REFUSED
from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session
from muster.model.gang import Cell, MatchPolicy
from muster.model.pod import PROMISED, SEATED, Kind, Pod
from muster.model.topics import Topic
from muster.state.cells import seats_in
from muster.state.columns import Amounts
from muster.state.derived import Derived
from muster.state.domains import Domain
from muster.state.lifecycle import count, is_satisfied, phases_that_count
from muster.state.table import BoolColumn, RowIndex, Rows
from muster.state.world import World

Ints = npt.NDArray[np.int64]

# A pod that asks for nothing fits this often.
PLENTY = 1_000_000

# Of more kinds in one gang than this, the bounds look at the first only.
_MOST_KINDS = 8


# -- by node -----------------------------------------------------------------------------------------------------------------------


class Room(Enum):
    """Which room counts: what is free now, what will be once the releases under way are done, or all there is."""

    NOW = "now"
    SOON = "soon"
    EMPTY = "empty"


ROOM_FOR = {Purpose.ALLOCATE: Room.NOW, Purpose.NOMINATE: Room.SOON, Purpose.EVICT: Room.SOON, Purpose.ENQUEUE: Room.EMPTY}


class _KindSlots:
    """One column for one kind of pod, brought up to date row by row."""

    def __init__(self, s: Session, pod: Pod, room: Room) -> None:
        self.column: Ints = _slots_in(s, pod, room, None)

    def update(self, s: Session, pod: Pod, room: Room, changed: list[int]) -> None:
        if len(changed) > len(s.world.table) // 2:
            self.column = _slots_in(s, pod, room, None)
        else:
            index: RowIndex = np.array(sorted(set(changed)), dtype=np.intp)
            self.column[index] = _slots_in(s, pod, room, index)


def _slots_in(s: Session, pod: Pod, room: Room, index: RowIndex | None) -> Ints:
    columns = s.columns(pod, soon=room is not Room.NOW)
    value = columns.base if room is Room.EMPTY else columns.value
    found = fitting(_free(Rows(s.world.table, index, soon=columns.soon), room), s.world.request(pod))
    found[(value if index is None else value[index]) == REFUSED] = 0
    return found


_SLOTS: Derived[_KindSlots] = Derived("slots of a kind of pod", *COLUMNS.depends, follows=Topic.NODE_ROWS)
_MOUNTING_SLOTS: Derived[_KindSlots] = Derived(
    "slots of a kind of pod with volumes", *MOUNTING_COLUMNS.depends, follows=Topic.NODE_ROWS
)


def slots(s: Session, pod: Pod, room: Room) -> Ints:
    """How many further pods like this one each node could take, counting by the figures of the node alone. Never write into it."""
    derived = _MOUNTING_SLOTS if pod.kind.claims else _SLOTS
    found = derived.of(
        s.world,
        lambda: _KindSlots(s, pod, room),
        key=(s.policy, pod.kind.alone(), room),
        update=lambda kept, rows: kept.update(s, pod, room, rows),
    )
    return found.column


def _free(rows: Rows, room: Room) -> Amounts:
    return rows.allocatable if room is Room.EMPTY else rows.free


def fitting(free: Amounts, request: Amounts) -> Ints:
    """How often a request fits into each row of free amounts."""
    asked = np.flatnonzero(request)
    if not len(asked) or not len(free):
        return np.full(len(free), PLENTY, dtype=np.int64)
    found: Ints = (free[:, asked] // request[asked]).min(axis=1)
    return np.clip(found, 0, PLENTY)


# -- by domain ---------------------------------------------------------------------------------------------------------------------


class Spans:
    """Sums of columns by domain."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        self._count = len(domains)
        rows = [domain.rows for domain in domains if domain.rows is not None and len(domain.rows)]
        self._listed: RowIndex = np.array([at for at, d in enumerate(domains) if d.rows is not None and len(d.rows)], dtype=np.intp)
        self._whole: RowIndex = np.array([at for at, domain in enumerate(domains) if domain.rows is None], dtype=np.intp)
        self._flat: RowIndex = np.concatenate(rows) if rows else np.zeros(0, dtype=np.intp)
        self._starts: RowIndex = np.cumsum([0, *(len(some) for some in rows[:-1])])

    def sums(self, column: Amounts) -> Amounts:
        """The sum over each domain's nodes, of a column or of several side by side."""
        total: Amounts = np.zeros((self._count, *column.shape[1:]), dtype=np.int64)
        if len(self._listed):
            total[self._listed] = np.add.reduceat(column[self._flat], self._starts, axis=0)
        if len(self._whole):
            total[self._whole] = column.sum(axis=0)
        return total


class Figures(Protocol):
    """What bounds are counted from: slots of each node for a pod, and what is free on each."""

    def slots(self, pod: Pod) -> Ints: ...

    def free(self) -> Amounts: ...


@dataclass(frozen=True, slots=True)
class RoomFigures:
    """The figures as they stand, for one sort of room."""

    s: Session
    room: Room

    def slots(self, pod: Pod) -> Ints:
        return slots(self.s, pod, self.room)

    def free(self) -> Amounts:
        return _free(Rows(self.s.world.table, soon=self.room is not Room.NOW), self.room)


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each domain: `most` members of the ask that could find room, and whether the gang could have its minimum there."""

    most: Ints
    could: BoolColumn


def bounds(s: Session, ask: Ask, domains: Sequence[Domain], figures: Figures) -> Bounds:
    """What could be placed in each domain at best."""
    spans, nobody = Spans(domains), np.zeros(len(domains), dtype=np.int64)
    by_role: dict[str, Ints] = {}
    by_kind: dict[Kind, Ints] = {}
    counts: dict[Kind, int] = {}
    found = lots(s.world, ask.pods)
    for lot in found:
        kind = lot.pod.kind
        if kind not in by_kind:
            by_kind[kind] = spans.sums(figures.slots(lot.pod)) if len(by_kind) < _MOST_KINDS else nobody + PLENTY
        counts[kind] = counts.get(kind, 0) + lot.count
        by_role[lot.role] = by_role.get(lot.role, nobody) + np.minimum(by_kind[kind], lot.count)
    most = nobody
    for kind, count_of_kind in counts.items():
        most = most + np.minimum(by_kind[kind], count_of_kind)
    if len(by_kind) > 1:
        most = np.minimum(most, _together(s.world, found, spans, figures.free()))
    lacks = lacking(s.world, ask)
    could: BoolColumn = most >= lacks.total
    for role, need in lacks.roles.items():
        could &= by_role.get(role, nobody) >= need
    return Bounds(most, could)


def _together(world: World, found: Sequence[Lot], spans: Spans, free: Amounts) -> Ints:
    """How many of different pods could share what is free in each domain, were it all on one node: the smallest go first."""
    width = len(world.columns.names)
    requests = np.array([world.request(lot.pod) for lot in found], dtype=np.int64).reshape(len(found), width)
    each = np.repeat(requests, [lot.count for lot in found], axis=0)
    room = spans.sums(np.maximum(free, 0))
    most = np.full(len(room), len(each), dtype=np.int64)
    for column in np.flatnonzero(each.any(axis=0)).tolist():
        needed = np.cumsum(np.sort(each[:, column]))
        most = np.minimum(most, np.searchsorted(needed, room[:, column], side="right"))
    return most


# -- what is asked for -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lot:
    """Equal members of one role."""

    pod: Pod
    role: str
    count: int


def lots(world: World, pods: Sequence[Pod]) -> list[Lot]:
    counts: dict[tuple[str, Kind], int] = {}
    first: dict[tuple[str, Kind], Pod] = {}
    for pod in pods:
        key = (world.facts.members[pod.uid].role, pod.kind)
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, pod)
    return [Lot(first[key], key[0], found) for key, found in counts.items()]


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a gang lacks for its minimum: by role, and in all."""

    roles: Mapping[str, int]
    total: int


def lacking(world: World, ask: Ask) -> Lacking:
    """What the ask must bring so that the gang has its minimum. An ask that does not say needs all of its pods."""
    if ask.cell is not None:
        return Lacking({}, ask.cell.min - seats_in(world, ask.cell) - _still_to_come(world, ask, ask.cell))
    if ask.needed is None:
        counted: dict[str, int] = {}
        for pod in ask.pods:
            role = world.facts.members[pod.uid].role
            counted[role] = counted.get(role, 0) + 1
        return Lacking(counted, len(ask.pods))
    gang = ask.gang
    if ask.needed == 0 or (gang.match is MatchPolicy.ONCE_SATISFIED and is_satisfied(world, gang)):
        return Lacking({}, 0)
    phases = phases_that_count(world, gang, SEATED if ask.purpose is Purpose.ALLOCATE else PROMISED)
    have = {role.name: count(world, role, phases) + role.succeeded for role in gang.roles}
    roles = {role.name: role.min - have[role.name] for role in gang.roles if role.min > have[role.name]}
    return Lacking(roles, gang.min - sum(have.values()))


def _still_to_come(world: World, ask: Ask, cell: Cell) -> int:
    """Members of the cell that a plan places after these: one kind after the other, and it counts only if all find room."""
    if ask.purpose is Purpose.ALLOCATE:
        return 0
    asked = {pod.uid for pod in ask.pods}
    return sum(uid not in asked and uid not in world.placements.by_uid for uid in cell.members)
