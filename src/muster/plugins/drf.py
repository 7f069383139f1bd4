"""Dominant resource fairness: the queue that uses the smallest part of the cluster comes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.fair_shares import all_branches, all_to_share, prepare_shares
from muster.engine.past_use import past_use
from muster.engine.quota import UNLIMITED
from muster.engine.session import Session
from muster.engine.shares import dimensions, largest_share, of_dimensions
from muster.engine.sharing import Claims, share_out
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts


@dataclass(frozen=True)
class Drf:
    """The queue with the smallest dominant share comes first: the largest part of any resource that it uses, by its weight.

    In a tree siblings are compared at each level, each with all that its branch uses. What a queue deserves is its part by weight
    among the siblings that request anything.
    """

    name: str = "drf"

    def prepare(self, s: Session) -> None:
        prepare_shares(s)

    def queue_key(self, s: Session, queue: str) -> float:
        used: list[float] = [*s.world.ledger.planned_list(queue)]
        for column, past in past_use(s, queue).items():
            used[column] += past
        return largest_share(used, dimensions(s)) / s.world.facts.tree.node(queue).weight

    def deserved(self, s: Session) -> Amounts:
        return _DESERVED.of(s.world, lambda: _compute_deserved(s))

    def configured_share(self, s: Session, queue: str) -> Resources:
        requests = s.world.ledger.requested(queue).any()
        return of_dimensions(s, self.deserved(s)[s.world.ledger.row[queue]]) if requests else Resources()


_DESERVED: Derived[Amounts] = Derived("shares by drf", Topic.CYCLE)


def _compute_deserved(s: Session) -> Amounts:
    """Every branch that requests anything gets its part by weight of what its parent has."""
    world, tree = s.world, all_branches(s)
    requests = world.ledger.requested_in().any(axis=1)
    weight = np.array([world.facts.tree.node(queue).weight for queue in world.ledger.names], dtype=np.int64) * requests
    nothing = np.zeros((len(world.ledger), len(world.columns.names)), dtype=np.int64)
    claims = Claims(nothing + UNLIMITED, nothing + weight[:, None], nothing, nothing)
    return share_out(all_to_share(s), tree, claims, [column for column, _ in dimensions(s)])
