"""Capacity: what a queue deserves is what was configured for it; guarantees are reserved, limits enforced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.fair_shares import SharesByQueue, all_branches, prepare_shares, share_key
from muster.engine.guarantees import guarantees
from muster.engine.hooks import Ask, QuotaFit
from muster.engine.quota import BY_QUEUE, admit, quota_fit
from muster.engine.session import Session
from muster.engine.sharing import of_branches
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

    Queues that use what they deserve, and those without a `deserved`, come after all others: the one first that uses the smallest
    part of its fair share. What is guaranteed to one queue is never lent to another. In a tree siblings are compared at each
    level; a parent without a `deserved` of its own deserves what its children do together. Gangs wait in leaves: one that names a
    parent is refused, with the names of its children.
    """

    name: str = "capacity"

    def prepare(self, s: Session) -> None:
        prepare_shares(s)

    def queue_key(self, s: Session, queue: str) -> tuple[int, int, float]:
        return (-s.world.facts.tree.node(queue).priority, *share_key(s, queue, _deserved(s).by_queue.get(queue, ())))

    def admit(self, s: Session, ask: Ask) -> Verdict:
        for role in ask.gang.roles:
            children = s.world.facts.tree.children.get(role.queue)
            if children:
                return _not_a_leaf(role.queue, children)
        return admit(s, ask, guarantee_bounds(s))

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        return quota_fit(s, pod, guarantee_bounds(s), count=count, phase=phase)

    def deserved(self, s: Session) -> Amounts:
        return _deserved(s).rows

    def configured_share(self, s: Session, queue: str) -> Resources:
        return s.world.facts.tree.node(queue).deserved


def _not_a_leaf(queue: str, children: tuple[str, ...]) -> Verdict:
    named = ", ".join(child.rpartition("/")[2] for child in children[:_MAX_NAMED])
    others = f" and {len(children) - _MAX_NAMED} more" if len(children) > _MAX_NAMED else ""
    why = f"{show_queue(queue)} has children, and gangs wait in leaves only: name one of {named}{others}"
    return Verdict(
        ok=False, why=why if len(children) > 1 else why.replace("one of ", ""), code=NOT_A_LEAF, topics=(Topic.QUEUES.any,)
    )


_DESERVED: Derived[SharesByQueue] = Derived("configured shares", *BY_QUEUE, Topic.ALLOCATABLE)


def _deserved(s: Session) -> SharesByQueue:
    """What each queue deserves: what was configured, or where that is nothing what its children do together."""
    return _DESERVED.of(s.world, lambda: SharesByQueue.of(s, _compute_deserved(s)))


def _compute_deserved(s: Session) -> Amounts:
    world = s.world
    rows: Amounts = np.zeros((len(world.ledger), len(world.columns.names)), dtype=np.int64)
    for queue in world.facts.tree.nodes:
        rows[world.ledger.row[queue]] = _own_deserved(s, queue)
    return of_branches(all_branches(s), rows)


def _own_deserved(s: Session, queue: str) -> Amounts:
    """What was configured, no more than the queue may have and no less than its guarantee."""
    node = s.world.facts.tree.nodes[queue]
    if not node.deserved and not node.guarantee:
        return np.zeros(len(s.world.columns.names), dtype=np.int64)
    own: Amounts = np.minimum(configured_row(s.world, node.deserved), real_capability(s, queue))
    found = guarantees(s)
    return own if found is None else np.maximum(own, found.counted[s.world.ledger.row[queue]])
