"""Exponential backoff with jitter and a limit of attempts, and delays for reports of repeated failures."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from muster.kube.watch.client import ApiError
from muster.kube.write.effect_writes import FailedEffect, FailureEvent, WrittenEffect, failure_event
from muster.model.events import EvictFailed, SaveFailed


@dataclass(frozen=True, slots=True)
class Backoff:
    max_attempts: int = 5
    initial_wait_s: float = 0.1
    max_wait_s: float = 2.0

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Before the next attempt, at least as long as the server requests."""
        await asyncio.sleep(max(self.wait_s(attempt), min(error.retry_after_s or 0.0, self.max_wait_s)))

    def wait_s(self, attempt: int) -> float:
        return min(self.max_wait_s, self.initial_wait_s * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)


class FailureBackoff:
    """Counts consecutive failures of one kind for one object. The scheduler retries as soon as a failure is reported: repeated
    failures are reported with a growing delay. Evictions are not retried."""

    def __init__(self) -> None:
        self._counts: dict[tuple[type[FailureEvent], str], int] = {}

    def clear(self, effect: WrittenEffect) -> None:
        """It is done: from now on its failures are counted anew."""
        if (failed := failure_event(effect, FailedEffect(""))) is not None:
            self._counts.pop(_key(failed), None)

    def delay_s(self, failed: FailureEvent) -> float:
        """How long to wait with the report: not at all the first time."""
        if isinstance(failed, EvictFailed):
            return 0.0
        key = _key(failed)
        before = self._counts.pop(key, 0)
        self._counts[key] = before + 1
        if len(self._counts) > _MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        return _REPORT_BACKOFF.wait_s(before - 1) if before else 0.0


def _key(failed: FailureEvent) -> tuple[type[FailureEvent], str]:
    return type(failed), failed.key if isinstance(failed, SaveFailed) else failed.uid


_MAX_COUNTED = 10_000

SHORT_BACKOFF = Backoff()
"""For writes whose failure is reported and handled."""
LONG_BACKOFF = Backoff(max_attempts=40, max_wait_s=5.0)
"""For writes that must be made at last: a stale reservation would block capacity after a restart."""
_REPORT_BACKOFF = Backoff(initial_wait_s=0.5, max_wait_s=60.0)
