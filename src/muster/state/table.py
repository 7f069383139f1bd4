"""Nodes as columns: what each can give and what is taken of it. Rows are sorted by name: the first of equals is the first by name.

`used` is what stands on a node now: held, binding, bound and leaving pods. `taken` is what will stand there once the releases
under way are done: leaving pods no longer, nominated pods already. A bind needs room in both; a nomination only in `taken`.
Only the world changes these figures. Row numbers are good until a node comes or goes; names are good for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from muster.model.node import Node
from muster.model.pod import Phase
from muster.model.selectors import Taint
from muster.state.columns import Amounts, Columns, widened

RowIndex = npt.NDArray[np.intp]
BoolColumn = npt.NDArray[np.bool_]
FloatColumn = npt.NDArray[np.float64]

COUNTS_IN_USED = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.LEAVING, Phase.OVERDUE})
COUNTS_IN_TAKEN = frozenset({Phase.NOMINATED, Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.OVERDUE})

# Past this many remembered changes every cached column is computed anew anyway.
_LONGEST_LOG = 200_000


class NodeTable:
    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.nodes: list[Node] = []
        self.names: list[str] = []
        self.row: dict[str, int] = {}
        self.allocatable: Amounts = np.zeros((0, len(columns.names)), dtype=np.int64)
        self.used: Amounts = self.allocatable.copy()
        self.taken: Amounts = self.allocatable.copy()
        self.layout = 0
        """Grows when rows or columns move or a node's labels, taints or devices change: cached columns are void then."""
        self.log: list[int] = []
        """Rows whose figures changed, in order; `log_start` counts those that were forgotten."""
        self.log_start = 0
        self._labels: dict[str, tuple[npt.NDArray[np.int32], dict[str, int]]] = {}
        self._taints: tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]] | None = None
        columns.on_widen(self._widen)

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, row: int, amounts: Amounts, *, phase: Phase, sign: int) -> None:
        """Count a pod in (sign 1) or out (sign -1) on one row."""
        if phase in COUNTS_IN_USED:
            self.used[row] += sign * amounts
        if phase in COUNTS_IN_TAKEN:
            self.taken[row] += sign * amounts
        self.log.append(row)

    def add_many(self, rows: RowIndex, amounts: Amounts, *, phase: Phase) -> None:
        """Count one equal pod in per entry of `rows`."""
        if phase in COUNTS_IN_USED:
            np.add.at(self.used, rows, amounts)
        if phase in COUNTS_IN_TAKEN:
            np.add.at(self.taken, rows, amounts)
        self.log.extend(rows.tolist())

    def changed_since(self, position: int) -> list[int] | None:
        """Rows changed since that position of the log, or None when that is no longer known."""
        if position < self.log_start:
            return None
        return self.log[position - self.log_start :]

    @property
    def position(self) -> int:
        return self.log_start + len(self.log)

    def trim_log(self) -> None:
        if len(self.log) > _LONGEST_LOG:
            self.log_start += len(self.log)
            self.log = []

    def replace(self, node: Node) -> bool:
        """Take over a node that is already a row. True if anything but the amounts changed."""
        row = self.row[node.name]
        before = self.nodes[row]
        self.nodes[row] = node
        if before.allocatable != node.allocatable:
            self.columns.require(node.allocatable)
            self.allocatable[row] = self.columns.vector(node.allocatable)
            self.log.append(row)
        changed = (before.labels, before.taints, before.unschedulable, before.devices) != (
            node.labels,
            node.taints,
            node.unschedulable,
            node.devices,
        )
        if changed:
            self._forget()
        return changed

    def lay_out(self, nodes: Mapping[str, Node], fresh: Mapping[str, tuple[Amounts, Amounts]]) -> None:
        """Rows for exactly these nodes, sorted. `fresh` has used and taken for those that have no row yet."""
        for node in nodes.values():
            self.columns.require(node.allocatable)
        names = sorted(nodes)
        used = np.zeros((len(names), len(self.columns.names)), dtype=np.int64)
        taken, allocatable = used.copy(), used.copy()
        for row, name in enumerate(names):
            old = self.row.get(name)
            used[row], taken[row] = (self.used[old], self.taken[old]) if old is not None else fresh[name]
            allocatable[row] = self.columns.vector(nodes[name].allocatable)
        self.names, self.nodes = names, [nodes[name] for name in names]
        self.row = {name: row for row, name in enumerate(names)}
        self.used, self.taken, self.allocatable = used, taken, allocatable
        self._forget()

    def lay_out_empty(self, nodes: Mapping[str, Node]) -> None:
        """Rows for these nodes as if nobody stood on them."""
        for node in nodes.values():
            self.columns.require(node.allocatable)
        nothing = np.zeros(len(self.columns.names), dtype=np.int64)
        self.lay_out(nodes, dict.fromkeys(nodes, (nothing, nothing)))

    def label_codes(self, key: str) -> tuple[npt.NDArray[np.int32], dict[str, int]]:
        """The values of one label as small numbers, -1 where a node does not have it, and what each value's number is."""
        found = self._labels.get(key)
        if found is None:
            codes: dict[str, int] = {}
            column = np.full(len(self.nodes), -1, dtype=np.int32)
            for row, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    column[row] = codes.setdefault(value, len(codes))
            found = self._labels[key] = (column, codes)
        return found

    def taint_codes(self) -> tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]]:
        """Which set of taints each node has, and the sets. An unschedulable node has that taint, written or not."""
        if self._taints is None:
            codes: dict[tuple[Taint, ...], int] = {}
            column = np.zeros(len(self.nodes), dtype=np.int32)
            for row, node in enumerate(self.nodes):
                column[row] = codes.setdefault(node.taints, len(codes))
            self._taints = (column, list(codes))
        return self._taints

    def _forget(self) -> None:
        self.layout += 1
        self.log_start += len(self.log)
        self.log = []
        self._labels.clear()
        self._taints = None

    def _widen(self, width: int) -> None:
        self.allocatable, self.used, self.taken = (widened(array, width) for array in (self.allocatable, self.used, self.taken))
        self._forget()


class Rows:
    """Some nodes, read-only: what a hook looks at and answers for, row by row.

    `soon` asks about the room after the releases under way. `extra` adds that many further pods of `request` to each row, so that
    a hook can be asked what it would say of a node after one, two, three more of them: a row may then stand here several times.
    """

    __slots__ = ("extra", "index", "request", "soon", "table")

    def __init__(
        self,
        table: NodeTable,
        index: RowIndex | None = None,
        *,
        soon: bool = False,
        extra: npt.NDArray[np.int64] | None = None,
        request: Amounts | None = None,
    ) -> None:
        self.table = table
        self.index = index
        self.soon = soon
        self.extra = extra
        self.request = request

    def __len__(self) -> int:
        return len(self.table.nodes) if self.index is None else len(self.index)

    @property
    def allocatable(self) -> Amounts:
        return self.table.allocatable if self.index is None else self.table.allocatable[self.index]

    @property
    def taken(self) -> Amounts:
        """What is or will be taken: what scores and shares look at."""
        return self._with_extra(self.table.taken if self.index is None else self.table.taken[self.index])

    @property
    def free(self) -> Amounts:
        """Room that one more pod may have: never what somebody else was promised."""
        table, index = self.table, self.index
        allocatable = table.allocatable if index is None else table.allocatable[index]
        taken = table.taken if index is None else table.taken[index]
        if not self.soon:
            taken = np.maximum(taken, table.used if index is None else table.used[index])
        return allocatable - self._with_extra(taken)

    @property
    def nodes(self) -> Sequence[Node]:
        if self.index is None:
            return self.table.nodes
        nodes = self.table.nodes
        return [nodes[row] for row in self.index.tolist()]

    def pick(self, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The entries of a column over all nodes that belong to these rows."""
        return column if self.index is None else column[self.index]

    def _with_extra(self, amounts: Amounts) -> Amounts:
        if self.extra is None or self.request is None:
            return amounts
        added: Amounts = amounts + self.extra[:, None] * self.request[None, :]
        return added


def rows_of(table: NodeTable, names: Iterable[str]) -> RowIndex:
    """The rows of these nodes, those that exist, in row order."""
    return np.array(sorted(table.row[name] for name in names if name in table.row), dtype=np.intp)
