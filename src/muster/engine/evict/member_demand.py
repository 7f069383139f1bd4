"""What an ask wants, kind by kind, and how many of a kind fit into some amounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.evict.victims import IntColumn
from muster.model.pod import Pod
from muster.state.node_table import RowIndex
from muster.state.resource_columns import Amounts


@dataclass(slots=True)
class MemberDemand:
    """Equal members of the ask: how many, and what each needs."""

    pods: list[Pod]
    request: Amounts
    requested: RowIndex
    rows: RowIndex
    node_amounts: NodeAmounts


def fits_in_rows(free: Amounts, demand: MemberDemand, rows: RowIndex) -> IntColumn:
    """How many further members of this kind each of these rows could take, by its figures alone."""
    counts = fits_in_amounts(free, demand)
    max_pods = demand.node_amounts.max_pods(free, rows, demand.pods[0].signature.devices)
    return counts if max_pods is None else np.minimum(counts, max_pods)


def fits_in_amounts(free: Amounts, demand: MemberDemand) -> IntColumn:
    """How often a member of this kind fits into each of these amounts."""
    if not len(free):
        return np.zeros(0, dtype=np.int64)
    counts: IntColumn = (free[:, demand.requested] // demand.request[demand.requested]).min(axis=1)
    return np.maximum(counts, 0)
