"""Reclaim: a queue that is within its share reclaims what others use beyond theirs.

Compared are the two queues just below the common ancestor. The reclaiming queue must stay within its deserved share in at least one
of the dimensions that it requests, and its dominant share with the request must be below the victim's without it: so two queues
cannot reclaim from each other in turn. A queue is reclaimed from only while it is over its share, checked before each unit; never
below its guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.evict.eviction_policy import EvictionPolicy, exclude_own_gang, lower_priority_in_same_queue
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.engine.shares import dominant_share
from muster.model.effects import YES, Verdict
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.model.resource_amounts import PODS, Resources, short_name
from muster.state.node_table import BoolColumn, IntColumn
from muster.state.resource_columns import Amounts

NOT_ENTITLED = "NotEntitled"


class ReclaimRules:
    """Gangs in other queues that are over their share, and those that the asking gang could preempt in its own."""

    def __init__(self, s: Session, ask: Ask, victim_table: VictimTable) -> None:
        self._s, self._ask, self._victim_table = s, ask, victim_table
        self._own = {role.queue for role in ask.gang.roles}
        self._demand = demand_by_queue(s, ask)
        own = lower_priority_in_same_queue(ask, victim_table)
        self._standing = _standing_without(s, self._demand, _usage_of(s, victim_table, own))
        """What each of the asking gang's queues uses without the pods of its own that the ask may evict, as it was before any
        eviction: for the ask these do not count as used, whether they are evicted or not."""
        self.eligible: BoolColumn = own | self._over_their_share()
        exclude_own_gang(ask, victim_table, self.eligible)

    def _over_their_share(self) -> BoolColumn:
        victim_table, count = self._victim_table, len(self._victim_table.gangs)
        names = list(victim_table.queue_number)
        over = np.array([name not in self._own and self.may_reclaim_from(name).ok for name in names], dtype=np.bool_)
        eligible: BoolColumn = over[victim_table.gang_queue[:count]] if len(over) else np.zeros(count, dtype=np.bool_)
        for number, theirs in victim_table.multi_queue.items():
            eligible[number] |= any(over[victim_table.queue_number[name]] for name in theirs if name in victim_table.queue_number)
        return eligible

    def queue_rank(self) -> IntColumn:
        """The reverse of the order in which queues are served: the lowest priority first, of equals the one furthest over its
        share; those within their shares come last."""
        s, victim_table = self._s, self._victim_table
        far = {name: _overuse_ratio(s, name) for name in victim_table.queue_number}
        keys = [(far[name] <= 0, _queue_priority(s, name), -far[name]) for name in victim_table.queue_number]
        place = {key: at for at, key in enumerate(sorted(set(keys)))}
        order = np.array([place[key] for key in keys], dtype=np.int64)
        rank: IntColumn = order[victim_table.gang_queue[: len(victim_table.gangs)]]
        return rank

    def allows_eviction(self, pods: Sequence[Pod]) -> Verdict:
        """Checked with the units before it already evicted: the last unit may cross the deserved share, never the guarantee."""
        s = self._s
        evicted: dict[str, Amounts] = {}
        for pod in pods:
            queue = s.world.facts.members[pod.uid].queue
            if queue not in self._own:
                evicted[queue] = evicted.get(queue, 0) + s.world.request(pod)
        for queue, amounts in evicted.items():
            verdict = self.may_reclaim_from(queue)
            if not verdict.ok:
                return verdict
            for each in s.world.facts.tree.path(queue):
                crossed = _why_below_guarantee(s, each, amounts)
                if crossed:
                    return Verdict(ok=False, why=crossed, code=NOT_ENTITLED)
        return YES

    def may_reclaim_from(self, queue: str) -> Verdict:
        """Is this queue over its share in a dimension that is requested, and the asking gang entitled to it?"""
        node = self._s.world.facts.tree.nodes.get(queue)
        if node is None or not node.reclaimable:
            return Verdict(ok=False, why=f"{show_queue(queue)} is not reclaimable", code=NOT_ENTITLED)
        requested: dict[str, Amounts] = {}
        victims: dict[str, str] = {}
        for mine, amounts in self._demand.items():
            above, theirs = below_common_ancestor(self._s, mine, queue)
            if above == theirs:
                return Verdict(ok=False, why="one of the queues is an ancestor of the other", code=NOT_ENTITLED)
            requested[above] = requested[above] + amounts if above in requested else amounts
            victims[above] = theirs
        verdicts = (self._may_reclaim_between(above, victims[above], amounts) for above, amounts in requested.items())
        return next((verdict for verdict in verdicts if not verdict.ok), YES)

    def _may_reclaim_between(self, reclaimer: str, victim: str, amounts: Amounts) -> Verdict:
        """Two queues with one parent: may the one reclaim so much from the other?"""
        if not self._is_within_deserved(reclaimer, amounts):
            why = f"{show_queue(reclaimer)} would not be within its deserved share of what it requests"
        elif not _is_over_share_in(self._s, victim, amounts):
            why = f"{show_queue(victim)} is within its deserved share"
        elif (unfair := self._share_not_smaller(reclaimer, victim, amounts)) is not None:
            why = f"{show_queue(reclaimer)} would have as large a share {unfair} as {show_queue(victim)} has now"
        else:
            return YES
        return Verdict(ok=False, why=why, code=NOT_ENTITLED)

    def _is_within_deserved(self, queue: str, amounts: Amounts) -> bool:
        """Do all share plugins that have an opinion find it within its share with the ask?"""
        found = [self._is_within(plugin.deserved(self._s, queue), queue, amounts) for plugin in self._s.policy.deserved_shares]
        opinions = [within for within in found if within is not None]
        return bool(opinions) and all(opinions)

    def _is_within(self, deserved: Resources, queue: str, amounts: Amounts) -> bool | None:
        """In at least one dimension that is requested and configured; in all where that is strict. None: no opinion."""
        position, standing = self._s.world.columns.position, self._standing[queue]
        within = [
            bool(standing[position[name]] + amounts[position[name]] <= value)
            for name, value in deserved.items
            if value and amounts[position[name]] > 0
        ]
        if not within:
            return None
        return all(within) if self._s.policy.settings.strict_deserved else any(within)

    def _share_not_smaller(self, reclaimer: str, victim: str, amounts: Amounts) -> str | None:
        """Would the dominant share of the one with the request be no smaller than that of the other now? Of the cluster or, where
        the policy says so and both deserve something, of what each deserves."""
        s = self._s
        plus = amounts - s.world.ledger.planned(reclaimer) + self._standing[reclaimer]
        mine, theirs = deserved_share(s, reclaimer), deserved_share(s, victim)
        if s.policy.settings.share_of == "deserved" and _has_deserved(mine) and _has_deserved(theirs):
            after, now = _share_of_deserved(s, reclaimer, mine, plus=plus), _share_of_deserved(s, victim, theirs)
            return "of what it deserves" if after >= now else None
        return "of the cluster" if dominant_share(s, reclaimer, plus=plus) >= dominant_share(s, victim) else None


def _usage_of(s: Session, victim_table: VictimTable, gangs: BoolColumn) -> dict[str, Amounts]:
    """What the placed pods of these gangs use, by queue: for an ask that may evict them it does not count as used."""
    alive = np.flatnonzero(victim_table.alive[: len(victim_table.pods)])
    mine = alive[gangs[victim_table.gang[alive]] & ~victim_table.not_evictable[alive]]
    usage: dict[str, Amounts] = {}
    for at in mine.tolist():
        for queue in s.world.facts.tree.path(s.world.facts.members[victim_table.pods[at].uid].queue):
            usage[queue] = usage[queue] + victim_table.request[at] if queue in usage else victim_table.request[at].copy()
    return usage


def _standing_without(s: Session, demand: dict[str, Amounts], victims: dict[str, Amounts]) -> dict[str, Amounts]:
    standing: dict[str, Amounts] = {}
    for mine in demand:
        for queue in s.world.facts.tree.path(mine):
            taken = s.world.ledger.planned(queue)
            standing[queue] = np.maximum(taken - victims[queue], 0) if queue in victims else taken
    return standing


def _queue_priority(s: Session, queue: str) -> int:
    node = s.world.facts.tree.nodes.get(queue)
    return node.priority if node is not None else 0


def _overuse_ratio(s: Session, queue: str) -> float:
    """Its usage beyond its share as a part of that share, as far as all share plugins agree."""
    found: list[float] = []
    for plugin in s.policy.deserved_shares:
        deserved = plugin.deserved(s, queue)
        over = plugin.over_share(s, queue)
        found.append(max((value / max(deserved[name], 1) for name, value in over.items), default=0.0))
    return min(found, default=0.0)


def _has_deserved(deserved: Resources) -> bool:
    return any(value for _, value in deserved.items)


def _share_of_deserved(s: Session, queue: str, deserved: Resources, *, plus: Amounts | None = None) -> float:
    """The largest part of anything that the queue deserves which it has, or would have with `plus` added."""
    position, taken = s.world.columns.position, s.world.ledger.planned(queue)
    taken = taken if plus is None else taken + plus
    return max(float(taken[position[name]] / value) for name, value in deserved.items if value)


def _is_over_share_in(s: Session, queue: str, need: Amounts) -> bool:
    position = s.world.columns.position
    return any(need[position[name]] > 0 for name in s.over_share(queue))


def _why_below_guarantee(s: Session, queue: str, amounts: Amounts) -> str:
    node, position = s.world.facts.tree.nodes[queue], s.world.columns.position
    left = s.world.ledger.planned(queue) - amounts
    for name, value in node.guarantee.items:
        if value and amounts[position[name]] and left[position[name]] < value:
            return f"{show_queue(queue)} would fall below its guarantee of {short_name(name)}"
    if s.policy.settings.strict_deserved:
        for name, value in deserved_share(s, queue).items:
            if value and amounts[position[name]] and left[position[name]] < value:
                return f"{show_queue(queue)} would fall below its deserved share of {short_name(name)}"
    return ""


def below_common_ancestor(s: Session, a: str, b: str) -> tuple[str, str]:
    """The ancestors of two queues just below their common one."""
    up_a, up_b = s.world.facts.tree.path(a)[::-1], s.world.facts.tree.path(b)[::-1]
    for one, other in zip(up_a, up_b, strict=False):
        if one != other:
            return one, other
    return a, a


def demand_by_queue(s: Session, ask: Ask) -> dict[str, Amounts]:
    """What the ask needs in each of its queues; the number of pods is no dimension of a share."""
    total: dict[str, Amounts] = {}
    pods = s.world.columns.position[PODS]
    for pod in ask.pods:
        request = s.world.request(pod).copy()
        request[pods] = 0
        queue = s.world.facts.members[pod.uid].queue
        total[queue] = total[queue] + request if queue in total else request
    return total


def deserved_share(s: Session, queue: str) -> Resources:
    """What the queue deserves, as the most generous of the share plugins says that have an opinion on a dimension."""
    most: dict[str, int] = {}
    for plugin in s.policy.deserved_shares:
        for name, value in plugin.deserved(s, queue).items:
            most[name] = max(value, most.get(name, 0))
    return Resources.of(most)


GANG_RECLAIM = EvictionPolicy(
    name="gang-reclaim",
    rules=ReclaimRules,
    no_victims_message="no other queue is over its share in what it requests, and no pod of lower priority in its own is placed",
)
