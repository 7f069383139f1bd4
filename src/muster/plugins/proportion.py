"""Proportion: what a queue deserves follows from its weight, and from what it and the others ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, Room
from muster.engine.quota import UNLIMITED, Bounds, admit, limits, room
from muster.engine.session import Session
from muster.engine.shares import beyond, dimensions, total_for
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod
from muster.model.resources import Resources
from muster.model.topics import Topic
from muster.plugins._capability import beside_guarantees, configured
from muster.plugins._options import option
from muster.plugins._sharing import Sharer, down_the_tree, wants_up_the_tree
from muster.state.columns import Amounts
from muster.state.derived import Derived

QUEUE_SHARE = "QueueShare"


@dataclass(frozen=True)
class Proportion:
    """The cluster is shared out among the queues by weight, and the queue that has the smallest part of its share goes first.

    Nobody's share is more than it asks for or than its limit, nor less than its guarantee if it asks for that much; what is left
    over goes to the others, by weight again. In a tree the share of a branch is shared out among its children in the same way.
    Queues of higher priority go first. Room that is guaranteed to one queue is never lent to another.
    """

    strict: bool = option(False, "Let no queue use more than its share, even where others leave theirs unused for the time being.")
    name: str = "proportion"

    def prepare(self, s: Session) -> None:
        _total(s)

    def queue_key(self, s: Session, queue: str) -> tuple[int, float]:
        node = s.world.facts.tree.nodes.get(queue)
        return (-node.priority if node is not None else 0, self._share(s, queue))

    def _share(self, s: Session, queue: str) -> float:
        """The largest part of what it deserves of any resource that the queue uses."""
        deserved = _deserved(s)[s.world.ledger.row[queue]].tolist()
        taken = s.world.ledger.taken_list(queue)
        share = 0.0
        for column, _ in dimensions(s):
            if taken[column] > 0:
                share = max(share, taken[column] / deserved[column] if deserved[column] else 1.0)
        return share

    def admit(self, s: Session, ask: Ask) -> Verdict:
        verdict = admit(s, ask, beside_guarantees(s))
        return admit(s, ask, _shares(s)) if self.strict and verdict.ok else verdict

    def quota_room(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> Room:
        found = room(s, pod, beside_guarantees(s), count=count, phase=phase)
        if not self.strict:
            return found
        return min(found, room(s, pod, _shares(s), count=count, phase=phase), key=lambda r: r.seats)

    def deserved(self, s: Session, queue: str) -> Resources:
        row = _deserved(s)[s.world.ledger.row[queue]].tolist()
        names = s.world.columns.names
        return Resources.of({names[column]: row[column] for column, _ in dimensions(s)})

    def over_share(self, s: Session, queue: str) -> Resources:
        return beyond(s, queue, self.deserved(s, queue))


_TOTAL: Derived[Amounts] = Derived("what proportion shares out", Topic.CYCLE)
_DESERVED: Derived[Amounts] = Derived("shares by weight", Topic.CYCLE)
_SHARES: Derived[Bounds] = Derived("shares by weight as bounds", Topic.CYCLE)


def _total(s: Session) -> Amounts:
    """Fixed for the cycle, so that a trial's moves do not change it."""
    return _TOTAL.of(s.world, lambda: total_for(s, s.world.facts.tree.children[""]))


def _shares(s: Session) -> Bounds:
    """Deserved shares as bounds, in the dimensions that are shared out at all."""

    def make() -> Bounds:
        deserved = _deserved(s)
        rows = np.full_like(deserved, UNLIMITED)
        columns = [column for column, _ in dimensions(s)]
        known = [s.world.ledger.row[queue] for queue in s.world.facts.tree.nodes]
        rows[np.ix_(known, columns)] = deserved[np.ix_(known, columns)]
        return Bounds(rows, word="deserved", code=QUEUE_SHARE, topics=(Topic.DEMAND.any, Topic.FREE_CAPACITY.any))

    return _SHARES.of(s.world, make)


def _deserved(s: Session) -> Amounts:
    """What each queue deserves, as rows of the ledger."""
    return _DESERVED.of(s.world, lambda: _share_out(s))


def _share_out(s: Session) -> Amounts:
    world = s.world
    tree, row = world.facts.tree, world.ledger.row
    total = _total(s)
    requested, limit = world.ledger.requested_in(), limits(world).rows
    guarantee = {queue: configured(world, node.guarantee) for queue, node in tree.nodes.items()}
    deserved = np.zeros_like(requested)
    for column, _ in dimensions(s):
        asked, most = requested[:, column].tolist(), limit[:, column].tolist()

        def own(queue: str, asked: list[int] = asked) -> int:
            return asked[row[queue]] - sum(asked[row[child]] for child in tree.children.get(queue, ()))

        def limited(queue: str, want: int, most: list[int] = most) -> int:
            return min(want, most[row[queue]])

        wants = wants_up_the_tree(tree.children, own, limited, tops=tree.children[""])

        def sharer(queue: str, wants: dict[str, int] = wants, column: int = column) -> Sharer:
            return Sharer(queue, tree.nodes[queue].weight, wants[queue], int(guarantee[queue][column]))

        for queue, part in down_the_tree(int(total[column]), tree.children, sharer).items():
            deserved[row[queue], column] = part
    return deserved
