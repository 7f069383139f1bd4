"""Proportion: what a queue deserves follows from its weight, and from what it and the others request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, QuotaFit
from muster.engine.option_field import option
from muster.engine.quota import UNLIMITED, QueueBounds, admit, limits, quota_fit
from muster.engine.session import Session
from muster.engine.shares import dimensions, total_for
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.plugins._fair_share import Sharer, requests_up_tree, share_down_tree
from muster.plugins._real_capability import configured_row, guarantee_bounds
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

QUEUE_SHARE = "QueueShare"


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
        _total(s)

    def queue_key(self, s: Session, queue: str) -> tuple[int, float]:
        node = s.world.facts.tree.nodes.get(queue)
        return (-node.priority if node is not None else 0, self._largest_share(s, queue))

    def _largest_share(self, s: Session, queue: str) -> float:
        """The largest part of what it deserves of any resource that the queue uses."""
        deserved = _deserved(s)[s.world.ledger.row[queue]].tolist()
        planned = s.world.ledger.planned_list(queue)
        share = 0.0
        for column, _ in dimensions(s):
            if planned[column] > 0:
                share = max(share, planned[column] / deserved[column] if deserved[column] else 1.0)
        return share

    def admit(self, s: Session, ask: Ask) -> Verdict:
        verdict = admit(s, ask, guarantee_bounds(s))
        return admit(s, ask, _deserved_bounds(s)) if self.strict and verdict.ok else verdict

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        found = quota_fit(s, pod, guarantee_bounds(s), count=count, phase=phase)
        if not self.strict:
            return found
        return min(found, quota_fit(s, pod, _deserved_bounds(s), count=count, phase=phase), key=lambda r: r.fit_count)

    def deserved(self, s: Session, queue: str) -> Resources:
        row = _deserved(s)[s.world.ledger.row[queue]].tolist()
        names = s.world.columns.names
        return Resources.of({names[column]: row[column] for column, _ in dimensions(s)})

    def configured_share(self, s: Session, queue: str) -> Resources:
        return self.deserved(s, queue)


_TOTAL: Derived[Amounts] = Derived("what proportion shares out", Topic.CYCLE)
_DESERVED: Derived[Amounts] = Derived("shares by weight", Topic.CYCLE)
_SHARES: Derived[QueueBounds] = Derived("shares by weight as bounds", Topic.CYCLE)


def _total(s: Session) -> Amounts:
    """Fixed for the cycle, so that a trial's moves do not change it."""
    return _TOTAL.of(s.world, lambda: total_for(s, s.world.facts.tree.children[""]))


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
    world = s.world
    tree, row = world.facts.tree, world.ledger.row
    total = _total(s)
    requested, limit = world.ledger.requested_in(), limits(world).rows
    guarantee = {queue: configured_row(world, node.guarantee) for queue, node in tree.nodes.items()}
    deserved = np.zeros_like(requested)
    for column, _ in dimensions(s):
        amounts, most = requested[:, column].tolist(), limit[:, column].tolist()

        def own(queue: str, amounts: list[int] = amounts) -> int:
            return amounts[row[queue]] - sum(amounts[row[child]] for child in tree.children.get(queue, ()))

        def limited(queue: str, request: int, most: list[int] = most) -> int:
            return min(request, most[row[queue]])

        requests = requests_up_tree(tree.children, own, limited, tops=tree.children[""])

        def sharer(queue: str, requests: dict[str, int] = requests, column: int = column) -> Sharer:
            return Sharer(queue, tree.nodes[queue].weight, requests[queue], int(guarantee[queue][column]))

        for queue, part in share_down_tree(int(total[column]), tree.children, sharer).items():
            deserved[row[queue], column] = part
    return deserved
