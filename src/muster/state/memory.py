"""What the scheduler remembers beside what it observed: attempts, plans, and what it last reported.

Every write is journaled: a trial that is undone undoes what was remembered in it, as it undoes placements. What was reported is
kept by the UID of the object that it was reported on, and forgotten with that object.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from muster.model.effects import Verdict
from muster.model.gang import Gang
from muster.model.pod import Placement
from muster.model.saved_state import (
    NO_LOSSES,
    UNKNOWN,
    CancelledEviction,
    Losses,
    PastUse,
    SavedHistory,
    SavedPlan,
    saved_plan_name,
)
from muster.model.topics import Topic, TopicKey
from muster.state.journaled_dict import JournaledDict
from muster.state.reserve_pods import Move

if TYPE_CHECKING:
    from muster.state.changes import Changes
    from muster.state.gangs.declared_values import Minimums
    from muster.state.placements import Journal


@dataclass(frozen=True, slots=True)
class Attempts:
    """What is remembered of a gang's attempts: how many, and why the last one was refused."""

    count: int = 0
    verdict: Verdict | None = None
    topics: tuple[TopicKey, ...] = ()
    versions: tuple[int, ...] = ()
    """What the verdict names that can change it, and how often that had changed when it was given."""
    tried_at: float = 0.0
    started: float | None = None
    """When it was first attempted."""
    enqueued: bool = False
    """True once its minimum resources were found to fit."""
    not_admitted: bool = False
    """True while they were found not to."""


NOT_ATTEMPTED = Attempts()

STATUS, CONDITION, PROBLEMS = "status", "condition", "problems"
REPORTS = (STATUS, CONDITION, PROBLEMS)
"""What is reported on an object."""


@dataclass(frozen=True, slots=True)
class EvictionRefusal:
    """Which disruption budget would not let a pod go, or none in particular, and when."""

    budget: str
    at: float


@dataclass(frozen=True, slots=True)
class RefusedBinds:
    """How often the API server refused to bind a pod, when it did so last, and what it said."""

    count: int
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class ActivePlan:
    """A plan under way: for which gang, its victims, and since when."""

    gang: str
    victims: tuple[str, ...]
    since: float
    action: str = ""
    """The one that chose the victims."""
    soft: bool = False
    """Its evictions are soft: they can be cancelled."""
    released_by: float = 0.0
    """When the last of its victims should have terminated, as far as is known."""


@dataclass(frozen=True, slots=True)
class PlanLosses:
    """What one plan took from a gang, as it counts in the gang's losses. Evictions that fail are taken out of it."""

    key: str
    """Whose losses: see `Memory.losses`."""
    hours: tuple[tuple[str, float], ...]
    """Of each evicted pod, by UID."""
    min: int
    """Of the gang: with so many pods evicted it counts as evicted itself."""
    per_pod: int
    """The size of a gang that is scheduled pod by pod: each of its pods counts for its part. Zero for others."""
    part: float
    reclaims: bool
    at: float
    before: Losses
    crosses_for: str = ""
    """The history key of the gang that the plan is for, where this one brings a queue below its share."""
    moves: bool = False
    """Its pods are only moved: that is no eviction after which the gang has to pause."""

    @property
    def crossings(self) -> int:
        return 1 if self.crosses_for and self.hours else 0

    def counts(self) -> tuple[float, float, float]:
        """What it adds in evictions, reclaims and hours."""
        pods = len(self.hours)
        evictions = pods / self.per_pod if self.per_pod else float(0 < pods >= self.min)
        evictions *= not self.moves
        reclaims = float(self.reclaims and pods > 0)
        return evictions * self.part, reclaims * self.part, sum(hours for _, hours in self.hours)


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """Nodes that are kept for a gang that has waited long, and when it can start there, where that is known. No nodes: its queue is
    full, and what it asks for there is kept."""

    nodes: tuple[str, ...]
    starts_at: float | None
    checked_at: float
    """When that was worked out."""
    since: float
    """When these nodes were chosen."""
    moves: int = 0
    """How often others had been chosen before."""

    @property
    def start(self) -> float:
        return inf if self.starts_at is None else self.starts_at


@dataclass(frozen=True, slots=True)
class BindingReservation:
    """A reservation whose bind is under way: the pod goes back to it if that fails."""

    reservation: Placement
    plan: ActivePlan | None


@dataclass(frozen=True, slots=True)
class QueuesReported:
    """What the reports on queues were made from."""

    ledger: int
    queues: tuple[int, ...]
    demand: int
    fair_shares: bytes
    """Of all queues, where they are reported."""


class Memory:
    def __init__(self, journal: Journal, changes: Changes) -> None:
        self._changes = changes
        self.cycle = 0
        self.decided_at = -1.0
        """How many cycles were run, and the time of the last one."""
        self.reported_placements = -1
        self.reported_gangs = -1
        """How far the logs of changes were looked through for something to report."""
        self.reported_queues: QueuesReported | None = None
        self.noted_placements = -1
        self.noted_gangs = -1
        """How far they were looked through for gangs below their minimum."""
        self.attempts: JournaledDict[str, Attempts] = JournaledDict(journal)
        """By gang."""
        self.attempt_debts: JournaledDict[str, int] = JournaledDict(journal)
        self.plans: JournaledDict[str, ActivePlan] = JournaledDict(journal)
        """Plans whose nominations are not all bound or ended, by name."""
        self.last_minimums: JournaledDict[str, Minimums] = JournaledDict(journal)
        """By gang, the minimums that could last be read, while its PodGroup is gone or cannot be read."""
        self.nominated_since: JournaledDict[str, float] = JournaledDict(journal)
        """Since when gangs have had a nomination, when the last cycle ended: their wait time stands still."""
        self.binding_reservations: JournaledDict[str, BindingReservation] = JournaledDict(journal)
        """Reservations and nominations that are being bound, by UID, until the API server shows the pod on its node."""
        self.refused_binds: JournaledDict[str, RefusedBinds] = JournaledDict(journal)
        """Pods whose bind was refused, by UID, until they are bound."""
        self.unwritten_reservations: JournaledDict[str, str] = JournaledDict(journal)
        """Those that could not be written and why, by UID, until the next cycle ends them."""
        self.bound_by_others: JournaledDict[str, str] = JournaledDict(journal)
        """Pods that somebody else bound while a node was kept for them, and that node, by UID, until that is cleared."""
        self.timed_out: JournaledDict[str, float] = JournaledDict(journal)
        """Pods that were marked as timed out and when, by UID, until their objects show it, or should have."""
        self.refused_evictions: JournaledDict[str, EvictionRefusal] = JournaledDict(journal)
        """Pods whose eviction was refused, by UID: not evicted again before the budget that refused it changes, or for a while."""
        self.cancelled_evictions: JournaledDict[str, CancelledEviction] = JournaledDict(journal)
        """Pods whose soft eviction was cancelled, by UID."""
        self.below_min_since: JournaledDict[str, float] = JournaledDict(journal)
        """Gangs that run with fewer members than their minimum, and since when."""
        self.losses: JournaledDict[str, Losses] = JournaledDict(journal)
        """What gangs lost by evictions, by their controller or name."""
        self.plan_losses: JournaledDict[str, PlanLosses] = JournaledDict(journal)
        """By UID of pods that are being evicted, what the plan took from their gang."""
        self.moves: JournaledDict[str, Move] = JournaledDict(journal)
        """Of pods whose successors are not bound yet, by UID of the reserve pod."""
        self.backfill_reservations: JournaledDict[str, BackfillReservation] = JournaledDict(journal)  # in the order they were made
        self.backfill_searches: JournaledDict[str, float] = JournaledDict(journal)  # when the last one was in vain, by gang
        self.past_use: JournaledDict[str, PastUse] = JournaledDict(journal)
        """What queues used, where the policy looks at it."""
        self.noted_use = -1  # how far the log of the ledger was looked through for that
        self.saved_plans: JournaledDict[str, SavedPlan] = JournaledDict(journal)
        """Plans as they were last saved, by gang."""
        self.saved_histories: JournaledDict[str, SavedHistory] = JournaledDict(journal)
        """Histories as they were last saved, by namespace."""
        self.histories_saved_at: JournaledDict[str, float] = JournaledDict(journal)
        """When that was, by namespace."""
        self.history_saved_to = 0
        """How many writes to what is saved as history were looked through."""
        self.faulty_nodes: JournaledDict[str, None] = JournaledDict(journal)
        """Nodes on which a problem was reported, by name."""
        self.reported: JournaledDict[tuple[str, str], object] = JournaledDict(journal)
        """What was last written, by the UID of the object and what about it, until the object itself shows it or something else."""

    def observed_tables(self) -> tuple[object, ...]:
        """What is remembered whether or not a decision is carried out."""
        return (
            *(self.attempts, self.attempt_debts, self.below_min_since, self.past_use, self.faulty_nodes),
            *(self.backfill_reservations, self.backfill_searches),
        )

    def copied(self) -> Memory:
        """To read while this one changes: attempts and timeouts, and nothing else that it remembers."""
        made = copy(self)
        made.attempts, made.timed_out = self.attempts.copied(), self.timed_out.copied()
        return made

    # -- attempts --------------------------------------------------------------------------------------------------------------

    def begin_attempt(self, gang: str, *, now: float) -> None:
        before = self.attempts[gang]
        if before.started is None:
            # Its status says since when it is attempted.
            self._changes.gangs.add(gang)
        started = now if before.started is None else before.started
        self.attempts.set(gang, replace(before, count=before.count + 1, started=started))

    def recover_first_attempt(self, gang: str, *, at: float) -> None:
        """The scheduler before this one attempted it first at this time."""
        if gang in self.attempts:
            self.attempts.set(gang, replace(self.attempts[gang], started=at))

    def set_enqueued(self, gang: str, *, admitted: bool) -> None:
        self.attempts.set(gang, replace(self.attempts[gang], enqueued=admitted, not_admitted=not admitted))
        self._changes.gangs.add(gang)

    def charge_attempts(self, namespace: str, count: int) -> None:
        """So many attempts of a namespace were refused."""
        if count:
            self.attempt_debts.set(namespace, self.attempt_debts.get(namespace, 0) + count)

    def pay_attempts(self, count: int) -> None:
        """A cycle begins, in which each namespace has so many."""
        for namespace, debt in self.attempt_debts.items():
            if debt > count:
                self.attempt_debts.set(namespace, debt - count)
            else:
                self.attempt_debts.drop(namespace)

    def set_verdict(self, gang: str, verdict: Verdict, *, now: float) -> None:
        topics = self._changes.same(verdict.topics)
        versions = self._changes.versions(topics)
        self.attempts.set(gang, replace(self.attempts[gang], verdict=verdict, tried_at=now, topics=topics, versions=versions))

    def is_unchanged(self, attempts: Attempts) -> bool:
        """Did nothing change that the last verdict names?"""
        return attempts.verdict is not None and self._changes.versions(attempts.topics) == attempts.versions

    def retry(self, gang: str) -> None:
        """Something happened to this gang: its last verdict no longer holds."""
        attempts = self.attempts.get(gang)
        if attempts is not None and attempts.verdict is not None:
            self.attempts.set(gang, replace(attempts, verdict=None))

    def attempt_again_at(self, gang: str, at: float) -> None:
        """Its last verdict holds, but there will be more to say."""
        attempts = self.attempts.get(gang)
        if attempts is not None and attempts.verdict is not None:
            self.attempts.set(gang, replace(attempts, verdict=replace(attempts.verdict, at=at)))

    def with_last_minimums(self, gang: Gang) -> Gang:
        """The gang, with the minimums that it last had where they are not known now."""
        last = self.last_minimums.get(gang.key)
        if last is None:
            return gang
        mins = {each.role: each.min for each in last.roles}
        return replace(gang, min=last.members, roles=tuple(replace(role, min=mins.get(role.name, 0)) for role in gang.roles))

    # -- evictions that were refused -------------------------------------------------------------------------------------------

    def allow_eviction(self, uid: str) -> None:
        """The pod's eviction was refused, and may be tried again now: whoever waits for that is attempted."""
        self.refused_evictions.drop(uid)
        self._changes.placements.add(uid)
        self._changes.bump(Topic.EVICTABLE)

    # -- what evictions cost ---------------------------------------------------------------------------------------------------

    def count_losses(self, plan: PlanLosses, *, instead_of: PlanLosses | None = None) -> None:
        """A plan takes this from a gang; `instead_of`: what it was thought to take until now."""
        now, before, adds = self.losses.get(plan.key, NO_LOSSES), plan.before, plan.counts()
        known = instead_of.counts() if instead_of is not None else (0.0, 0.0, 0.0)
        counted = zip((now.evictions, now.reclaims, now.hours), adds, known, strict=True)
        evictions, reclaims, hours = (_plus(total, added - removed) for total, added, removed in counted)
        crossings = dict(now.crossings)
        crossed = instead_of.crossings if instead_of is not None else 0
        crossings[plan.crosses_for] = crossings.get(plan.crosses_for, 0) + plan.crossings - crossed
        self.losses.set(
            plan.key,
            replace(
                now,
                evictions=evictions,
                evicted_at=_last(plan.at, before.evicted_at, now.evicted_at, adds=adds[0]) if evictions else 0.0,
                reclaims=reclaims,
                reclaimed_at=_last(plan.at, before.reclaimed_at, now.reclaimed_at, adds=adds[1]) if reclaims else 0.0,
                hours=hours,
                crossings=_bounded_crossings(crossings),
                moved_at=_last(plan.at, before.moved_at, now.moved_at, adds=plan.moves and bool(plan.hours)),
            ),
        )
        for uid, _ in plan.hours:
            self.plan_losses.set(uid, plan)

    def take_back_eviction(self, uid: str) -> None:
        """The pod is not evicted after all: it was refused or cancelled."""
        plan = self.plan_losses.drop(uid)
        if plan is not None:
            self.count_losses(replace(plan, hours=tuple(each for each in plan.hours if each[0] != uid)), instead_of=plan)

    # -- nodes that are kept for a gang ----------------------------------------------------------------------------------------

    def keep_capacity(self, gang: str, reservation: BackfillReservation) -> None:
        """Other nodes may be used now, and before a later start more gangs end."""
        before = self.backfill_reservations.get(gang)
        self.backfill_reservations.set(gang, reservation)
        if before is not None and (before.nodes != reservation.nodes or before.start < reservation.start):
            self._changes.bump(Topic.FREE_CAPACITY)

    def end_backfill_reservation(self, gang: str) -> None:
        """Whoever was kept out may be placed there now."""
        if self.backfill_reservations.drop(gang) is not None:
            self._changes.bump(Topic.FREE_CAPACITY)

    # -- pods that are moved --------------------------------------------------------------------------------------------------

    def end_move(self, uid: str) -> None:
        """Nothing is kept any more: whether the gang is below its minimum counts again."""
        move = self.moves.drop(uid)
        if move is not None:
            self._changes.gangs.add(move.reserve.member.gang)

    # -- what could not be saved -----------------------------------------------------------------------------------------------

    def save_plan_again(self, gang: str) -> None:
        """The Plan was not written, or not deleted: what the API server has is not known."""
        self.saved_plans.set(gang, SavedPlan(gang, name=saved_plan_name(gang), version=UNKNOWN))

    def save_history_again(self, namespace: str) -> None:
        self.saved_histories.drop(namespace)
        self.history_saved_to = -1

    # -- forgetting ------------------------------------------------------------------------------------------------------------

    def forget_pod(self, uid: str) -> None:
        by_uid = (self.refused_binds, self.unwritten_reservations, self.bound_by_others, self.timed_out, self.binding_reservations)
        for table in (*by_uid, self.refused_evictions, self.cancelled_evictions, self.plan_losses):
            table.drop(uid)

    def forget_gang(self, key: str) -> None:
        self.attempts.drop(key)
        self.last_minimums.drop(key)
        self.below_min_since.drop(key)
        self.backfill_searches.drop(key)
        self.forget_object(key)

    def forget_object(self, uid: str) -> None:
        """The object is gone: what was reported on it says nothing about its successor of the same name."""
        for about in REPORTS:
            self.reported.drop((uid, about))


def _plus(total: float, added: float) -> float:
    """Rounded, so that what is taken back leaves nothing."""
    found = round(total + added, 9)
    return found if found > 1e-6 else 0.0


def _last(at: float, before: float, now: float, *, adds: float) -> float:
    """When a gang lost something last: with a plan of this time, unless that took nothing after all."""
    return at if adds else before if now == at else now


def _bounded_crossings(crossings: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Of many askers those with the most plans, which come to the bound first."""
    most = sorted((-count, key) for key, count in crossings.items() if count > 0)[:_MAX_ASKERS]
    return tuple(sorted((key, -count) for count, key in most))


_MAX_ASKERS = 32
