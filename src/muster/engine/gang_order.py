"""Which gang is next: queue by queue, the one furthest below its share first, and inside a queue by the gang's own key.

In a tree siblings are compared at each level, by what their whole branches use; equal ones by the gang at their head.
Shares change with every gang that is placed, so the next one is looked for each time, among the queues whose usage changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise

from muster.engine.hooks import Comparable
from muster.engine.session import FIRST, IN_ORDER, LAST, Session
from muster.model.gang import Gang
from muster.model.queue import ROOT_QUEUE

SortKey = tuple[Comparable, ...]
_QueueEntry = tuple[SortKey, SortKey, str]
"""A queue among its siblings: its own key, the key of the gang at its head, and its name."""


def gangs_to_attempt(s: Session) -> list[Gang]:
    """The gangs that wait for nodes and are worth an attempt."""
    return [s.world.facts.gangs[key] for key in _worth_attempting(s)]


def order_gangs(s: Session, gangs: list[Gang]) -> Iterator[Gang]:
    """These gangs in their order, by the usage of their queues at the moment when each is taken."""
    if not s.policy.orders_queues:
        yield from sorted(gangs, key=s.gang_key)
        return
    by_turn: dict[int, list[Gang]] = {FIRST: [], IN_ORDER: [], LAST: []}
    for gang in gangs:
        by_turn[s.turn(gang)].append(gang)
    yield from sorted(by_turn[FIRST], key=s.gang_key)
    line = WaitingGangs(s, by_turn[IN_ORDER])
    while (next_gang := line.pop()) is not None:
        yield next_gang
    yield from sorted(by_turn[LAST], key=s.gang_key)


def _worth_attempting(s: Session) -> Iterator[str]:
    """Gangs that wait for nodes, without those that nothing changed for; those with reserved nodes keep their place anyway."""
    world = s.world
    kept = {world.facts.members[uid].gang for uid in world.placements.reserved}.union(world.memory.backfill_reservations)
    for key in world.placements.unplaced_members:
        if key in kept or not s.is_still_refused(key):
            yield key


class WaitingGangs:
    """The gangs that wait, by queue. Each queue is in a heap of its parent's, with the key that it had when it was put there;
    a queue whose key or head changed is put there again, and its older entries are passed over."""

    def __init__(self, s: Session, gangs: Iterable[Gang]) -> None:
        self._s = s
        self._waiting: dict[str, list[tuple[SortKey, Gang]]] = {}
        for gang in gangs:
            self._waiting.setdefault(gang.queue, []).append((s.gang_key(gang), gang))
        for waiting in self._waiting.values():
            waiting.sort(key=lambda entry: entry[0], reverse=True)
        self._heaps: dict[str, list[_QueueEntry]] = {}
        self._entries: dict[str, _QueueEntry] = {}
        self._position = s.world.changes.ledger.position
        self._changed: dict[str, None] = dict.fromkeys(self._waiting)

    def pop(self) -> Gang | None:
        """The next gang, by usage as it is now; None when none is left."""
        self._update()
        queue = ROOT_QUEUE
        while queue not in self._waiting:
            entry = self._first_child(queue)
            if entry is None:
                return None
            queue = entry[2]
        waiting = self._waiting[queue]
        _, gang = waiting.pop()
        if not waiting:
            del self._waiting[queue]
        self._changed[queue] = None
        return gang

    def _update(self) -> None:
        """Put the queues anew whose usage or heads changed, the lower ones first."""
        ledger = self._s.world.ledger
        log = self._s.world.changes.ledger
        changed = log.since(self._position)
        self._position = log.position
        stale = self._changed
        stale.update(dict.fromkeys(changed if changed is not None else [*self._entries, *self._waiting]))
        self._changed = {}
        if len(stale) == 1:
            # The gang that was served last, and nobody else: its own line of the tree.
            for queue, parent in pairwise(ledger.path(next(iter(stale)))):
                self._push(queue, parent)
            return
        touched = dict.fromkeys(key for queue in stale for key in ledger.path(queue)[:-1])
        for key in sorted(touched, key=lambda key: -len(ledger.path(key))):
            self._push(*ledger.path(key)[:2])

    def _push(self, queue: str, parent: str) -> None:
        waiting = self._waiting.get(queue)
        if waiting is not None:
            # A queue's own gangs go before its children's.
            head = waiting[-1][0]
        elif (first := self._first_child(queue)) is not None:
            head = first[1]
        else:
            self._entries.pop(queue, None)
            return
        entry, before = (self._s.queue_key(queue), head, queue), self._entries.get(queue)
        if entry == before:
            return
        self._entries[queue] = entry
        heap = self._heaps.setdefault(parent, [])
        # Most of the time it is the first that changes, because its gang was just served.
        if heap and heap[0] is before:
            heapq.heapreplace(heap, entry)
        else:
            heapq.heappush(heap, entry)

    def _first_child(self, parent: str) -> _QueueEntry | None:
        """The child that is next."""
        heap = self._heaps.get(parent)
        while heap:
            if self._entries.get(heap[0][2]) is heap[0]:
                return heap[0]
            heapq.heappop(heap)
        return None
