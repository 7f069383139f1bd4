"""Stale gangs: below their minimum for long, and not to be completed. They keep their nodes only while nobody needs them.

A gang earlier in the order, of equal priority and of any queue, that completes because of it has one evicted, whole. Strictly lower
priority, shares and the minimum run time do not count for that; protection, budgets, guarantees and `reclaimable: false` do. So two
gangs that each lost a member do not lock each other out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_history import paused_until
from muster.engine.evict.eviction_policy import STALE_GANGS_ACTION, EvictionPolicy, EvictionRules
from muster.engine.evict.queue_comparison import QueueComparison
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.quota import total_by_queue
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import PLACED, Pod
from muster.state.gangs.broken_gangs import is_below_min, stale_from
from muster.state.gangs.gang_stage import count, is_running
from muster.state.resource_columns import Amounts


def stale_gangs_for(s: Session, gang: Gang) -> list[Gang]:
    """The stale gangs that this one may have evicted."""
    return [
        other
        for key, since in s.world.memory.below_min_since.items()
        if (other := s.world.facts.gangs.get(key)) is not None
        and stale_from(s.world, key, since, stale_s=s.policy.settings.stale_s) <= s.now
        and other.priority == gang.priority
        and _order(s, gang) < _order(s, other)
        and _is_stale(s, other)
    ]


def _order(s: Session, gang: Gang) -> tuple[object, ...]:
    """As gangs are ordered, but that it does not count who is partially bound."""
    return s.gang_key(gang)[1:]


def _is_stale(s: Session, gang: Gang) -> bool:
    if not is_below_min(s.world, gang.key) or gang.key in s.unsent_plans:
        return False
    if gang.match_policy is MatchPolicy.ONCE_SATISFIED and is_running(s.world, gang):
        return False
    return not _may_complete(s, gang)


def _may_complete(s: Session, gang: Gang) -> bool:
    """Did it get what it needs in this cycle, or is it only time that keeps it from a plan of its own?"""
    verdict = s.world.memory.attempts[gang.key].verdict
    if verdict is not None and (verdict.ok or (verdict.at is not None and verdict.at > s.now)):
        return True
    return paused_until(s, gang) > s.now


class StaleGangRules(EvictionRules):
    """Whole gangs that are stale, of the asking gang's priority and after it in the order."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable, contested: Contested) -> None:
        self._s, self._ask = s, ask
        self.eligible = np.zeros(len(victim_table.gangs), dtype=np.bool_)
        for gang in stale_gangs_for(s, ask.gang):
            if gang.key in victim_table.gang_number:
                self.eligible[victim_table.gang_number[gang.key]] = True
        demands = total_by_queue(s.world, ask.pods)
        self._comparisons = [QueueComparison(s, queue, columns, demands[queue]) for queue, columns in contested.items()]

    def allows_eviction(self, pods: Sequence[Pod], *, priority: int) -> Verdict:  # noqa: ARG002
        """What is guaranteed to other queues stays."""
        freed: dict[str, Amounts] = {}
        for pod in pods:
            queue = self._s.world.facts.members[pod.uid].queue
            freed[queue] = freed.get(queue, 0) + self._s.world.request(pod)
        for queue, amounts in freed.items():
            for comparison in self._comparisons:
                if why := comparison.why_protected(queue, amounts):
                    return Verdict(ok=False, why=why)
        return YES

    def may_take(self, queue: str) -> bool:  # noqa: ARG002
        return bool(self.eligible.any())

    def why_nobody(self) -> str:
        return "no gang of its priority that is after it has been below its minimum for long"

    def why_evicted(self, pod: Pod) -> str:
        gang = self._s.world.gang_of(pod)
        if gang is None:
            return "its gang is gone"
        minutes = (self._s.now - self._s.world.memory.below_min_since.get(gang.key, self._s.now)) / 60.0
        placed = sum(count(self._s.world, role, PLACED) + role.succeeded for role in gang.roles)
        return f"{gang.full_name} has been below its minimum for {minutes:.0f} min, with {placed} of {gang.min} members"


STALE_GANGS = EvictionPolicy(name=STALE_GANGS_ACTION, rules=StaleGangRules, is_shared_out=False)
