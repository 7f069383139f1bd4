"""Reclaim: a queue that is within its share takes back what others use beyond theirs. Borrowing never evicts.

Giving is judged for each unit, with the units before it evicted; taking for the finished plan. It may also take what the asking
gang could preempt in its own queue, so that a need met half by each is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_history import MAX_CROSSINGS, crossed_often
from muster.engine.evict.eviction_policy import (
    GANG_PREEMPT,
    EvictionPolicy,
    EvictionRules,
    Units,
    exclude_own_gang,
    in_queues,
    lower_priority,
    lower_priority_in_same_queue,
    priority_against,
)
from muster.engine.evict.giving_queues import GivingQueues, charged, freed_by_unit
from muster.engine.evict.queue_comparison import QueueComparison
from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import IntColumn
from muster.state.resource_columns import Amounts

_RANKS: Derived[IntColumn] = Derived("gangs by the order of their queues", follows=Topic.GANGS, most=16)


class ReclaimRules(EvictionRules):
    """Gangs in other queues that are over their share, and those that the asking gang could preempt in its own."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable, contested: Contested) -> None:
        self._s, self._ask, self._victim_table = s, ask, victim_table
        self._queues = GivingQueues(s, ask, contested, may_cross=not s.policy.settings.strict_deserved, takes_by_share=True)
        self._own = lower_priority_in_same_queue(s, ask, victim_table, set(contested))
        if self._own.any() or len(contested) > 1:
            for queue, comparison in self._queues.comparisons.items():
                comparison.own_evictable = self._evictable_in(queue)
        if self._own.any():
            in_one_queue = ~mask_of(list(victim_table.multi_queue), len(self._own))
            self.preempted_by = (GANG_PREEMPT.name, self._own & in_one_queue)
        self.eligible = exclude_own_gang(ask, victim_table, self._queues.gangs(victim_table, also=self._own))
        self._may_not_cross = crossed_often(s, ask.gang, victim_table)
        """Gangs that brought their queues below their shares for this ask often enough."""
        self._rank: IntColumn | None = None

    def _evictable_in(self, queue: str) -> Amounts:
        """What the gangs use that the asking gang could preempt in this one of its queues; where it has several, what could be
        evicted there for the members in another one, too."""
        table, is_group = self._victim_table, len(self._queues.comparisons) > 1
        used = len(table.pods)
        evictable = table.alive[:used] & ~table.not_evictable[:used]
        mine = np.flatnonzero(evictable if is_group else evictable & self._own[table.gang[:used]])
        if is_group:
            world = self._s.world
            mine = mine[[charged(world, table.pods[at]).queue == queue for at in mine.tolist()]] if len(mine) else mine
        return np.asarray(table.request[mine].sum(axis=0), dtype=np.int64)

    def queue_rank(self) -> IntColumn:
        """Position of each gang's queue in the order in which queues give; the asking gang's own queues give last."""
        if self._rank is None:
            table = self._victim_table
            comparison = next(iter(self._queues.comparisons.values()))
            keys = [
                (1.0, 0.0) if name in self._queues.comparisons else (0.0, *comparison.rank_key(name)) for name in table.queue_number
            ]
            place = {key: at for at, key in enumerate(sorted(set(keys)))}
            order = np.array([place[key] for key in keys], dtype=np.int64)
            self._rank = _RANKS.of(
                self._s.world, lambda: order[table.gang_queue[: len(table.gangs)]], key=(table.generation, order.tobytes())
            )
        return self._rank

    def allows_eviction(self, pods: Sequence[Pod], *, priority: int) -> Verdict:
        """With the units before it already evicted: may it be taken for the members in one of the asking queues?"""
        whys = [self.why_not_for(queue, pods, priority=priority) for queue in self._queues.comparisons]
        return YES if "" in whys else Verdict(ok=False, why=whys[0])

    def _is_lower(self, pods: Sequence[Pod], priority: int) -> bool:
        """Have the unit and its gang a lower priority than the asking gang?"""
        table = self._victim_table
        at = table.index.get(pods[0].uid) if pods else None
        asks = self._ask.gang.priority
        return (at is None or bool(table.gang_priority[table.gang[at]] < asks)) and priority < asks

    def _why_not_given(self, pods: Sequence[Pod], priority: int, taker: str) -> str:
        table, asks = self._victim_table, self._ask.gang.priority
        by_priority = self._is_lower(pods, priority)
        why = self._queues.why_not(pods, taker=taker, outranks=priority > asks, is_lower=by_priority)
        at = table.index.get(pods[0].uid) if pods else None
        if not why and at is not None and int(table.gang[at]) in self._may_not_cross:
            why = self._queues.why_not(pods, taker=taker, may_cross=False, is_lower=by_priority)
            why = why and f"{why}, as it did in {MAX_CROSSINGS} plans for {self._ask.gang.full_name} before"
        return why

    def is_own(self, queue: str, pods: Sequence[Pod], *, priority: int) -> bool:
        queues = {charged(self._s.world, pod).queue for pod in pods}
        return queue in queues and queues <= self._queues.comparisons.keys() and self._is_lower(pods, priority)

    def why_not_for(self, queue: str, pods: Sequence[Pod], *, priority: int) -> str:
        if self.is_own(queue, pods, priority=priority):
            return ""
        is_lower = self._is_lower(pods, priority)
        if not is_lower and any(charged(self._s.world, pod).queue == queue for pod in pods):
            return lower_priority(self._ask, pods, priority).why or f"{show_queue(queue)} gives nothing to itself"
        return self._why_not_given(pods, priority, queue)

    def why_not_taking(self, queue: str, units: Units, later: Units) -> str:
        return self._queues.why_not_taking(queue, units, later)

    def allows_plan(self, units: Sequence[Sequence[Pod]]) -> Verdict:
        """Each queue that takes from others must be within its share, with the ask and without what the plan evicts."""
        world = self._s.world
        taken: list[tuple[str, Amounts]] = []
        is_by_priority = True
        preempted: dict[str, Amounts] = {}
        for queue, amounts, priority in freed_by_unit(world, units):
            is_lower = priority < self._ask.gang.priority
            is_by_priority = is_by_priority and is_lower
            if queue in self._queues.comparisons and is_lower:
                preempted[queue] = preempted.get(queue, 0) + amounts
            else:
                taken.append((queue, amounts))
        for queue, comparison in self._queues.comparisons.items() if taken else ():
            # One of several roles may have all that it lacks from its own queue.
            if len(self._queues.comparisons) > 1 and queue in preempted and comparison.is_met_by(preempted[queue]):
                continue
            others = [(other, amounts) for other, amounts in taken if other != queue]
            if why := self._why_not_taking(comparison, others, is_by_priority=is_by_priority):
                return Verdict(ok=False, why=why)
        return YES

    def _why_not_taking(self, comparison: QueueComparison, freed: Sequence[tuple[str, Amounts]], *, is_by_priority: bool) -> str:
        """By its share, or by priority what siblings borrow."""
        why = comparison.why_not_taking(freed)
        if why and is_by_priority and self._queues.takes_within_parent({queue for queue, _ in freed}):
            return comparison.why_not_within_parent()
        return why

    def crossing_gangs(self, victims: Sequence[Pod]) -> tuple[str, ...]:
        return self._queues.crossing_gangs(victims)

    def may_take(self, queue: str) -> bool:
        own = self._own & in_queues(self._victim_table, {queue})
        return bool(own.any()) or self._queues.any_gives_to(queue, self._victim_table)

    def needs_other_nodes(self) -> bool:
        """May pods of the asking gang's own queues have to be evicted wherever they are?"""
        return any(comparison.is_over_with_ask() for comparison in self._queues.comparisons.values())

    def why_nobody(self) -> str:
        return "no other queue has pods placed, and no pod of lower priority in its own is placed"

    def barred_by_queue(self) -> Iterable[tuple[str, IntColumn]]:
        return self._queues.barred(self._victim_table, ~self.eligible)

    def why_evicted(self, pod: Pod) -> str:
        return self._queues.why_given(pod) or priority_against(self._s, pod, self._ask.gang)


GANG_RECLAIM = EvictionPolicy(name="gang-reclaim", rules=ReclaimRules)
