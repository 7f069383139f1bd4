"""Host ports: two pods on one node cannot have the same port of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.state.derived.host_ports import HostPorts
from muster.state.derived.placement_counters import counter_of
from muster.state.node_table import BoolColumn, NodeRows

# So many rows are checked one by one; beyond that all at once is cheaper.
_MAX_ONE_BY_ONE = 64


@dataclass(frozen=True)
class Ports:
    """A pod is placed only where the host ports that it requests are free.

    A port, protocol and host address is used once; a port of all addresses is used on each. For a bind the ports of terminating
    and of nominated pods are in use; for a nomination those of terminating pods are free.
    """

    name: str = "ports"

    def applies_to(self, s: Session, pod: Pod) -> bool:
        return bool(pod.signature.ports)

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        # An equal pod has the same ports, so two never fit.
        free = np.ones(len(rows), dtype=np.bool_) if rows.extra is None or not pod.signature.ports else rows.extra == 0
        if not pod.signature.ports or not free.any():
            return free
        host_ports, after_releases = counter_of(s.world, HostPorts), rows.after_releases
        for port in pod.signature.ports:
            if rows.index is None or len(rows) > _MAX_ONE_BY_ONE:
                free &= rows.pick(host_ports.free(port, rows.table, after_releases=after_releases))
            else:
                free &= np.array(
                    [not host_ports.is_taken(port, rows.table.names[row], after_releases=after_releases) for row in rows.index],
                    dtype=np.bool_,
                )
        return free

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        host_ports = counter_of(s.world, HostPorts)
        in_use = [
            f"{port.port}/{port.protocol}"
            for port in pod.signature.ports
            if not rows.pick(host_ports.free(port, rows.table, after_releases=rows.after_releases)).all()
        ]
        return f"{nodes(len(rows))} with host port {', '.join(dict.fromkeys(in_use))} in use"
