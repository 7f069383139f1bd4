"""Host ports: two pods on one node cannot have the same port of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._rows import of_rows
from muster.state.follow import following
from muster.state.ports import HostPorts
from muster.state.table import BoolColumn, Rows

# So many rows are looked at one by one; beyond that all at once is cheaper.
_FEW = 64


@dataclass(frozen=True)
class Ports:
    """A pod goes only where the host ports that it asks for are free.

    The same port, protocol and host address is taken once; a port taken on all addresses is taken on each. A bind needs it free of
    those who leave and of those who were promised the node; a claim only of those who will be there.
    """

    name: str = "ports"

    def minds(self, s: Session, pod: Pod) -> bool:
        return bool(pod.kind.ports)

    def fit(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        # An equal pod has the same ports, so there is never room for two.
        free = np.ones(len(rows), dtype=np.bool_) if rows.extra is None or not pod.kind.ports else rows.extra == 0
        if not pod.kind.ports or not free.any():
            return free
        book, soon = following(s.world, HostPorts), rows.soon
        for port in pod.kind.ports:
            if rows.index is None or len(rows) > _FEW:
                free &= of_rows(rows, book.free(port, rows.table, soon=soon))
            else:
                free &= np.array([not book.is_taken(port, rows.table.names[row], soon=soon) for row in rows.index], dtype=np.bool_)
        return free

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        book = following(s.world, HostPorts)
        taken = [
            f"{port.port}/{port.protocol}"
            for port in pod.kind.ports
            if not of_rows(rows, book.free(port, rows.table, soon=rows.soon)).all()
        ]
        return f"{nodes(len(rows))} with host port {', '.join(dict.fromkeys(taken))} in use"
