"""Host ports in use on nodes, by the presence of the pods that use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.model.pod import Placement, Pod
from muster.model.pod_constraints import HostPort
from muster.state.derived.placement_counters import PRESENCES, PlacementCounter, any_present, presence_of
from muster.state.node_table import BoolColumn, NodeTable

_NOBODY = (0,) * PRESENCES
EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True, slots=True)
class _PortsInUse:
    ports: tuple[HostPort, ...]
    node: str
    presence: int


class HostPorts(PlacementCounter[_PortsInUse]):
    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[tuple[int, str], dict[str, dict[str, list[int]]]] = {}
        """By port and protocol, by address, by node: how many have it, by standing."""

    def is_taken(self, port: HostPort, node: str, *, after_releases: bool) -> bool:
        """Does a pod on this node use a port that conflicts with this one?"""
        return any(any_present(by_node.get(node, _NOBODY), after_releases=after_releases) for by_node in self._conflicting(port))

    def free(self, port: HostPort, table: NodeTable, *, after_releases: bool) -> BoolColumn:
        """All rows: where it is free."""
        column = np.ones(len(table), dtype=np.bool_)
        for by_node in self._conflicting(port):
            taken = [node for node, counts in by_node.items() if any_present(counts, after_releases=after_releases)]
            column[[table.row[node] for node in taken if node in table.row]] = False
        return column

    def _conflicting(self, port: HostPort) -> Iterator[dict[str, list[int]]]:
        for address, by_node in self._holders.get((port.port, port.protocol), {}).items():
            if address == port.ip or address in EVERY_ADDRESS or port.ip in EVERY_ADDRESS:
                yield by_node

    def entry(self, pod: Pod, node: str, placement: Placement) -> _PortsInUse | None:
        return _PortsInUse(pod.signature.ports, node, presence_of(placement)) if pod.signature.ports else None

    def count(self, entry: _PortsInUse, *, by: int) -> None:
        for port in entry.ports:
            by_address = self._holders.setdefault((port.port, port.protocol), {})
            by_node = by_address.setdefault(port.ip, {})
            counts = by_node.setdefault(entry.node, [0] * PRESENCES)
            counts[entry.presence] += by
            if not any(counts):
                del by_node[entry.node]
                if not by_node:
                    del by_address[port.ip]

    def figures(self) -> dict[object, object]:
        return {port: by_address for port, by_address in self._holders.items() if by_address}
