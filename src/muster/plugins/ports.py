"""Host ports: two pods on one node cannot have the same port of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._select_rows import select_rows
from muster.state.derived.host_ports import HostPorts
from muster.state.derived.placement_counters import counter_of
from muster.state.node_table import BoolColumn, NodeRows

# So many rows are looked at one by one; beyond that all at once is cheaper.
_MAX_ONE_BY_ONE = 64


@dataclass(frozen=True)
class Ports:
    """A pod goes only where the host ports that it asks for are free.

    The same port, protocol and host address is taken once; a port taken on all addresses is taken on each. A bind needs it free of
    those who leave and of those who were promised the node; a claim only of those who will be there.
    """

    name: str = "ports"

    def applies_to(self, s: Session, pod: Pod) -> bool:
        return bool(pod.signature.ports)

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        # An equal pod has the same ports, so there is never room for two.
        free = np.ones(len(rows), dtype=np.bool_) if rows.extra is None or not pod.signature.ports else rows.extra == 0
        if not pod.signature.ports or not free.any():
            return free
        book, after_releases = counter_of(s.world, HostPorts), rows.after_releases
        for port in pod.signature.ports:
            if rows.index is None or len(rows) > _MAX_ONE_BY_ONE:
                free &= select_rows(rows, book.free(port, rows.table, after_releases=after_releases))
            else:
                free &= np.array(
                    [not book.is_taken(port, rows.table.names[row], after_releases=after_releases) for row in rows.index],
                    dtype=np.bool_,
                )
        return free

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        book = counter_of(s.world, HostPorts)
        taken = [
            f"{port.port}/{port.protocol}"
            for port in pod.signature.ports
            if not select_rows(rows, book.free(port, rows.table, after_releases=rows.after_releases)).all()
        ]
        return f"{nodes(len(rows))} with host port {', '.join(dict.fromkeys(taken))} in use"
