"""A second scheduler, told the same at the same time: it must decide the same, byte for byte. It shares no object with the first.

What arrives at one moment reaches it in another order, news of one object apart: the order of arrival must decide nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from muster.decision_log import outcome_bytes
from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.model.events import Delete, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.scheduler import Scheduler


class SchedulerTwin:
    def __init__(self, policy: Policy) -> None:
        self._scheduler = Scheduler(policy)

    def feed(self, events: Iterable[Event]) -> None:
        self._scheduler.feed(in_other_order(events))

    def first_difference(self, outcome: Outcome) -> str:
        """Where the two decisions part, or nothing."""
        ours, theirs = outcome_bytes(outcome), outcome_bytes(self._scheduler.tick(outcome.now))
        if ours == theirs:
            return ""
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        first, second = (text[max(0, at - 40) : at + 60].decode("utf-8", "replace") for text in (ours, theirs))
        return f"the same events gave ...{first}... and ...{second}..."


def in_other_order(events: Iterable[Event]) -> list[Event]:
    """The same events, shuffled the same way every time; those about one object stay in their order."""
    by_subject: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        by_subject.setdefault(_subject(event), []).append(event)
    stories = list(by_subject.values())
    random.Random(len(stories)).shuffle(stories)
    return [event for story in stories for event in story]


def _subject(event: Event) -> tuple[str, str]:
    match event:
        case Upsert(obj=Pod(uid=uid)):
            return "Pod", uid
        case Upsert(obj=PodGroup() | Queue() as thing):
            return type(thing).__name__, thing.key
        case Upsert(obj=thing):
            return type(thing).__name__, getattr(thing, "key", "") or thing.name
        case Delete(kind=what, key=key):
            return what, key
        case _:
            return "Pod", event.uid
