"""Job-preempt: capacity in a quota, and on nodes, for a whole job.

A job may evict preemptible pods of strictly lower priority, in its own quota, and in other queues while these are over their share
and do not fall below it. That the job is within its own quota is checked by admission, in place of a check of shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_history import MAX_CROSSINGS, crossed_often
from muster.engine.evict.eviction_policy import (
    EvictionPolicy,
    EvictionRules,
    Units,
    exclude_own_gang,
    in_queues,
    lower_priority,
    priority_against,
)
from muster.engine.evict.giving_queues import GivingQueues, charged, freed_by_unit
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.state.node_table import BoolColumn, IntColumn

CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"


def why_may_not_preempt(s: Session, gang: Gang) -> str:
    """Why this job may cause no eviction, or nothing. Asked of every role: one that may not trigger speaks for all."""
    if gang.never_preempts:
        return "its preemption policy is Never"
    quotas = [role for role in gang.roles if role.queue.startswith("quota/")]
    values = {pod.labels.get(CAN_PREEMPT) for role in quotas for pod in role.pods}
    if quotas and s.policy.requires_can_preempt and values != {"true"}:
        return f"its pods lack the label {CAN_PREEMPT}: true"
    if "false" in values:
        return f"its pods have the label {CAN_PREEMPT}: false"
    return ""


class JobRules(EvictionRules):
    """Gangs of strictly lower priority in the job's own quota, and in other queues that are over their share."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable, contested: Contested) -> None:
        self._s, self._ask, self._victim_table = s, ask, victim_table
        self._queues = GivingQueues(s, ask, contested, may_cross=False, takes_by_share=False)
        count = len(victim_table.gangs)
        lower: BoolColumn = victim_table.gang_priority[:count] < ask.gang.priority
        self._lower = exclude_own_gang(ask, victim_table, lower)
        own = in_queues(victim_table, set(self._queues.comparisons))
        self.eligible = exclude_own_gang(ask, victim_table, lower & self._queues.gangs(victim_table, also=own))
        self._gave_way = {victim_table.gangs[number].key for number in crossed_often(s, ask.gang, victim_table)}

    def allows_eviction(self, pods: Sequence[Pod], *, priority: int) -> Verdict:
        """Pods of another queue are evicted only while it is over its share, checked before each unit, and never below it."""
        whys = [self.why_not_for(queue, pods, priority=priority) for queue in self._queues.comparisons]
        why = "" if "" in whys else whys[0]
        if not why and self._gave_way.intersection(self._queues.borrowing_gangs(pods)):
            why = f"both only borrow, and their gang lost pods in {MAX_CROSSINGS} plans for {self._ask.gang.full_name} before"
        return Verdict(ok=False, why=why) if why else YES

    def allows_plan(self, units: Sequence[Sequence[Pod]]) -> Verdict:
        """Members in a quota are admitted by it; others take only what is within the share of their queue."""
        taken = [(queue, freed) for queue, freed, _ in freed_by_unit(self._s.world, units) if queue not in self._queues.comparisons]
        for queue, comparison in self._queues.comparisons.items() if taken else ():
            if not queue.startswith("quota/") and (why := comparison.why_not_taking(taken)):
                return Verdict(ok=False, why=why)
        return YES

    def is_own(self, queue: str, pods: Sequence[Pod], *, priority: int) -> bool:
        queues = {charged(self._s.world, pod).queue for pod in pods}
        return queue in queues and queues <= self._queues.comparisons.keys() and priority < self._ask.gang.priority

    def why_not_for(self, queue: str, pods: Sequence[Pod], *, priority: int) -> str:
        if self.is_own(queue, pods, priority=priority):
            return ""
        return self._queues.why_not(pods, taker=queue, is_lower=True) or lower_priority(self._ask, pods, priority).why

    def why_not_taking(self, queue: str, units: Units, later: Units) -> str:
        return "" if queue.startswith("quota/") else self._queues.why_not_taking(queue, units, later)

    def may_take(self, queue: str) -> bool:
        return (
            queue.startswith("quota/")
            or bool((self.eligible & in_queues(self._victim_table, {queue})).any())
            or (self._queues.any_gives_to(queue, self._victim_table))
        )

    def crossing_gangs(self, victims: Sequence[Pod]) -> tuple[str, ...]:
        """Priority decides among those who only borrow. Others may take what was taken so by their shares, and again, and again:
        so the same gang gives way to the same job a few times only."""
        return self._queues.borrowing_gangs(victims)

    def why_nobody(self) -> str:
        return "no preemptible pod of lower priority is placed, in its quota or in a queue that is over its share"

    def barred_by_queue(self) -> Iterable[tuple[str, IntColumn]]:
        return self._queues.barred(self._victim_table, self._lower & ~self.eligible)

    def why_evicted(self, pod: Pod) -> str:
        return "; ".join(filter(None, (priority_against(self._s, pod, self._ask.gang), self._queues.why_given(pod))))


JOB_PREEMPT = EvictionPolicy(name="job-preempt", rules=JobRules)
