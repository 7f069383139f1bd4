"""A second scheduler, fed the same events: it must decide the same, byte for byte. It shares no object with the first."""

from __future__ import annotations

from collections.abc import Iterable

from muster.adapters.trace import outcome_bytes
from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.model.events import Event
from muster.runtime import Scheduler


class Twin:
    def __init__(self, policy: Policy) -> None:
        self._scheduler = Scheduler(policy)

    def feed(self, events: Iterable[Event]) -> None:
        self._scheduler.feed(events)

    def differs(self, outcome: Outcome) -> str:
        """Where the two decisions part, or nothing."""
        ours, theirs = outcome_bytes(outcome), outcome_bytes(self._scheduler.tick(outcome.now))
        if ours == theirs:
            return ""
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        first, second = (text[max(0, at - 40) : at + 60].decode("utf-8", "replace") for text in (ours, theirs))
        return f"the same events gave ...{first}... and ...{second}..."
