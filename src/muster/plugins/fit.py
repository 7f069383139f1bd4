"""Capacity: a pod is placed only where every resource that it requests is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import short_name
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.resource_columns import Amounts

_NOT_REQUESTED = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Fit:
    """A pod is placed only where every resource that it requests is free.

    What is nominated to others is not free. What is being released is free for a nomination, not for a bind.
    """

    name: str = "fit"

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        free, column = rows.free, np.ones(len(rows), dtype=np.bool_)
        # Column by column: many rows of few columns are slow to combine row by row.
        for at, amount in enumerate(s.world.request(pod).tolist()):
            if amount:
                column &= free[:, at] >= amount
        return column

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        """Nodes that fit the pod when empty are full; others are too small."""
        required = _required_free(s, pod)
        small, full = rows.allocatable < required, rows.free < required
        is_small = small.any(axis=1)
        counts = [(count, "full", names) for names, count in _count_by_lacking(s, full[~is_small])]
        counts += [(count, "too small", names) for names, count in _count_by_lacking(s, small[is_small])]
        ordered = sorted(counts, key=lambda each: (-each[0], each[1:]))
        return ", ".join(f"{nodes(count)} {state} ({names})" for count, state, names in ordered)


def _count_by_lacking(s: Session, lacking: npt.NDArray[np.bool_]) -> Iterator[tuple[str, int]]:
    """The resources that rows lack, and how many rows lack exactly those."""
    columns = np.flatnonzero(lacking.any(axis=0))
    names = [short_name(s.world.columns.names[column]) for column in columns]
    bits = lacking[:, columns] @ (1 << np.arange(len(columns), dtype=np.int64))
    for code, count in zip(*(found.tolist() for found in np.unique(bits, return_counts=True)), strict=True):
        # By name: the order of columns depends on who came first.
        yield ", ".join(sorted(name for i, name in enumerate(names) if code >> i & 1)), count


_REQUIRED: Derived[Amounts] = Derived("what must be free for a request", Topic.NODE_LAYOUT)


def _required_free(s: Session, pod: Pod) -> Amounts:
    """What must be free in each column; a column that the pod does not request may be overcommitted."""
    need = s.world.request(pod)
    return _REQUIRED.of(s.world, lambda: np.where(need > 0, need, _NOT_REQUESTED), key=pod.signature.request)
