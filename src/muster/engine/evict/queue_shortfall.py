"""What must become free in the queues of an ask, because it would break a limit there."""

from __future__ import annotations

import numpy as np

from muster.engine import quota
from muster.engine.evict.victim_search import EvictionAsk, VictimSearch
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts


class QueueShortfall:
    """`lacks`: for each queue on the way up that is over its limit with the ask, what is too much of which columns."""

    def __init__(self, search: VictimSearch) -> None:
        self._search = search
        self.lacks = queue_lacks(search.s, search.ask)

    def enough(self, unit: RowIndex, counts: IntColumn) -> BoolColumn:
        """Which combinations of units, as many of each as a row says, free enough in these queues?"""
        found = np.ones(len(counts), dtype=np.bool_)
        for level, columns, over in self.lacks:
            freed = counts @ self.freed_in(level, unit)[:, columns]
            found &= (freed >= over).all(axis=1)
        return found

    def freed_in(self, queue: str, unit: RowIndex) -> Amounts:
        """What each of these units frees of the usage of a queue."""
        b, table, world = self._search.units, self._search.victim_table, self._search.s.world
        freed = np.zeros((len(unit), b.request.shape[1]), dtype=np.int64)
        below: dict[str, bool] = {}
        for at, each in enumerate(unit.tolist()):
            entries = b.entries_of(each)
            for entry, victim in enumerate(b.victim[entries].tolist(), start=entries.start):
                member = world.facts.members[table.pods[victim].uid]
                if member.queue not in below:
                    below[member.queue] = queue in world.facts.tree.path(member.queue)
                if below[member.queue]:
                    freed[at] += b.request[entry]
        return freed


def queue_lacks(s: Session, ask: Ask) -> list[tuple[str, RowIndex, Amounts]]:
    """For each queue on the way up that would be over its limit with the ask: which columns, and by how much."""
    world, bounds = s.world, quota.limits(s.world)
    needed: dict[str, Amounts] = {}
    for queue, amounts in quota.total_by_queue(world, ask.pods).items() if bounds.is_limited else ():
        for level in world.facts.tree.path(queue):
            needed[level] = needed[level] + amounts if level in needed else amounts
    found = []
    for level, need in needed.items():
        over = world.ledger.planned(level) + need - bounds.rows[world.ledger.row[level]]
        columns = np.flatnonzero((over > 0) & (need > 0))
        if len(columns):
            found.append((level, columns, over[columns]))
    return found


def breaks_limit(eviction_ask: EvictionAsk) -> bool:
    return bool(queue_lacks(eviction_ask.s, eviction_ask.ask))
