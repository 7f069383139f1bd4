"""Job-preempt: room in a quota, and on nodes, for a whole job.

Whom a job may take: preemptible pods of strictly lower priority, in its own quota, and in other quotas while these are over their
minimum. Everything else is the one search; only the order in which victims are put back is the job's own: the most important first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.policy import EvictionPolicy, without_self
from muster.engine.evict.reclaim import demand_by_queue
from muster.engine.evict.seats import SeatTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.state.columns import Amounts
from muster.state.table import BoolColumn

CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
WITHIN_MIN = "WithinMinimum"


def may_trigger(s: Session, gang: Gang) -> str:
    """Why this job may cause no eviction, or nothing."""
    said = {pod.labels.get(CAN_PREEMPT) for pod in gang.pods()}
    if gang.never_preempts:
        return "its preemption policy is Never"
    if s.policy.needs_can_preempt and said != {"true"}:
        return f"its pods do not say {CAN_PREEMPT}: true"
    if "false" in said:
        return f"its pods say {CAN_PREEMPT}: false"
    return ""


def lower_in_quotas(s: Session, ask: Ask, seats: SeatTable) -> BoolColumn:
    """Gangs of strictly lower priority in quotas that may give: the job's own, and others over their minimum."""
    count = len(seats.gangs)
    own = {role.queue for role in ask.gang.roles}
    gives = np.array(
        [name in own or (name.startswith("quota/") and _is_over_min(s, name, demand_total(s, ask))) for name in seats.queue_number],
        dtype=np.bool_,
    )
    eligible: BoolColumn = seats.gang_priority[:count] < ask.gang.priority
    eligible &= gives[seats.gang_queue[:count]] if len(gives) else False
    for number, theirs in seats.mixed.items():
        eligible[number] &= all(gives[seats.queue_number[name]] for name in theirs)
    return without_self(ask, seats, eligible)


def demand_total(s: Session, ask: Ask) -> Amounts:
    """What the ask needs in all. Asked before each unit, and always the same for one ask."""
    kept = s.scratch.get("demand of a job")
    if isinstance(kept, _Demand) and kept.ask is ask:
        return kept.total
    total = np.asarray(sum(demand_by_queue(s, ask).values()), dtype=np.int64)
    s.scratch["demand of a job"] = _Demand(ask, total)
    return total


@dataclass(frozen=True, slots=True)
class _Demand:
    ask: Ask
    total: Amounts


def _is_over_min(s: Session, queue: str, need: Amounts) -> bool:
    """Does the quota use more than its minimum of something that is needed? A quota without a minimum only borrows."""
    node, position = s.world.tree.nodes.get(queue), s.world.columns.position
    if node is None:
        return False
    taken = s.world.ledger.taken(queue)
    least = dict(node.deserved.items)
    return any(taken[column] > least.get(name, 0) for name, column in position.items() if need[column] > 0 and taken[column] > 0)


def may_take_unit(s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict:
    """Another quota gives only while it is over its minimum, judged before each unit."""
    own = {role.queue for role in ask.gang.roles}
    need = demand_total(s, ask)
    for queue in dict.fromkeys(s.world.members[pod.uid].queue for pod in pods):
        if queue not in own and not _is_over_min(s, queue, need):
            return Verdict(ok=False, why=f"{show_queue(queue)} is within its minimum", code=WITHIN_MIN)
    return YES


JOB_PREEMPT = EvictionPolicy(
    name="job-preempt",
    eligible=lower_in_quotas,
    may_take=may_take_unit,
    firm_seats=True,
    important_first=True,
    nobody="no preemptible pod of lower priority has a seat, in its quota or in one that is over its minimum",
)
