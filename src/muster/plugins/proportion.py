"""Proportion: what a queue deserves follows from its weight, and from what it and the others request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.fair_shares import all_branches, all_to_share, prepare_shares
from muster.engine.hooks import Ask, QuotaFit
from muster.engine.option_field import option
from muster.engine.past_use import past_use
from muster.engine.quota import QUEUE_SHARE, UNLIMITED, QueueBounds, admit, limits, quota_fit
from muster.engine.session import Session
from muster.engine.shares import dimensions, of_dimensions
from muster.engine.sharing import Claims, requests_up_tree, share_out
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.plugins._real_capability import configured_row, guarantee_bounds
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts


@dataclass(frozen=True)
class Proportion:
    """The cluster is shared out among the queues by weight, and the queue that uses the smallest part of its share comes first.

    No share is more than the queue requests or than its limit, nor less than its guarantee if it requests that much; the rest is
    shared out among the others, by weight again. In a tree the share of a branch is shared out among its children in the same way.
    Queues of higher priority come first. What is guaranteed to one queue is never lent to another.
    """

    strict: bool = option(False, "Let no queue use more than its share, even where others do not use theirs.")
    name: str = "proportion"

    def prepare(self, s: Session) -> None:
        prepare_shares(s)

    def queue_key(self, s: Session, queue: str) -> tuple[int, float]:
        return (-s.world.facts.tree.node(queue).priority, self._largest_share(s, queue))

    def _largest_share(self, s: Session, queue: str) -> float:
        """The largest part of what it deserves of any resource that the queue uses."""
        deserved = _deserved(s)[s.world.ledger.row[queue]].tolist()
        used, past = s.world.ledger.planned_list(queue), past_use(s, queue)
        share = 0.0
        for column, _ in dimensions(s):
            if (use := used[column] + past.get(column, 0.0)) > 0:
                share = max(share, use / deserved[column] if deserved[column] else 1.0)
        return share

    def admit(self, s: Session, ask: Ask) -> Verdict:
        verdict = admit(s, ask, guarantee_bounds(s))
        return admit(s, ask, _deserved_bounds(s)) if self.strict and verdict.ok else verdict

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        found = quota_fit(s, pod, guarantee_bounds(s), count=count, phase=phase)
        if not self.strict:
            return found
        return min(found, quota_fit(s, pod, _deserved_bounds(s), count=count, phase=phase), key=lambda r: r.fit_count)

    def deserved(self, s: Session) -> Amounts:
        return _deserved(s)

    def configured_share(self, s: Session, queue: str) -> Resources:
        return of_dimensions(s, _deserved(s)[s.world.ledger.row[queue]])


_DESERVED: Derived[Amounts] = Derived("shares by weight", Topic.CYCLE)
_SHARES: Derived[QueueBounds] = Derived("shares by weight as bounds", Topic.CYCLE)


def _deserved_bounds(s: Session) -> QueueBounds:
    """Deserved shares as bounds, in the dimensions that are shared out at all."""

    def make() -> QueueBounds:
        deserved = _deserved(s)
        rows = np.full_like(deserved, UNLIMITED)
        columns = [column for column, _ in dimensions(s)]
        known = [s.world.ledger.row[queue] for queue in s.world.facts.tree.nodes]
        rows[np.ix_(known, columns)] = deserved[np.ix_(known, columns)]
        return QueueBounds(rows, bound_name="deserved", code=QUEUE_SHARE, topics=(Topic.DEMAND.any, Topic.FREE_CAPACITY.any))

    return _SHARES.of(s.world, make)


def _deserved(s: Session) -> Amounts:
    """What each queue deserves, as rows of the ledger."""
    return _DESERVED.of(s.world, lambda: _compute_deserved(s))


def _compute_deserved(s: Session) -> Amounts:
    world, tree = s.world, all_branches(s)
    nothing = np.zeros((len(world.ledger), len(world.columns.names)), dtype=np.int64)
    guarantee, weight = nothing.copy(), nothing + 1
    for queue, node in world.facts.tree.nodes.items():
        guarantee[world.ledger.row[queue]] = configured_row(world, node.guarantee)
        weight[world.ledger.row[queue]] = node.weight
    _, request = requests_up_tree(tree, world.ledger.requested_in(), nothing, limits(world).rows)
    columns = [column for column, _ in dimensions(s)]
    return share_out(all_to_share(s), tree, Claims(request, weight, guarantee, nothing), columns)
