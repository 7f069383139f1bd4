"""Virtual time. Nothing here reads a real clock; seconds since 1970."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime

VIRTUAL_START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

Callback = Callable[[], None]


class VirtualClock:
    """The time and the timers: in order of time, and in the order of their creation where times are equal."""

    def __init__(self, *, start: float = VIRTUAL_START) -> None:
        self.now = start
        self._timers: list[tuple[float, int, Callback]] = []
        self._sequence = 0

    def call_after(self, seconds: float, action: Callback) -> None:
        self.at(self.now + seconds, action)

    def at(self, when: float, action: Callback) -> None:
        """Run it then, or as soon as possible if that is in the past."""
        heapq.heappush(self._timers, (max(when, self.now), self._sequence, action))
        self._sequence += 1

    def next_at(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def run_next(self, *, until: float) -> bool:
        """Run the next timer that is due by then, at its time. False if there is none."""
        if not self._timers or self._timers[0][0] > until:
            return False
        self.now, _, action = heapq.heappop(self._timers)
        action()
        return True
