"""What is guaranteed to a queue, as far as there is so much, and what that leaves to its siblings.

A guarantee counts up to the queue's limit. One above all that its parent may have counts for nothing; those of siblings that add
up to more than that are scaled down in proportion.
"""

from __future__ import annotations

from tests.oracles.snapshot import Snapshot


def counted_guarantee(s: Snapshot, queue: str, name: str) -> int:
    parent = s.parents.get(queue, "")
    there = room_of(s, parent, name)
    together = sum(_possible(s, key, name) for key in s.queues if s.parents.get(key, "") == parent)
    own = _possible(s, queue, name)
    return own if together <= there else own * there // together


def guaranteed_to_others(s: Snapshot, queue: str, name: str) -> int:
    parent = s.parents.get(queue, "")
    return sum(counted_guarantee(s, key, name) for key in s.queues if key != queue and s.parents.get(key, "") == parent)


def left_by_guarantees(s: Snapshot, queue: str, name: str) -> int:
    """What its parent may have without what is guaranteed to its siblings, and never less than what is guaranteed to itself."""
    left = room_of(s, s.parents.get(queue, ""), name) - guaranteed_to_others(s, queue, name)
    return max(left, _possible(s, queue, name))


def room_of(s: Snapshot, queue: str, name: str) -> int:
    """All that a queue may have; of the root: what the nodes have."""
    if not queue:
        return sum(node.allocatable[name] for node in s.nodes.values())
    left, limit = left_by_guarantees(s, queue, name), s.queues[queue].limit.get(name)
    return left if limit is None else min(left, limit)


def _possible(s: Snapshot, queue: str, name: str) -> int:
    own, limit = s.queues[queue].guarantee[name], s.queues[queue].limit.get(name)
    own = own if limit is None else min(own, limit)
    return own if own <= room_of(s, s.parents.get(queue, ""), name) else 0
