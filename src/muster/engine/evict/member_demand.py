"""What an ask requests, by pod signature, and how many such members fit into some amounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.fit_counts import count_fits
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.state.node_table import IntColumn, RowIndex
from muster.state.resource_columns import Amounts


@dataclass(slots=True)
class MemberDemand:
    """Equal members of the ask, what each requests, and the nodes of the domain that they match."""

    pods: list[Pod]
    request: Amounts
    requested: RowIndex
    rows: RowIndex
    node_amounts: NodeAmounts

    def fit_counts(self, free: Amounts) -> IntColumn:
        """How many further members every node could take, by its amounts alone; none where they do not match."""
        counts = np.zeros(len(free), dtype=np.int64)
        counts[self.rows] = fits_in_rows(free[self.rows], self, self.rows)
        return counts

    def missing(self, free: Amounts) -> int:
        """How many members fit on no node, by the amounts alone; negative where more would fit."""
        return len(self.pods) - int(fits_in_rows(free[self.rows], self, self.rows).sum())


def member_demands(s: Session, ask: Ask, domain: Domain, node_amounts: NodeAmounts) -> list[MemberDemand]:
    """The ask by pod signature, the largest first: small members find free capacity more easily."""
    inside = domain.mask(len(s.world.table))
    groups: dict[object, list[Pod]] = {}
    for pod in ask.pods:
        groups.setdefault(pod.signature, []).append(pod)
    demands = []
    for pods in groups.values():
        request = s.world.request(pods[0])
        rows = np.flatnonzero(inside & s.match(pods[0]))
        demands.append(MemberDemand(pods, request, np.flatnonzero(request), rows, node_amounts))
    capacity = np.maximum(s.world.table.allocatable.max(axis=0, initial=1), 1)
    return sorted(demands, key=lambda demand: -float((demand.request / capacity).max()))


def fits_in_rows(free: Amounts, demand: MemberDemand, rows: RowIndex) -> IntColumn:
    """How many further members each of these nodes could take, by its amounts alone."""
    counts = count_fits(free, demand.request)
    max_pods = demand.node_amounts.max_pods(free, rows, demand.pods[0].signature.devices)
    return counts if max_pods is None else np.minimum(counts, max_pods)
