"""Capacity: what a queue deserves is what was configured for it; guarantees are reserved, limits enforced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.guarantees import guarantees
from muster.engine.hooks import Ask, QuotaFit
from muster.engine.quota import BY_QUEUE, admit, quota_fit
from muster.engine.session import Session
from muster.engine.shares import largest_share
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod
from muster.model.queue import show_queue
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.plugins._real_capability import configured_row, guarantee_bounds, real_capability
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

NOT_A_LEAF = "NotALeaf"

# So many children are named in a refusal.
_MAX_NAMED = 3


@dataclass(frozen=True)
class Capacity:
    """The queue that uses the smallest part of its configured `deserved` comes first, after queues of higher priority.

    A queue without a `deserved` comes after all that are below their share. What is guaranteed to one queue is never lent to
    another. In a tree siblings are compared at each level; a parent without a `deserved` of its own deserves what its
    children do together. Gangs wait in leaves: one that names a parent is refused, with the names of its children.
    """

    name: str = "capacity"

    def queue_key(self, s: Session, queue: str) -> tuple[int, float, int]:
        node = s.world.facts.tree.nodes.get(queue)
        priority = node.priority if node is not None else 0
        deserved = _deserved_by_queue(s).get(queue)
        if not deserved:
            return (-priority, 1.0, 1)
        return (-priority, largest_share(s.world.ledger.planned_list(queue), deserved), 0)

    def admit(self, s: Session, ask: Ask) -> Verdict:
        for role in ask.gang.roles:
            children = s.world.facts.tree.children.get(role.queue)
            if children:
                return _not_a_leaf(role.queue, children)
        return admit(s, ask, guarantee_bounds(s))

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        return quota_fit(s, pod, guarantee_bounds(s), count=count, phase=phase)

    def deserved(self, s: Session, queue: str) -> Resources:
        names = s.world.columns.names
        return Resources.of({names[column]: value for column, value in _deserved_by_queue(s).get(queue, ())})

    def configured_share(self, s: Session, queue: str) -> Resources:
        node = s.world.facts.tree.nodes.get(queue)
        return node.deserved if node is not None else Resources()


def _not_a_leaf(queue: str, children: tuple[str, ...]) -> Verdict:
    named = ", ".join(child.rsplit("/", 1)[-1] for child in children[:_MAX_NAMED])
    others = f" and {len(children) - _MAX_NAMED} more" if len(children) > _MAX_NAMED else ""
    why = f"{show_queue(queue)} has children, and gangs wait in leaves only: name one of {named}{others}"
    return Verdict(
        ok=False, why=why if len(children) > 1 else why.replace("one of ", ""), code=NOT_A_LEAF, topics=(Topic.QUEUES.any,)
    )


_DeservedByQueue = dict[str, tuple[tuple[int, int], ...]]


_DESERVED: Derived[_DeservedByQueue] = Derived("configured shares", *BY_QUEUE, Topic.ALLOCATABLE)


def _deserved_by_queue(s: Session) -> _DeservedByQueue:
    """What each queue deserves, by column, where anything was configured."""
    return _DESERVED.of(s.world, lambda: _compute_deserved(s))


def _compute_deserved(s: Session) -> _DeservedByQueue:
    tree = s.world.facts.tree
    order = list(tree.children[""])
    for queue in order:
        order.extend(tree.children.get(queue, ()))
    rows: dict[str, Amounts] = {}
    for queue in reversed(order):
        own = _own_deserved(s, queue)
        below = [rows[child] for child in tree.children.get(queue, ())]
        rows[queue] = np.where(own > 0, own, np.sum(below, axis=0)) if below else own
    return {queue: tuple((i, value) for i, value in enumerate(row.tolist()) if value > 0) for queue, row in rows.items()}


def _own_deserved(s: Session, queue: str) -> Amounts:
    """What was configured, no more than the queue may have and no less than its guarantee."""
    node = s.world.facts.tree.nodes[queue]
    if not node.deserved and not node.guarantee:
        return np.zeros(len(s.world.columns.names), dtype=np.int64)
    own: Amounts = np.minimum(configured_row(s.world, node.deserved), real_capability(s, queue))
    found = guarantees(s)
    return own if found is None else np.maximum(own, found.counted[s.world.ledger.row[queue]])
