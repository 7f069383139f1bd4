"""How often and how long something is tried again: with growing pauses, spread by chance, and with an end."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from muster.adapters.kube.client import ApiError


@dataclass(frozen=True, slots=True)
class Tries:
    most: int = 5
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Before the next attempt, at least as long as the server asks for; none after the last."""
        if attempt + 1 < self.most:
            wait_s = min(self.longest_wait_s, self.first_wait_s * 2 ** min(attempt, 16)) * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(wait_s, min(error.retry_after_s or 0.0, self.longest_wait_s)))


BRIEF = Tries()
"""Where somebody waits for the outcome, and can do without."""
LONG = Tries(most=40, longest_wait_s=5.0)
"""Where nobody waits, but a write that is never made would be found in the way after a restart."""
