"""What the waiting gangs of one namespace may cost a cycle: so many refused attempts, whatever it wants. Where all gangs are in one
namespace, nobody else waits for them, and nothing is bounded.

Whoever has more gangs waiting than that gets them attempted in turn: the first of the order in every cycle, the others over several
cycles, the one that was attempted longest ago first. What succeeds is not counted. Cost is counted in attempts and not in seconds,
so that equal events lead to equal decisions; what one attempt costs above the budget is paid in the cycles after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

from muster.engine import explain
from muster.engine.nominations import AttemptResult
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import RESERVATIONS
from muster.model.topics import Topic
from muster.state.derived.gangs_by import GangsBy, gangs_by
from muster.state.derived_values import Derived
from muster.state.memory import Attempts

DEFERRED = "gangs deferred"

_LOOKED_AT = 8
"""So many times the budget are looked at in a cycle, as long as some of them succeed."""
_PART_BESIDE_NEW = 4
"""A crowded namespace has this part of its budget in a cycle in which another one has new gangs: these are to be bound at once."""
_SIGNATURES_OF_ONE = 4
"""So many different members cost one attempt."""
_PLACEMENTS_OF_ONE = 8
"""So many placements of a search for victims that found none cost one attempt."""


class AttemptBudget:
    def __init__(self, s: Session) -> None:
        self._s = s
        self._is_bounded = _has_several_namespaces(s)
        self._most = s.policy.settings.max_refused_attempts
        self._debts = s.world.memory.attempt_debts
        self._exhausted = frozenset(namespace for namespace, debt in self._debts.items() if _PART_BESIDE_NEW * debt >= self._most)
        """Namespaces that used up their budget, or that part of it, in the cycle before."""
        self._unbounded = self._with_nominations()
        """Gangs that are attempted whatever was refused before them."""
        self._in_turn: dict[str, set[str]] = {}
        """By namespace, those that an attempt is kept for in this cycle and that did not have it yet."""
        self._refused_kinds: set[Hashable] = set()
        """New gangs like one of these are refused as quickly."""
        self._crowded_beside_new: frozenset[str] = frozenset()
        self._is_new = False
        """Of the gang that has its attempt now."""
        s.world.memory.pay_attempts(self._most)

    def candidates(self, gangs: Sequence[Gang]) -> list[Gang]:
        """Of these gangs, those that may be attempted in this cycle."""
        if not self._is_bounded:
            return list(gangs)
        waiting: dict[str, list[Gang]] = {}
        for gang in gangs:
            waiting.setdefault(namespace_of(gang), []).append(gang)
        crowded = [name for name, theirs in waiting.items() if len(theirs) > self._left(name)]
        if not crowded:
            return list(gangs)
        attempts = self._s.world.memory.attempts
        others = (gang for name, theirs in waiting.items() if name not in crowded for gang in theirs)
        if any(not attempts[gang.key].count for gang in others):
            self._crowded_beside_new = frozenset(crowded)
        for namespace in crowded:
            waiting[namespace] = self._of_crowded(namespace, waiting[namespace])
        return [gang for theirs in waiting.values() for gang in theirs]

    def allows(self, gang: Gang) -> bool:
        """May this gang have its attempt, after what was refused in its namespace?"""
        if not self._is_bounded:
            return True
        self._is_new = not self._s.world.memory.attempts[gang.key].count
        namespace = namespace_of(gang)
        in_turn = self._in_turn.get(namespace, set())
        if gang.key in in_turn:
            in_turn.remove(gang.key)
            return True
        if self._left(namespace) > len(in_turn) or gang.key in self._unbounded or self._is_like_a_refused_one(gang):
            return True
        self._s.count(DEFERRED)
        self._defer(gang)
        return False

    def charge(self, gang: Gang, result: AttemptResult) -> None:
        """What the attempt cost, if it was refused: its different members."""
        if (
            not self._is_bounded
            or result.verdict.ok
            or not self._s.world.memory.attempts[gang.key].count
            or self._is_like_a_refused_one(gang)
        ):
            return
        waiting = {pod.signature for pod in gang.pods() if pod.uid not in self._s.world.placements.by_uid}
        self._s.world.memory.charge_attempts(namespace_of(gang), -(-len(waiting) // _SIGNATURES_OF_ONE))
        if self._is_new and len(waiting) == 1 and not self._s.has_inter_pod_constraints(gang.pods()[0]):
            self._refused_kinds.add(_kind(gang))

    def _left(self, namespace: str) -> int:
        most = max(2, self._most // _PART_BESIDE_NEW) if namespace in self._crowded_beside_new else self._most
        return most - self._debts.get(namespace, 0)

    def _is_like_a_refused_one(self, gang: Gang) -> bool:
        return self._is_new and _kind(gang) in self._refused_kinds

    def _with_nominations(self) -> frozenset[str]:
        """Gangs that have nominations, or lost some in this cycle, or that nodes are kept for: others wait because of them."""
        world = self._s.world
        lost = {step.pod.uid for step in world.placements.steps() if step.before.phase in RESERVATIONS}
        nominated = {uid for uid in world.placements.reservations if uid not in world.placements.reserved}
        gangs = {world.facts.members[uid].gang for uid in lost | nominated if uid in world.facts.members}
        return frozenset(gangs.union(world.memory.backfill_reservations))

    def _of_crowded(self, namespace: str, gangs: Sequence[Gang]) -> list[Gang]:
        """Half of the budget is for the first of the order, half for those whose turn it is. The next of the order are looked at as
        long as any of these succeed, and all new ones unless the budget was used up in the cycle before."""
        attempts, left = self._s.world.memory.attempts, self._left(namespace)
        in_order = sorted(gangs, key=self._s.gang_key)
        head, others = max(0, left - left // 2), max(0, left // 2)
        in_turn = in_order[:head] + heapq.nsmallest(others, in_order[head:], key=lambda gang: _last_attempt(attempts[gang.key]))
        self._in_turn[namespace] = {gang.key for gang in in_turn}
        looked_at = self._in_turn[namespace] | self._unbounded
        looked_at |= {gang.key for gang in in_order[: _LOOKED_AT * left]} if left > 0 else set()
        takes_new = left > 0 and namespace not in self._exhausted
        if takes_new:
            looked_at |= {gang.key for gang in gangs if not attempts[gang.key].count}
        chosen = [gang for gang in in_order if gang.key in looked_at]
        if len(chosen) < len(gangs):
            self._s.count(DEFERRED, by=len(gangs) - len(chosen))
        for gang in gangs:
            if attempts[gang.key].verdict is None and gang.key not in looked_at:
                self._defer(gang)
        return chosen

    def _defer(self, gang: Gang) -> None:
        """It has its turn in a later cycle, and keeps the verdict that it has."""
        if self._s.world.memory.attempts[gang.key].verdict is None:
            self._s.record_verdict(gang, explain.deferred(self._s, namespace_of(gang), self._most))


def charge_search(s: Session, gang: Gang, *, placements: int) -> None:
    """A search for victims found no plan, after so many placements."""
    if not _has_several_namespaces(s):
        return
    s.world.memory.charge_attempts(namespace_of(gang), placements // _PLACEMENTS_OF_ONE)


_NAMESPACES: Derived[GangsBy] = Derived("gangs by namespace", follows=Topic.GANGS)


def _has_several_namespaces(s: Session) -> bool:
    return len(gangs_by(_NAMESPACES, s.world, namespace_of)) > 1


def namespace_of(gang: Gang) -> str:
    """Of its first role, which also says where it is in the order."""
    return gang.full_name.partition("/")[0]


def _kind(gang: Gang) -> Hashable:
    roles = tuple((role.name, role.queue, role.min, len(role.pods)) for role in gang.roles)
    return namespace_of(gang), gang.priority, gang.min, gang.mode, gang.topology, roles, gang.pods()[0].signature


def _last_attempt(attempts: Attempts) -> float:
    return attempts.tried_at if attempts.count else 0.0
