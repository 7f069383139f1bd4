"""How often and how long something is tried again: with growing pauses, spread by chance, and with an end."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from muster.adapters.kube.client import ApiError
from muster.model.events import BindFailed, ClaimFailed


@dataclass(frozen=True, slots=True)
class Tries:
    most: int = 5
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Before the next attempt, at least as long as the server asks for; none after the last."""
        if attempt + 1 < self.most:
            await asyncio.sleep(max(self.wait_s(attempt), min(error.retry_after_s or 0.0, self.longest_wait_s)))

    def wait_s(self, attempt: int) -> float:
        return min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)


Setback = BindFailed | ClaimFailed


class Setbacks:
    """How often in a row the same thing failed for one pod. The scheduler tries again as soon as it is told: where the cluster
    refuses over and over, it is told later each time."""

    def __init__(self, pauses: Tries) -> None:
        self._pauses = pauses
        self._counts: dict[tuple[type[Setback], str], int] = {}

    def clear(self, what: type[Setback], uid: str) -> None:
        self._counts.pop((what, uid), None)

    def pause_s(self, failed: Setback) -> float:
        """How long to wait with the bad news: not at all the first time."""
        key = (type(failed), failed.uid)
        before = self._counts.pop(key, 0)
        self._counts[key] = before + 1
        if len(self._counts) > _MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        return self._pauses.wait_s(before - 1) if before else 0.0


_MOST_COUNTED = 10_000

BRIEF = Tries()
"""Where somebody waits for the outcome, and can do without."""
LONG = Tries(most=40, longest_wait_s=5.0)
"""Where nobody waits, but a write that is never made would be found in the way after a restart."""
NEWS = Tries(first_wait_s=0.5, longest_wait_s=60.0)
"""With which the scheduler is told that the same thing failed again."""
