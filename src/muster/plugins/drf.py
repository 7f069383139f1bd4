"""Dominant resource fairness: the queue that uses the smallest part of the cluster comes first."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.engine.shares import dimensions, dominant_share, total_for
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.plugins._fair_share import Sharer, share_down_tree
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

_UNBOUNDED = 2**62


@dataclass(frozen=True)
class Drf:
    """The queue with the smallest dominant share comes first: the largest part of any resource that it uses, by its weight.

    In a tree siblings are compared at each level, each with all that its branch uses. What a queue deserves is its part by weight
    among the siblings that request anything.
    """

    name: str = "drf"

    def prepare(self, s: Session) -> None:
        _total(s)

    def queue_key(self, s: Session, queue: str) -> float:
        return dominant_share(s, queue) / _weight(s, queue)

    def deserved(self, s: Session, queue: str) -> Resources:
        return _DESERVED.of(s.world, lambda: _compute_deserved(s)).get(queue, Resources())

    def configured_share(self, s: Session, queue: str) -> Resources:
        return self.deserved(s, queue)


_TOTAL: Derived[Amounts] = Derived("what drf shares out", Topic.CYCLE)
_DESERVED: Derived[dict[str, Resources]] = Derived("shares by drf", Topic.CYCLE)


def _total(s: Session) -> Amounts:
    """Fixed for the cycle, so that a trial's moves do not change it."""
    return _TOTAL.of(s.world, lambda: total_for(s, s.world.facts.tree.children[""]))


def _weight(s: Session, queue: str) -> int:
    node = s.world.facts.tree.nodes.get(queue)
    return node.weight if node is not None else 1


def _compute_deserved(s: Session) -> dict[str, Resources]:
    """Every branch that requests anything gets its part by weight of what its parent has."""
    world = s.world
    total = _total(s)
    requesting = {queue for queue in world.facts.tree.nodes if world.ledger.requested(queue).any()}
    amounts: dict[str, dict[str, int]] = {queue: {} for queue in requesting}
    for column, _ in dimensions(s):
        parts = share_down_tree(
            int(total[column]),
            world.facts.tree.children,
            lambda queue: Sharer(queue, _weight(s, queue) if queue in requesting else 0, _UNBOUNDED),
        )
        for queue in requesting:
            amounts[queue][world.columns.names[column]] = parts[queue]
    return {queue: Resources.of(found) for queue, found in amounts.items()}
