"""Capacity: what a queue deserves is what was configured for it; guarantees are kept free, limits enforced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, Room
from muster.engine.quota import BY_QUEUE, admit, room
from muster.engine.session import Session
from muster.engine.shares import beyond
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod
from muster.model.queue import show_queue
from muster.model.resources import Resources
from muster.model.topics import Topic
from muster.plugins._capability import beside_guarantees, configured, most_of
from muster.state.columns import Amounts
from muster.state.derived import Derived

NOT_A_LEAF = "NotALeaf"

# So many children are named to somebody who named their parent.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Capacity:
    """The queue that uses the smallest part of its configured `deserved` goes first, after queues of higher priority.

    A queue for which nothing is deserved goes after all that are below their share. Room that is guaranteed to one queue is never
    lent to another. In a tree siblings are compared at each level; a parent without a `deserved` of its own deserves what its
    children do together. Gangs wait in leaves: one that names a parent is told which children there are.
    """

    name: str = "capacity"

    def queue_key(self, s: Session, queue: str) -> tuple[int, float, int]:
        node = s.world.facts.tree.nodes.get(queue)
        priority = node.priority if node is not None else 0
        deserved = _in_use(s).get(queue)
        if not deserved:
            return (-priority, 1.0, 1)
        taken = s.world.ledger.taken_list(queue)
        share = 0.0
        for column, value in deserved:
            part = taken[column] / value
            share = part if part > share else share
        return (-priority, share, 0)

    def admit(self, s: Session, ask: Ask) -> Verdict:
        for role in ask.gang.roles:
            children = s.world.facts.tree.children.get(role.queue)
            if children:
                return _not_a_leaf(role.queue, children)
        return admit(s, ask, beside_guarantees(s))

    def quota_room(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> Room:
        return room(s, pod, beside_guarantees(s), count=count, phase=phase)

    def deserved(self, s: Session, queue: str) -> Resources:
        names = s.world.columns.names
        return Resources.of({names[column]: value for column, value in _in_use(s).get(queue, ())})

    def over_share(self, s: Session, queue: str) -> Resources:
        return beyond(s, queue, self.deserved(s, queue))


def _not_a_leaf(queue: str, children: tuple[str, ...]) -> Verdict:
    named = ", ".join(child.rsplit("/", 1)[-1] for child in children[:_MOST_NAMED])
    others = f" and {len(children) - _MOST_NAMED} more" if len(children) > _MOST_NAMED else ""
    why = f"{show_queue(queue)} has children, and gangs wait in leaves only: name one of {named}{others}"
    return Verdict(
        ok=False, why=why if len(children) > 1 else why.replace("one of ", ""), code=NOT_A_LEAF, topics=(Topic.QUEUES.any,)
    )


_Shares = dict[str, tuple[tuple[int, int], ...]]


_DESERVED: Derived[_Shares] = Derived("configured shares", *BY_QUEUE, Topic.ALLOCATABLE)


def _in_use(s: Session) -> _Shares:
    """What each queue deserves, by column, where anything was configured."""
    return _DESERVED.of(s.world, lambda: _deserved(s))


def _deserved(s: Session) -> _Shares:
    tree = s.world.facts.tree
    order = list(tree.children[""])
    for queue in order:
        order.extend(tree.children.get(queue, ()))
    rows: dict[str, Amounts] = {}
    for queue in reversed(order):
        own = _own(s, queue)
        below = [rows[child] for child in tree.children.get(queue, ())]
        rows[queue] = np.where(own > 0, own, np.sum(below, axis=0)) if below else own
    return {queue: tuple((i, value) for i, value in enumerate(row.tolist()) if value > 0) for queue, row in rows.items()}


def _own(s: Session, queue: str) -> Amounts:
    """What was configured, no more than the queue may have and no less than its guarantee."""
    node = s.world.facts.tree.nodes[queue]
    if not node.deserved and not node.guarantee:
        return np.zeros(len(s.world.columns.names), dtype=np.int64)
    guarantee = configured(s.world, node.guarantee)
    own: Amounts = np.maximum(np.minimum(configured(s.world, node.deserved), most_of(s, queue)), guarantee)
    return own
