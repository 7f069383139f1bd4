"""Shares of the cluster: what there is to share, and how much of it a queue has. Fractions here, amounts everywhere else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from muster.engine.session import Session
from muster.model.resource_amounts import PODS, Resources
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

_TOTAL: Derived[Amounts] = Derived("cluster total", Topic.ALLOCATABLE)
_DIMENSIONS: Derived[list[tuple[int, int]]] = Derived("dimensions of shares", Topic.ALLOCATABLE)


def cluster_total(s: Session) -> Amounts:
    """What all nodes have together."""
    table = s.world.table
    return _TOTAL.of(s.world, lambda: np.asarray(table.allocatable.sum(axis=0), dtype=np.int64))


def total_for(s: Session, branches: Iterable[str]) -> Amounts:
    """What there is to share among these branches of the tree: all that the nodes have, without what others take of it."""
    world = s.world
    own = sum((world.ledger.planned(queue) for queue in branches), start=np.zeros(len(world.columns.names), dtype=np.int64))
    total: Amounts = np.maximum(cluster_total(s) - (world.table.planned.sum(axis=0) - own), 0)
    return total


def dimensions(s: Session) -> list[tuple[int, int]]:
    """The columns in which shares are counted and what the cluster has of each. The number of pods is none of them."""

    def find() -> list[tuple[int, int]]:
        pods = s.world.columns.position[PODS]
        return [(i, value) for i, value in enumerate(cluster_total(s).tolist()) if value > 0 and i != pods]

    return _DIMENSIONS.of(s.world, find)


def dominant_share(s: Session, queue: str, *, plus: Amounts | None = None) -> float:
    """The largest part of any resource of the cluster that the queue has, or would have with `plus` added."""
    ledger = s.world.ledger
    taken: list[int] = ledger.planned_list(queue) if plus is None else (ledger.planned(queue) + plus).tolist()
    share = 0.0
    for column, total in dimensions(s):
        part = taken[column] / total
        share = part if part > share else share
    return share


def over_deserved(s: Session, queue: str, deserved: Resources) -> Resources:
    """What the queue uses beyond what it deserves, where it deserves anything; all of it where it deserves nothing."""
    names, taken = s.world.columns.names, s.world.ledger.planned_list(queue)
    if not deserved:
        return Resources.of({names[column]: taken[column] for column, _ in dimensions(s) if taken[column] > 0})
    position = s.world.columns.position
    over = {name: taken[position[name]] - value for name, value in deserved.items if value}
    return Resources.of({name: value for name, value in over.items() if value > 0})
