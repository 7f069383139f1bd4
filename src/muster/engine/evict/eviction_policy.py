"""What tells the evicting actions apart: which pods an ask may evict, and in which order. Everything else they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Pod
from muster.state.node_table import BoolColumn, IntColumn


class EvictionRules(Protocol):
    """Which pods one ask may evict. Made before any eviction, so that what the ask is compared with stays the same."""

    @property
    def eligible(self) -> BoolColumn:
        """A column over gangs: those that the ask may evict in principle."""
        ...

    def queue_rank(self) -> IntColumn | None:
        """A rank over gangs by their queues, where that goes before their priority; None where priority alone decides."""
        ...

    def allows_eviction(self, pods: Sequence[Pod]) -> Verdict:
        """Asked before each unit is evicted, with the units before it already evicted."""
        ...


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """What tells the evicting actions apart."""

    name: str
    rules: Callable[[Session, Ask, VictimTable], EvictionRules]
    bars_non_preemptible: bool = False
    """Pods that are not preemptible in their quota are protected too."""
    reprieve_by_priority: bool = False
    """Victims are put back by their priority, not by what they cost."""
    no_victims_message: str = ""
    """The sentence for an ask that may evict no pod at all."""


def allows_eviction(s: Session, ask: Ask, rules: EvictionRules, pods: Sequence[Pod]) -> Verdict:
    """May this unit be evicted too? The action's rules and every plugin with a limit must agree."""
    verdict = rules.allows_eviction(pods)
    if not verdict.ok:
        return verdict
    for plugin in s.policy.limits_evictions:
        verdict = plugin.allows_eviction(s, ask, pods)
        if not verdict.ok:
            return verdict
    return YES


class PreemptRules:
    """Strictly lower priority, in the asking gang's own queue."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable) -> None:  # noqa: ARG002
        self.eligible: BoolColumn = lower_priority_in_same_queue(ask, victim_table)

    def queue_rank(self) -> IntColumn | None:
        return None

    def allows_eviction(self, pods: Sequence[Pod]) -> Verdict:  # noqa: ARG002
        return YES


def lower_priority_in_same_queue(ask: Ask, victim_table: VictimTable) -> BoolColumn:
    """Gangs of strictly lower priority that share a queue with the asking gang."""
    count = len(victim_table.gangs)
    lower: BoolColumn = victim_table.gang_priority[:count] < ask.gang.priority
    if not lower.any():
        return lower
    queues = {role.queue for role in ask.gang.roles}
    numbers = [victim_table.queue_number[queue] for queue in sorted(queues) if queue in victim_table.queue_number]
    same = mask_of(numbers, len(victim_table.queue_number))[victim_table.gang_queue[:count]]
    for number, theirs in victim_table.multi_queue.items():
        same[number] = bool(queues & theirs)
    return exclude_own_gang(ask, victim_table, same & lower)


def exclude_own_gang(ask: Ask, victim_table: VictimTable, eligible: BoolColumn) -> BoolColumn:
    own = victim_table.gang_number.get(ask.gang.key)
    if own is not None:
        eligible[own] = False
    return eligible


GANG_PREEMPT = EvictionPolicy(
    name="gang-preempt",
    rules=PreemptRules,
    no_victims_message="no pod of lower priority in its queue is placed",
)

PREEMPT = EvictionPolicy(
    name="preempt",
    rules=PreemptRules,
    no_victims_message=GANG_PREEMPT.no_victims_message,
)
