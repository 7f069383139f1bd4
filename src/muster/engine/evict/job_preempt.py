"""Job-preempt: capacity in a quota, and on nodes, for a whole job.

A job may evict preemptible pods of strictly lower priority, in its own quota, and in other quotas while these are over their
minimum. Everything else is the one search; only the order in which victims are put back is the job's own: the highest priority
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.evict.eviction_policy import EvictionPolicy, exclude_own_gang
from muster.engine.evict.reclaim import demand_by_queue
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.state.node_table import BoolColumn, IntColumn
from muster.state.resource_columns import Amounts

CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
WITHIN_MIN = "WithinMinimum"


def why_may_not_preempt(s: Session, gang: Gang) -> str:
    """Why this job may cause no eviction, or nothing."""
    values = {pod.labels.get(CAN_PREEMPT) for pod in gang.pods()}
    if gang.never_preempts:
        return "its preemption policy is Never"
    if s.policy.requires_can_preempt and values != {"true"}:
        return f"its pods lack the label {CAN_PREEMPT}: true"
    if "false" in values:
        return f"its pods have the label {CAN_PREEMPT}: false"
    return ""


class JobRules:
    """Gangs of strictly lower priority in the job's own quota, and in others that are over their minimum."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable) -> None:
        self._s = s
        self._own = {role.queue for role in ask.gang.roles}
        self._demand: Amounts = np.asarray(sum(demand_by_queue(s, ask).values()), dtype=np.int64)
        self.eligible: BoolColumn = exclude_own_gang(ask, victim_table, self._lower(ask, victim_table))

    def _lower(self, ask: Ask, victim_table: VictimTable) -> BoolColumn:
        count = len(victim_table.gangs)
        reclaimable = np.array(
            [name in self._own or (name.startswith("quota/") and self._is_over_min(name)) for name in victim_table.queue_number],
            dtype=np.bool_,
        )
        eligible: BoolColumn = victim_table.gang_priority[:count] < ask.gang.priority
        eligible &= reclaimable[victim_table.gang_queue[:count]] if len(reclaimable) else False
        for number, theirs in victim_table.multi_queue.items():
            eligible[number] &= all(reclaimable[victim_table.queue_number[name]] for name in theirs)
        return eligible

    def queue_rank(self) -> IntColumn | None:
        return None

    def allows_eviction(self, pods: Sequence[Pod]) -> Verdict:
        """Pods of another quota are evicted only while it is over its minimum, checked before each unit."""
        for queue in dict.fromkeys(self._s.world.facts.members[pod.uid].queue for pod in pods):
            if queue not in self._own and not self._is_over_min(queue):
                return Verdict(ok=False, why=f"{show_queue(queue)} is within its minimum", code=WITHIN_MIN)
        return YES

    def _is_over_min(self, queue: str) -> bool:
        """Does the quota use more than its minimum of something that is needed? A quota without a minimum only borrows."""
        world, need = self._s.world, self._demand
        node = world.facts.tree.nodes.get(queue)
        if node is None:
            return False
        taken, least = world.ledger.planned(queue), dict(node.deserved.items)
        columns = world.columns.position.items()
        return any(taken[column] > least.get(name, 0) for name, column in columns if need[column] > 0 and taken[column] > 0)


JOB_PREEMPT = EvictionPolicy(
    name="job-preempt",
    rules=JobRules,
    bars_non_preemptible=True,
    reprieve_by_priority=True,
    no_victims_message="no preemptible pod of lower priority is placed, in its quota or in one that is over its minimum",
)
