"""What a queue may have beside the guarantees of the others: shared by the plugins that read guarantees."""

from __future__ import annotations

import numpy as np

from muster.engine.guarantees import guarantees
from muster.engine.quota import BY_QUEUE, QueueBounds, limits
from muster.engine.session import Session
from muster.engine.shares import cluster_total
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts
from muster.state.world import World

GUARANTEES_LABEL = "left by the guarantees of others"


def configured_row(world: World, amounts: Resources) -> Amounts:
    """Amounts as one row, in which zero means that nothing was configured."""
    world.columns.require(amounts)
    return world.columns.vector(amounts)


_BESIDE: Derived[QueueBounds] = Derived("bounds beside guarantees", *BY_QUEUE, Topic.ALLOCATABLE)


def guarantee_bounds(s: Session) -> QueueBounds:
    """For each queue: what its parent may have, without what is guaranteed to its siblings. A guarantee is not lent."""

    def build() -> QueueBounds:
        found = guarantees(s)
        if found is None:
            return QueueBounds(np.zeros((0, 0), dtype=np.int64), is_limited=False)
        return QueueBounds(found.left, bound_name=GUARANTEES_LABEL, topics=(Topic.FREE_CAPACITY.any,))

    return _BESIDE.of(s.world, build)


def real_capability(s: Session, queue: str) -> Amounts:
    """The tightest bound from the queue up to the root: its own limit, its ancestors' and what the cluster has."""
    rows = s.world.ledger.rows_up(queue)
    most: Amounts = np.minimum(limits(s.world).rows[rows].min(axis=0), cluster_total(s))
    guarantees = guarantee_bounds(s)
    return np.minimum(most, guarantees.rows[rows].min(axis=0)) if guarantees.is_limited else most
