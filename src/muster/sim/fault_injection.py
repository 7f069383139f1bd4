"""Injected faults, by a seed: events that are delayed, duplicated, reordered or dropped, and binds that fail.

A dropped event is replaced at the next resync: like a client of the real API, the reader lists everything anew now and then. Until
then its state is outdated.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields
from random import Random

from muster.model.events import Event

MAX_DELAY_S = 10.0
RESYNC_S = 60.0

EventSubject = tuple[str, str]
"""The object of an event: its class name and key."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Fractions from 0 to 1 of the events or binds with a fault."""

    seed: int = 0
    delayed: float = 0.0
    dropped: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0
    bind_failures: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if field.name != "seed" and not 0 <= share <= 1:
                raise ValueError(f"{field.name}: {share} is no fraction; write a number from 0 to 1")


NO_FAULTS = FaultRates()


class EventStream:
    """From the watch log to the reader, with faults."""

    def __init__(self, faults: FaultRates) -> None:
        self._faults = faults
        # The seed stands here twice since it came from two places: each scenario keeps its run.
        self._random = Random(f"events {faults.seed} {faults.seed}")
        self._sequence = 0
        self.reset()

    def reset(self) -> None:
        """A new reader: events on their way to the old one never arrive."""
        self._ready: list[Event] = []
        self._delayed: list[tuple[float, int, Event]] = []
        self._missed: dict[EventSubject, Event] = {}
        """The newest event of each object of which the reader missed one."""
        self._resync_at: float | None = None

    def send(self, subject: EventSubject, event: Event, *, now: float) -> None:
        """Send an event of the watch log."""
        copies = 2 if self._occurs(self._faults.duplicated) else 1
        for _ in range(copies):
            if self._occurs(self._faults.dropped):
                self._mark_missed(subject, event, now=now)
            elif self._occurs(self._faults.delayed):
                self._mark_missed(subject, event, now=now)
                self._delay(event, until=now + self._random.uniform(0.0, MAX_DELAY_S))
            else:
                self._ready.append(event)
        if subject in self._missed:
            self._missed[subject] = event

    def deliver(self, event: Event) -> None:
        """An event without faults: the answer to the reader's own request."""
        self._ready.append(event)

    def receive(self, *, now: float) -> list[Event]:
        """All that has arrived by now."""
        if self._resync_at is not None and now >= self._resync_at:
            self.resync()
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heapq.heappop(self._delayed)[2])
        events, self._ready = self._ready, []
        self._shuffle(events)
        return events

    def resync(self) -> None:
        """The reader lists everything anew. Delayed events still arrive later, outdated."""
        self._ready.extend(self._missed.values())
        self._missed = {}
        self._resync_at = None

    def _mark_missed(self, subject: EventSubject, event: Event, *, now: float) -> None:
        self._missed[subject] = event
        if self._resync_at is None:
            self._resync_at = (now // RESYNC_S + 1) * RESYNC_S

    def _delay(self, event: Event, *, until: float) -> None:
        heapq.heappush(self._delayed, (until, self._sequence, event))
        self._sequence += 1

    def _shuffle(self, events: list[Event]) -> None:
        for place in range(len(events) - 1) if self._faults.reordered else ():
            if self._occurs(self._faults.reordered):
                events[place], events[place + 1] = events[place + 1], events[place]

    def _occurs(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


class BindFaultInjector:
    """Binds that fail at random."""

    def __init__(self, faults: FaultRates) -> None:
        self._failure_rate = faults.bind_failures
        self._random = Random(f"binds {faults.seed} {faults.seed}")

    def bind_error(self, pod: str) -> str:
        """What the API server answers instead of binding this pod, or nothing."""
        if not self._failure_rate or self._random.random() >= self._failure_rate:
            return ""
        if self._random.random() < 0.5:
            return f"conflict: pod {pod} was changed by somebody else"
        return f"no answer from the API server to the bind of pod {pod}"
