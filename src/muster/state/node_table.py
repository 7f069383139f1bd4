"""Nodes as columns: allocatable, used and planned amounts. Rows are sorted by name: the first of equals is the first by name.

`used` is what reserved, binding, bound and terminating pods use now. `planned` is what will be used once the releases
under way are done: without terminating pods, with nominated pods. A bind must fit both; a nomination only `planned`.
Only the world changes these amounts. Row numbers are good until a node comes or goes; names are good for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from muster.model.node import Node
from muster.model.pod import Phase
from muster.model.pod_constraints import Taint
from muster.model.topics import Topic
from muster.state.changes import Changes
from muster.state.derived_values import Derived, DerivedValues
from muster.state.resource_columns import Amounts, Columns, widened

RowIndex = npt.NDArray[np.intp]
BoolColumn = npt.NDArray[np.bool_]
FloatColumn = npt.NDArray[np.float64]
IntColumn = npt.NDArray[np.int64]
LabelCodes = tuple[npt.NDArray[np.int32], dict[str, int]]
TaintCodes = tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]]
Entry = TypeVar("Entry", bound=np.generic)

_LABEL_CODES: Derived[LabelCodes] = Derived("label codes", Topic.NODE_LAYOUT, Topic.NODE_LABELS)
_TAINT_CODES: Derived[TaintCodes] = Derived("taint codes", Topic.NODE_LAYOUT, Topic.NODE_TAINTS)

COUNTS_IN_USED = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING, Phase.OVERDUE})
COUNTS_IN_PLANNED = frozenset({Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.OVERDUE, Phase.MOVING})

_BUMPED_BY = {
    Topic.ALLOCATABLE: ("allocatable",),
    Topic.NODE_LABELS: ("labels",),
    Topic.NODE_TAINTS: ("taints", "unschedulable"),
    Topic.NODE_DEVICES: ("devices",),
}
"""What of a node each topic is about."""


class NodeTable:
    def __init__(self, columns: Columns, changes: Changes, derived: DerivedValues) -> None:
        self.columns = columns
        self.changes = changes
        self.derived = derived
        self.nodes: list[Node] = []
        self.names: list[str] = []
        self.row: dict[str, int] = {}
        self.allocatable: Amounts = np.zeros((0, len(columns.names)), dtype=np.int64, order="F")
        self.used: Amounts = self.allocatable.copy()
        self.planned: Amounts = self.allocatable.copy()
        columns.on_widen(self._widen)

    def __len__(self) -> int:
        return len(self.nodes)

    def copied(self) -> NodeTable:
        """To read while this one changes."""
        made = copy(self)
        made.nodes, made.used, made.planned, made.allocatable = (
            self.nodes.copy(),
            self.used.copy(),
            self.planned.copy(),
            self.allocatable.copy(),
        )
        return made

    def change_phase(self, row: int, amounts: Amounts, *, before: Phase, now: Phase) -> None:
        """Count a pod in another phase on one row; PENDING where it is not there."""
        for column, phases in ((self.used, COUNTS_IN_USED), (self.planned, COUNTS_IN_PLANNED)):
            if (now in phases) == (before in phases):
                continue
            if now in phases:
                column[row] += amounts
            else:
                column[row] -= amounts
        self.changes.rows.add(row)

    def add_many(self, rows: RowIndex, amounts: Amounts, *, phase: Phase) -> None:
        """Count one equal pod in per entry of `rows`."""
        if phase in COUNTS_IN_USED:
            np.add.at(self.used, rows, amounts)
        if phase in COUNTS_IN_PLANNED:
            np.add.at(self.planned, rows, amounts)
        self.changes.rows.extend(rows.tolist())

    def replace(self, node: Node) -> bool:
        """Take over a node that is already a row. True if anything changed that decides who may go there."""
        row = self.row[node.name]
        before = self.nodes[row]
        self.nodes[row] = node
        topics = [
            topic for topic, attributes in _BUMPED_BY.items() if any(getattr(before, a) != getattr(node, a) for a in attributes)
        ]
        for topic in topics:
            self.changes.bump(topic)
        if Topic.ALLOCATABLE in topics:
            self.columns.require(node.allocatable)
            self.allocatable[row] = self.columns.vector(node.allocatable)
            self.changes.rows.add(row)
        return bool(topics)

    def lay_out(self, nodes: Mapping[str, Node]) -> list[str]:
        """Rows for exactly these nodes, sorted. The names of those that had none: nothing is counted on them yet."""
        for node in nodes.values():
            self.columns.require(node.allocatable)
        names = sorted(nodes)
        # Filters and scores look at whole columns, one after the other.
        used = np.zeros((len(names), len(self.columns.names)), dtype=np.int64, order="F")
        planned, allocatable = used.copy(order="F"), used.copy(order="F")
        for row, name in enumerate(names):
            allocatable[row] = self.columns.vector(nodes[name].allocatable)
            if (old := self.row.get(name)) is not None:
                used[row], planned[row] = self.used[old], self.planned[old]
        fresh = [name for name in names if name not in self.row]
        self.names, self.nodes = names, [nodes[name] for name in names]
        self.row = {name: row for row, name in enumerate(names)}
        self.used, self.planned, self.allocatable = used, planned, allocatable
        self._laid_out()
        return fresh

    def mask(self, nodes: Iterable[str]) -> BoolColumn:
        """The rows of these nodes, as far as there are any, as a column."""
        column = np.zeros(len(self), dtype=np.bool_)
        column[[self.row[node] for node in nodes if node in self.row]] = True
        return column

    def label_codes(self, key: str) -> LabelCodes:
        """The values of one label as small numbers, -1 where a node does not have it, and what each value's number is."""
        return _LABEL_CODES.of(self, lambda: self._label_codes(key), key=key)

    def _label_codes(self, key: str) -> LabelCodes:
        codes: dict[str, int] = {}
        column = np.full(len(self.nodes), -1, dtype=np.int32)
        for row, node in enumerate(self.nodes):
            value = node.labels.get(key)
            if value is not None:
                column[row] = codes.setdefault(value, len(codes))
        return column, codes

    def taint_codes(self) -> TaintCodes:
        """Which set of taints each node has, and the sets."""
        return _TAINT_CODES.of(self, self._taint_codes)

    def _taint_codes(self) -> TaintCodes:
        codes: dict[tuple[Taint, ...], int] = {}
        column = np.zeros(len(self.nodes), dtype=np.int32)
        for row, node in enumerate(self.nodes):
            column[row] = codes.setdefault(node.taints, len(codes))
        return column, list(codes)

    def _widen(self, width: int) -> None:
        self.allocatable, self.used, self.planned = (
            np.asfortranarray(widened(array, width)) for array in (self.allocatable, self.used, self.planned)
        )
        self._laid_out()

    def _laid_out(self) -> None:
        """Rows or columns are others now: whatever follows row by row begins anew."""
        self.changes.bump(Topic.NODE_LAYOUT)
        self.changes.bump(Topic.ALLOCATABLE)
        self.changes.rows.drop()


class NodeRows:
    """Some nodes, read-only: what a hook looks at and answers for, row by row.

    `after_releases` looks at capacity after the releases under way. `extra` adds that many further pods of `request` to each row,
    so that a hook can score a node with one, two, three more of them: a row may then occur several times.
    """

    __slots__ = ("after_releases", "extra", "index", "request", "table")

    def __init__(
        self,
        table: NodeTable,
        index: RowIndex | None = None,
        *,
        after_releases: bool = False,
        extra: npt.NDArray[np.int64] | None = None,
        request: Amounts | None = None,
    ) -> None:
        self.table = table
        self.index = index
        self.after_releases = after_releases
        self.extra = extra
        self.request = request

    def __len__(self) -> int:
        return len(self.table.nodes) if self.index is None else len(self.index)

    @property
    def allocatable(self) -> Amounts:
        return self.table.allocatable if self.index is None else self.table.allocatable[self.index]

    @property
    def planned(self) -> Amounts:
        """What is or will be taken: what scores and shares look at."""
        return self._with_extra(self.table.planned if self.index is None else self.table.planned[self.index])

    @property
    def free(self) -> Amounts:
        """What one more pod may have: never what somebody else is nominated to."""
        table, index = self.table, self.index
        allocatable = table.allocatable if index is None else table.allocatable[index]
        taken = table.planned if index is None else table.planned[index]
        if not self.after_releases:
            taken = np.maximum(taken, table.used if index is None else table.used[index])
        return allocatable - self._with_extra(taken)

    @property
    def nodes(self) -> Sequence[Node]:
        if self.index is None:
            return self.table.nodes
        nodes = self.table.nodes
        return [nodes[row] for row in self.index.tolist()]

    @property
    def numbers(self) -> RowIndex:
        """The number of each of these rows in the table."""
        return np.arange(len(self.table.nodes)) if self.index is None else self.index

    def pick(self, column: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
        """The entries of a column over all nodes that belong to these rows."""
        return column if self.index is None else column[self.index]

    def _with_extra(self, amounts: Amounts) -> Amounts:
        if self.extra is None or self.request is None:
            return amounts
        added: Amounts = amounts + self.extra[:, None] * self.request[None, :]
        return added
