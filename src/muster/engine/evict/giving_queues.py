"""Which other queues give to the queues of one ask, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

import numpy as np

from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_policy import priority_against
from muster.engine.evict.queue_comparison import QueueComparison
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.quota import total_by_queue
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import PODS
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.facts import Member
from muster.state.node_table import BoolColumn, IntColumn
from muster.state.resource_columns import Amounts
from muster.state.world import World

NOT_LOWER = "its queue borrows, and its priority is not below that of the asking gang"

_GIVING: Derived[BoolColumn] = Derived("gangs of giving queues", follows=Topic.GANGS, most=16)


class GivingQueues:
    """`may_cross`: the last unit may take a queue below its share. `takes_by_share`: the asking queue must be within its own share;
    else it is admitted otherwise, and priority decides among those who only borrow."""

    def __init__(self, s: Session, ask: Ask, contested: Contested, *, may_cross: bool, takes_by_share: bool) -> None:
        self._s, self._gang, self._may_cross, self._takes_by_share = s, ask.gang, may_cross, takes_by_share
        self.comparisons: dict[str, QueueComparison] = {}
        """By queue of the ask whose members take."""
        demands = total_by_queue(s.world, ask.pods)
        for queue, columns in contested.items():
            demand = demands[queue].copy()
            demand[s.world.columns.position[PODS]] = 0
            self.comparisons[queue] = QueueComparison(s, queue, columns, demand)
        self._within_parent: set[str] = set()
        """Queues that give by shares nothing to the ask, and what they borrow to a sibling's gang of higher priority."""
        self._whys: dict[str, str] = {}
        self._given: dict[str, str] = {}

    def gangs(self, victim_table: VictimTable, *, also: BoolColumn) -> BoolColumn:
        """Gangs all of whose queues give at least something, or are the ask's own; and these."""
        gives = np.array([self._gives(name) for name in victim_table.queue_number], dtype=np.bool_)

        def build() -> BoolColumn:
            count = len(victim_table.gangs)
            giving: BoolColumn = gives[victim_table.gang_queue[:count]] if len(gives) else np.zeros(count, dtype=np.bool_)
            for number, theirs in victim_table.multi_queue.items():
                giving[number] = all(gives[victim_table.queue_number[name]] or name in self.comparisons for name in theirs)
            return giving

        found = _GIVING.of(self._s.world, build, key=(victim_table.generation, gives.tobytes(), *self.comparisons))
        return found | also if also.any() else found

    def _gives(self, other: str) -> bool:
        """Would the smallest unit of it be given to one of the ask's queues?"""
        gives = any(self._gives_to(queue, other) for queue in self.comparisons)
        if gives:
            self._whys.pop(other, None)
        return gives

    def _gives_to(self, queue: str, other: str) -> bool:
        comparison = self.comparisons[queue]
        if other not in self._s.world.ledger or other == queue or not (least := comparison.least_unit(other)).any():
            return False
        why = comparison.why_never_taking(other) if self._takes_by_share else ""
        why = why or comparison.why_never_giving(other, least, borrowers_give=not self._takes_by_share)
        if why and self._takes_by_share and comparison.takes_within_parent(other):
            why = comparison.why_not_borrowed(other, least)
            self._within_parent.add(other)
        if why:
            self._whys[other] = why
        return not why

    def any_gives_to(self, queue: str, victim_table: VictimTable) -> bool:
        return any(self._gives_to(queue, other) for other in victim_table.placed_queues())

    def why_not(self, pods: Sequence[Pod], *, taker: str, is_lower: bool, may_cross: bool = True, outranks: bool = False) -> str:
        """Why these need not be given to the members in a queue of the ask, with the units before them evicted; empty where each of
        their other queues gives its part. `is_lower`: they have a lower priority than the asking gang; `outranks`: a higher one.
        `may_cross`: these may take a queue below its share, too."""
        freed: dict[str, Amounts] = {}
        for pod in pods:
            queue = charged(self._s.world, pod).queue
            if queue != taker:
                freed[queue] = freed.get(queue, 0) + self._s.world.request(pod)
        for queue, amounts in freed.items():
            why = self._why_not_from(
                self.comparisons[taker], queue, amounts, may_cross=may_cross, outranks=outranks, is_lower=is_lower
            )
            if why:
                return why
        return ""

    def _why_not_from(
        self, comparison: QueueComparison, queue: str, freed: Amounts, *, may_cross: bool, outranks: bool, is_lower: bool
    ) -> str:
        if queue in self._within_parent:
            return comparison.why_not_borrowed(queue, freed) if is_lower else NOT_LOWER
        return comparison.why_not_giving(
            queue, freed, may_cross=may_cross and self._may_cross, borrowers_give=not self._takes_by_share, outranks=outranks
        )

    def why_not_taking(self, queue: str, units: Iterable[Iterable[Pod]], later: Iterable[Iterable[Pod]]) -> str:
        """Why the members in this queue may not have what these units free in others, with the plan finished."""
        freed, after = (
            [(other, amounts) for other, amounts, _ in freed_by_unit(self._s.world, each) if other != queue]
            for each in (units, later)
        )
        # What the members in other queues ask for makes no giver larger.
        asked = [(other, -comparison.demand) for other, comparison in self.comparisons.items() if other != queue]
        return self.comparisons[queue].why_not_taking(freed, [*after, *asked])

    def takes_within_parent(self, queues: Set[str]) -> bool:
        """Are these siblings that give by priority what they borrow?"""
        return queues <= self._within_parent

    def why_given(self, pod: Pod) -> str:
        """What both queues have of their shares, where the pod is of another queue than the ask's; else nothing."""
        queue = charged(self._s.world, pod).queue
        if queue in self.comparisons:
            return ""
        if queue not in self._given:
            self._given[queue] = next(iter(self.comparisons.values())).usage_text(queue)
        by_priority = priority_against(self._s, pod, self._gang) if queue in self._within_parent else ""
        return ", ".join(filter(None, (self._given[queue], by_priority)))

    def crossing_gangs(self, victims: Sequence[Pod]) -> tuple[str, ...]:
        """Gangs, by key, that bring a queue below its share when these are evicted in this order."""
        found: dict[str, None] = {}
        comparison = next(iter(self.comparisons.values()))
        freed: dict[str, Amounts] = {}
        for pod in victims:
            member = self._s.world.facts.members[pod.uid]
            for level in self._giving_levels(member.queue):
                before = freed.get(level)
                freed[level] = self._s.world.request(pod) if before is None else before + self._s.world.request(pod)
                if comparison.is_below(level, freed[level]) and (before is None or not comparison.is_below(level, before)):
                    found[member.gang] = None
        return tuple(found)

    def borrowing_gangs(self, victims: Sequence[Pod]) -> tuple[str, ...]:
        """Gangs, by key, of other queues that only borrow what is evicted, as the asking queues do."""
        found: dict[str, None] = {}
        for pod in victims:
            member, request = charged(self._s.world, pod), self._s.world.request(pod)
            if member.queue not in self.comparisons and all(
                comparison.both_borrow(member.queue, request) for comparison in self.comparisons.values()
            ):
                found[member.gang] = None
        return tuple(found)

    def _giving_levels(self, queue: str) -> dict[str, None]:
        """The levels of a queue below the common ancestor with any queue of the ask; none for these."""
        pairs = [comparison.pair(queue) for comparison in self.comparisons.values()] if queue not in self.comparisons else []
        return dict.fromkeys(level for pair in pairs if pair is not None for level in pair.giving)

    def barred(self, victim_table: VictimTable, among: BoolColumn) -> Iterator[tuple[str, IntColumn]]:
        """Why queues with placed pods give nothing, and which of these gangs they have."""
        whys = {queue: self._whys[queue] for queue in victim_table.placed_queues() if queue in self._whys}
        for why in sorted(set(whys.values())):
            queues = [victim_table.queue_number[queue] for queue, theirs in whys.items() if theirs == why]
            yield why, np.flatnonzero(among & np.isin(victim_table.gang_queue[: len(among)], queues))


def charged(world: World, pod: Pod) -> Member:
    """As what it counts: what is kept for a moved pod counts as that pod did."""
    member = world.placements.charged(pod)
    assert member is not None, f"{pod.full_name} counts in no queue"
    return member


def freed_by_unit(world: World, units: Iterable[Iterable[Pod]]) -> Iterator[tuple[str, Amounts, int]]:
    """What each unit frees in each of its queues, and the priority of its gang."""
    for unit in units:
        freed: dict[tuple[str, str], Amounts] = {}
        priorities: dict[str, int] = {}
        for pod in unit:
            member = charged(world, pod)
            key = (member.queue, member.gang)
            freed[key] = freed.get(key, 0) + world.request(pod)
            gang = world.facts.gangs.get(member.gang)
            priorities[member.gang] = gang.priority if gang is not None else pod.priority
        yield from ((queue, amounts, priorities[gang]) for (queue, gang), amounts in freed.items())
