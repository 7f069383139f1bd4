"""How a cluster misbehaves, by a seed: events that come late, twice, out of order or not at all, and binds that fail.

A lost event is not lost for ever: like a client of the real API, the reader lists everything anew now and then (a resync) and
learns what it missed. Until then it lives with an old picture.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields
from random import Random

from muster.model.events import Event

LATEST_S = 10.0
RESYNC_S = 60.0

Subject = tuple[str, str]
"""What an event is about: the class name of the thing and its key."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares from 0 to 1 of the events or binds that go wrong."""

    seed: int = 0
    late: float = 0.0
    lost: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    bind_fails: float = 0.0
    resync_s: float = RESYNC_S

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if field.name not in ("seed", "resync_s") and not 0 <= share <= 1:
                raise ValueError(f"{field.name}: {share} is no share; write a number from 0 to 1")
        if not self.resync_s > 0:
            raise ValueError(f"resync_s: {self.resync_s} is no time; write a number of seconds above 0")


NO_FAULTS = Faults()


class EventStream:
    """From the watch log to the reader, through all that can happen on the way."""

    def __init__(self, faults: Faults, *, seed: int) -> None:
        self._faults = faults
        self._chance = Random(f"events {seed} {faults.seed}")
        self._ready: list[Event] = []
        self._late: list[tuple[float, int, Event]] = []
        self._sent = 0
        self._missed: dict[Subject, Event] = {}
        """The newest event of each thing of which the reader missed one."""
        self._resync_at: float | None = None

    def send(self, subject: Subject, event: Event, *, now: float) -> None:
        """An event of the watch log sets out."""
        copies = 2 if self._happens(self._faults.doubled) else 1
        for _ in range(copies):
            if self._happens(self._faults.lost):
                self._miss(subject, event, now=now)
            elif self._happens(self._faults.late):
                self._miss(subject, event, now=now)
                self._delay(event, until=now + self._chance.uniform(0.0, LATEST_S))
            else:
                self._ready.append(event)
        if subject in self._missed:
            self._missed[subject] = event

    def tell(self, event: Event) -> None:
        """Something that the reader learns for sure: the answer to its own request."""
        self._ready.append(event)

    def next_at(self, *, now: float) -> float | None:
        """When the reader can next learn something."""
        if self._ready:
            return now
        times = [self._late[0][0]] if self._late else []
        if self._resync_at is not None:
            times.append(self._resync_at)
        return max(now, min(times)) if times else None

    def take(self, *, now: float) -> list[Event]:
        """All that has arrived by now."""
        if self._resync_at is not None and now >= self._resync_at:
            self.resync()
        while self._late and self._late[0][0] <= now:
            self._ready.append(heapq.heappop(self._late)[2])
        events, self._ready = self._ready, []
        self._shuffle(events)
        return events

    def resync(self) -> None:
        """The reader lists everything anew and learns what it missed. What is still late arrives later, outdated."""
        self._ready.extend(self._missed.values())
        self._missed = {}
        self._resync_at = None

    def start_over(self) -> None:
        """A new reader: what was under way to the old one never arrives."""
        self._ready = []
        self._late = []
        self._missed = {}
        self._resync_at = None

    def _miss(self, subject: Subject, event: Event, *, now: float) -> None:
        self._missed[subject] = event
        if self._resync_at is None:
            period_s = self._faults.resync_s
            self._resync_at = (now // period_s + 1) * period_s

    def _delay(self, event: Event, *, until: float) -> None:
        heapq.heappush(self._late, (until, self._sent, event))
        self._sent += 1

    def _shuffle(self, events: list[Event]) -> None:
        for place in range(len(events) - 1) if self._faults.reordered else ():
            if self._happens(self._faults.reordered):
                events[place], events[place + 1] = events[place + 1], events[place]

    def _happens(self, share: float) -> bool:
        return share > 0 and self._chance.random() < share


class BindFaults:
    """Binds that fail: by chance, or because somebody said so."""

    def __init__(self, faults: Faults, *, seed: int) -> None:
        self._share = faults.bind_fails
        self._chance = Random(f"binds {seed} {faults.seed}")

    def why_not(self, pod: str) -> str:
        """What the API server answers instead of binding this pod, or nothing."""
        if not self._share or self._chance.random() >= self._share:
            return ""
        if self._chance.random() < 0.5:
            return f"conflict: pod {pod} was changed by somebody else"
        return f"no answer from the API server to the bind of pod {pod}"
