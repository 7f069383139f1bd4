"""Room: a pod goes only where every resource that it asks for is free."""

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
    """A pod goes only where every resource that it asks for is free.

    What was promised to somebody else is not free; what somebody is leaving is free for a nomination, not for a bind.
    """

    name: str = "fit"

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        column: BoolColumn = np.logical_and.reduce(rows.free >= _required_free(s, pod), axis=1)
        return column

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        """Nodes that could hold the pod if they were empty are full; others are too small."""
        least = _required_free(s, pod)
        small, full = rows.allocatable < least, rows.free < least
        is_small = small.any(axis=1)
        counts = [(count, "full", names) for names, count in _count_by_lacking(s, full[~is_small])]
        counts += [(count, "too small", names) for names, count in _count_by_lacking(s, small[is_small])]
        ordered = sorted(counts, key=lambda said: (-said[0], said[1:]))
        return ", ".join(f"{nodes(count)} {word} ({names})" for count, word, names in ordered)


def _count_by_lacking(s: Session, lacking: npt.NDArray[np.bool_]) -> Iterator[tuple[str, int]]:
    """The resources that rows lack, and how many rows lack exactly those."""
    columns = np.flatnonzero(lacking.any(axis=0))
    names = [short_name(s.world.columns.names[column]) for column in columns]
    bits = lacking[:, columns] @ (1 << np.arange(len(columns), dtype=np.int64))
    for code, count in zip(*(found.tolist() for found in np.unique(bits, return_counts=True)), strict=True):
        yield ", ".join(name for i, name in enumerate(names) if code >> i & 1), count


_LEAST: Derived[Amounts] = Derived("what must be free for a request", Topic.NODE_LAYOUT)


def _required_free(s: Session, pod: Pod) -> Amounts:
    """What must be free in each column; a column that the pod does not ask for may be overfull."""
    need = s.world.request(pod)
    return _LEAST.of(s.world, lambda: np.where(need > 0, need, _NOT_REQUESTED), key=pod.signature.request)
