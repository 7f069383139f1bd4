"""What the scheduler remembers beside what it observed: attempts, plans, and what it last reported.

Every write is journaled: a trial that is undone undoes what was remembered in it, as it undoes placements. What was reported is
kept by the UID of the object that it was reported on, and forgotten with that object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from muster.model.effects import Verdict
from muster.model.pod import Placement

if TYPE_CHECKING:
    from muster.state.changes import Changes
    from muster.state.placements import Journal

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Attempts:
    """What is remembered of a gang's attempts: how many, and why the last one was refused."""

    count: int = 0
    verdict: Verdict | None = None
    versions: tuple[int, ...] = ()
    """Of the topics that the verdict names, when it was given."""
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
class ActivePlan:
    """A plan under way: for which gang, how many nominations, its victims, and since when."""

    gang: str
    size: int
    victims: tuple[str, ...]
    since: float
    soft: bool = False
    """Its evictions are soft: they can be cancelled."""
    released_by: float = 0.0
    """When the last of its victims should have terminated, as far as is known."""


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


class _Missing:
    __slots__ = ()


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class MemoryStep(Generic[K, V]):
    """One write in the journal, with what was there before."""

    table: JournaledDict[K, V]
    key: K
    before: V | _Missing

    def undo(self) -> None:
        self.table.put_back(self.key, self.before)


class JournaledDict(Generic[K, V]):
    """A dictionary whose writes are journaled."""

    __slots__ = ("_journal", "_values", "get")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._values: dict[K, V] = {}
        self.get = self._values.get

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> list[tuple[K, V]]:
        return list(self._values.items())

    def values(self) -> list[V]:
        return list(self._values.values())

    def set(self, key: K, value: V) -> None:
        self._journal.append(MemoryStep(self, key, self._values.get(key, _MISSING)))
        self._values[key] = value

    def drop(self, key: K) -> V | None:
        """Forget a key, where it is known."""
        if key not in self._values:
            return None
        before = self._values.pop(key)
        self._journal.append(MemoryStep(self, key, before))
        return before

    def clear(self) -> None:
        for key in list(self._values):
            self.drop(key)

    def put_back(self, key: K, before: V | _Missing) -> None:
        """Undo a write: for the trial alone."""
        if isinstance(before, _Missing):
            del self._values[key]
        else:
            self._values[key] = before


class Memory:
    def __init__(self, journal: Journal, changes: Changes) -> None:
        self._changes = changes
        self.cycle = 0
        """How many cycles were run."""
        self.decided_at = -1.0
        """The time of the last one."""
        self.reported_placements = -1
        self.reported_gangs = -1
        """How far the logs of changes were looked through for something to report."""
        self.reported_queues: QueuesReported | None = None
        self.attempts: JournaledDict[str, Attempts] = JournaledDict(journal)
        """By gang."""
        self.plans: JournaledDict[str, ActivePlan] = JournaledDict(journal)
        """Plans whose nominations are not all bound or ended, by name."""
        self.nominated_since: JournaledDict[str, float] = JournaledDict(journal)
        """Since when gangs have had a nomination, when the last cycle ended: their wait time stands still."""
        self.binding_reservations: JournaledDict[str, BindingReservation] = JournaledDict(journal)
        """Claims that are being bound, by UID, until the API server shows the pod on its node."""
        self.unwritten_reservations: JournaledDict[str, str] = JournaledDict(journal)
        """Claims that could not be written and why, by UID, until the next cycle ends them."""
        self.timed_out: JournaledDict[str, None] = JournaledDict(journal)
        """Pods that were marked as timed out, by UID, until their objects show it."""
        self.refused_evictions: JournaledDict[str, EvictionRefusal] = JournaledDict(journal)
        """Pods whose eviction was refused, by UID: not evicted again before the budget that refused it changes, or for a while."""
        self.cancelled_evictions: JournaledDict[str, float] = JournaledDict(journal)
        """Pods whose soft eviction was taken back and when, by UID, until their objects show it."""
        self.faulty_nodes: JournaledDict[str, None] = JournaledDict(journal)
        """Nodes on which a problem was reported, by name."""
        self.reported: JournaledDict[tuple[str, str], object] = JournaledDict(journal)
        """What was last written, by the UID of the object and what about it, until the object itself shows it or something else."""

    # -- attempts --------------------------------------------------------------------------------------------------------------

    def begin_attempt(self, gang: str, *, now: float) -> None:
        before = self.attempts[gang]
        if before.started is None:
            # Its status says since when it is attempted.
            self._changes.gangs.add(gang)
        started = now if before.started is None else before.started
        self.attempts.set(gang, replace(before, count=before.count + 1, started=started))

    def set_enqueued(self, gang: str, *, admitted: bool) -> None:
        self.attempts.set(gang, replace(self.attempts[gang], enqueued=admitted, not_admitted=not admitted))
        self._changes.gangs.add(gang)

    def set_verdict(self, gang: str, verdict: Verdict, *, now: float) -> None:
        versions = self._changes.versions(verdict.topics)
        self.attempts.set(gang, replace(self.attempts[gang], verdict=verdict, tried_at=now, versions=versions))

    def is_unchanged(self, attempts: Attempts) -> bool:
        """Did nothing change that the last verdict names?"""
        return attempts.verdict is not None and self._changes.versions(attempts.verdict.topics) == attempts.versions

    def retry(self, gang: str) -> None:
        """Something happened to this gang: its last verdict no longer holds."""
        attempts = self.attempts.get(gang)
        if attempts is not None and attempts.verdict is not None:
            self.attempts.set(gang, replace(attempts, verdict=None))

    # -- evictions that were refused -------------------------------------------------------------------------------------------

    def allow_eviction(self, uid: str) -> None:
        """The pod's eviction was refused, and may be tried again now."""
        self.refused_evictions.drop(uid)
        self._changes.placements.add(uid)

    # -- forgetting ------------------------------------------------------------------------------------------------------------

    def forget_pod(self, uid: str) -> None:
        self.unwritten_reservations.drop(uid)
        self.timed_out.drop(uid)
        self.binding_reservations.drop(uid)
        self.refused_evictions.drop(uid)
        self.cancelled_evictions.drop(uid)

    def forget_gang(self, key: str) -> None:
        self.attempts.drop(key)
        self.forget_object(key)

    def forget_object(self, uid: str) -> None:
        """The object is gone: what was reported on it says nothing about its successor of the same name."""
        for about in REPORTS:
            self.reported.drop((uid, about))

    def contents(self) -> dict[str, object]:
        """All that is remembered, as plain values: two moments can be compared."""
        return {name: dict(table.items()) for name, table in vars(self).items() if isinstance(table, JournaledDict)}
