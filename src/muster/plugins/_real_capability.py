"""What a queue may have beside the guarantees of the others: shared by the plugins that read guarantees."""

from __future__ import annotations

import numpy as np

from muster.engine.quota import BY_QUEUE, UNLIMITED, QueueBounds, limits
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
    return _BESIDE.of(s.world, lambda: _compute_guarantee_bounds(s.world, cluster_total(s)))


def _compute_guarantee_bounds(world: World, total: Amounts) -> QueueBounds:
    tree, row = world.facts.tree, world.ledger.row
    if not any(queue.guarantee for queue in tree.nodes.values()):
        return QueueBounds(np.zeros((0, 0), dtype=np.int64), is_limited=False)
    limit = limits(world).rows
    bound = np.full_like(limit, UNLIMITED)
    most = {"": total}
    branches = [""]
    for key in branches:
        children = tree.children.get(key, ())
        guarantees = [configured_row(world, tree.nodes[child].guarantee) for child in children]
        together = np.sum(guarantees, axis=0) if children else total
        for child, own in zip(children, guarantees, strict=True):
            others = together - own
            left = np.maximum(most[key] - others, 0)
            bound[row[child]] = np.where(others > 0, left, UNLIMITED)
            most[child] = np.minimum(limit[row[child]], left)
        branches.extend(children)
    return QueueBounds(bound, bound_name=GUARANTEES_LABEL, topics=(Topic.FREE_CAPACITY.any,))


def real_capability(s: Session, queue: str) -> Amounts:
    """The tightest bound from the queue up to the root: its own limit, its ancestors' and what the cluster has."""
    rows = s.world.ledger.rows_up(queue)
    most: Amounts = np.minimum(limits(s.world).rows[rows].min(axis=0), cluster_total(s))
    guarantees = guarantee_bounds(s)
    return np.minimum(most, guarantees.rows[rows].min(axis=0)) if guarantees.is_limited else most
