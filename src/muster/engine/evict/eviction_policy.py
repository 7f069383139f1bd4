"""What tells the evicting actions apart: which pods an ask may evict, and in which order. Everything else they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from muster.engine.evict.contested import Contested
from muster.engine.evict.victims import VictimTable, mask_of
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, IntColumn

Units = Sequence[Sequence[Pod]]


class EvictionRules(ABC):
    """Which pods one ask may evict. Made before any eviction, so that what the ask is compared with stays the same. What most
    actions have in common is the default."""

    eligible: BoolColumn
    """A column over gangs: those that the ask may evict in principle."""
    preempted_by: tuple[str, BoolColumn] | None = None
    """Gangs, as a column, that another action may evict for the ask as well, by its name: what protects them is what protects them
    there."""

    @abstractmethod
    def allows_eviction(self, pods: Sequence[Pod], *, priority: int) -> Verdict:
        """Asked before each unit is evicted, with the units before it already evicted. `priority`: of the unit."""

    @abstractmethod
    def may_take(self, queue: str) -> bool:
        """May any pod be evicted for the members of the ask in this queue?"""

    @abstractmethod
    def why_nobody(self) -> str:
        """The sentence for an ask that may evict no pod at all."""

    @abstractmethod
    def why_evicted(self, pod: Pod) -> str:
        """Why this pod is evicted for the ask, before anything of the plan is done: queue, share or priority of both sides."""

    def queue_rank(self) -> IntColumn | None:
        """A rank over gangs by their queues, where that goes before their priority; None where priority alone decides."""
        return None

    def allows_plan(self, units: Sequence[Sequence[Pod]]) -> Verdict:  # noqa: ARG002
        """Asked of a finished plan, with its units evicted and the members of the ask nominated."""
        return YES

    def is_own(self, queue: str, pods: Sequence[Pod], *, priority: int) -> bool:
        """Is the unit taken by priority for the members of the ask in this queue, as one of their own queue?"""
        return not self.why_not_for(queue, pods, priority=priority)

    def why_not_for(self, queue: str, pods: Sequence[Pod], *, priority: int) -> str:  # noqa: ARG002
        """Why a unit may not be evicted for the members of the ask in this queue, with the units before it evicted; or nothing."""
        return self.allows_eviction(pods, priority=priority).why

    def why_not_taking(self, queue: str, units: Units, later: Units) -> str:  # noqa: ARG002
        """Why the members in this queue may not have these units of others, with the plan finished; or nothing. `later`: units
        that are evicted after these, for members in other queues."""
        return ""

    def crossing_gangs(self, victims: Sequence[Pod]) -> tuple[str, ...]:  # noqa: ARG002
        """Gangs, by key, that bring a queue of theirs below its share when these are evicted in this order."""
        return ()

    def needs_other_nodes(self) -> bool:
        """May pods on other nodes have to be evicted for one pod, for its queue's sake?"""
        return False

    def barred_by_queue(self) -> Iterable[tuple[str, IntColumn]]:
        """Why other queues do not give, and the gangs that the ask could evict otherwise, by their numbers."""
        return ()


STALE_GANGS_ACTION = "stale-gangs"
"""Evictions of gangs that cannot complete, for one of the same priority that does. It belongs to the last evicting action."""


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """What tells the evicting actions apart."""

    name: str
    rules: Callable[[Session, Ask, VictimTable, Contested], EvictionRules]
    is_preempting: bool = False
    """Only pods of lower priority in the asking gang's own queues are evicted: where there are none, nothing else matters."""
    is_shared_out: bool = True
    """In a GangGroup over several queues each unit is taken for the members in one of them."""


def allows_eviction(s: Session, ask: Ask, rules: EvictionRules, pods: Sequence[Pod], *, priority: int) -> Verdict:
    """May this unit be evicted too? The action's rules and every plugin with a limit must agree."""
    verdict = rules.allows_eviction(pods, priority=priority)
    if not verdict.ok:
        return verdict
    for plugin in s.policy.limits_evictions:
        verdict = plugin.allows_eviction(s, ask, pods)
        if not verdict.ok:
            return verdict
    return YES


NO_LOWER_PRIORITY = "no pod of lower priority in its queue is placed"


class PreemptRules(EvictionRules):
    """Strictly lower priority, in the asking gang's own queue."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable, contested: Contested) -> None:
        self._s, self._ask, self._victim_table = s, ask, victim_table
        self._queues = set(contested)
        self.eligible = lower_priority_in_same_queue(s, ask, victim_table, self._queues)

    def allows_eviction(self, pods: Sequence[Pod], *, priority: int) -> Verdict:
        members = [self._s.world.placements.charged(pod) for pod in pods]
        other = next((member.queue for member in members if member is not None and member.queue not in self._queues), None)
        if other is not None:
            return Verdict(ok=False, why=f"a gang of its queue has members in {show_queue(other)}, too")
        return lower_priority(self._ask, pods, priority)

    def why_not_for(self, queue: str, pods: Sequence[Pod], *, priority: int) -> str:
        members = [self._s.world.placements.charged(pod) for pod in pods]
        if all(member is None or member.queue != queue for member in members):
            return f"{pods[0].full_name} is not in {show_queue(queue)}"
        return self.allows_eviction(pods, priority=priority).why

    def may_take(self, queue: str) -> bool:
        return bool((self.eligible & in_queues(self._victim_table, {queue})).any())

    def why_nobody(self) -> str:
        return NO_LOWER_PRIORITY

    def why_evicted(self, pod: Pod) -> str:
        return priority_against(self._s, pod, self._ask.gang)


def priority_against(s: Session, pod: Pod, gang: Gang) -> str:
    own = s.world.gang_of(pod)
    return f"priority {own.priority if own is not None else pod.priority} against {gang.priority}"


def lower_priority(ask: Ask, pods: Sequence[Pod], priority: int) -> Verdict:
    """A whole gang has the gang's priority; a member that is evicted without it must have a lower priority itself."""
    if priority >= ask.gang.priority:
        return Verdict(ok=False, why=f"{pods[0].full_name} has priority {priority}, not below {ask.gang.priority}")
    return YES


_LOWER: Derived[BoolColumn] = Derived("gangs of lower priority by queues", follows=Topic.GANGS, most=16)


def lower_priority_in_same_queue(s: Session, ask: Ask, victim_table: VictimTable, queues: Set[str]) -> BoolColumn:
    """Gangs with placed pods, of strictly lower priority and in these queues, which are those of the asking gang or of some of its
    roles."""

    def build() -> BoolColumn:
        lower: BoolColumn = victim_table.gang_priority[: len(victim_table.gangs)] < ask.gang.priority
        return lower & in_queues(victim_table, queues) if lower.any() else lower

    found = _LOWER.of(s.world, build, key=(victim_table.generation, ask.gang.priority, frozenset(queues)))
    return exclude_own_gang(ask, victim_table, found & victim_table.is_placed)


def in_queues(victim_table: VictimTable, queues: Set[str]) -> BoolColumn:
    """Gangs with a role in one of these queues."""
    numbers = [victim_table.queue_number[queue] for queue in sorted(queues) if queue in victim_table.queue_number]
    found = mask_of(numbers, len(victim_table.queue_number))[victim_table.gang_queue[: len(victim_table.gangs)]]
    for number, theirs in victim_table.multi_queue.items():
        found[number] = not queues.isdisjoint(theirs)
    return found


def exclude_own_gang(ask: Ask, victim_table: VictimTable, eligible: BoolColumn) -> BoolColumn:
    own = victim_table.gang_number.get(ask.gang.key)
    if own is None or not eligible[own]:
        return eligible
    others = eligible.copy()
    others[own] = False
    return others


GANG_PREEMPT = EvictionPolicy(name="gang-preempt", rules=PreemptRules, is_preempting=True)
PREEMPT = EvictionPolicy(name="preempt", rules=PreemptRules, is_preempting=True)
