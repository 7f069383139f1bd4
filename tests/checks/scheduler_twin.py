"""A second scheduler, fed the same events at the same time, must decide the same, byte for byte. The two share no object.

It is fed the events of a moment in another order, except those of one object: the order of arrival must not matter. And it throws
all derived values away before each cycle: a value that is kept longer than what it depends on makes the two decide differently.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from muster.decision_log import outcome_bytes
from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.model.events import Delete, Event, SaveFailed, Upsert
from muster.model.gang import PodGroup
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.scenario.invariants import Violation
from muster.scenario.run_check import FinishedCycle
from muster.scheduler import Scheduler
from muster.state.world import World

SAME_DECISION = "same input, same decision"


class SchedulerTwin:
    """A `RunCheck`."""

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None

    def start(self, policy: Policy, events: Sequence[Event]) -> None:
        self._scheduler = Scheduler(policy)
        self._scheduler.feed(in_other_order(events))

    def on_step(self, name: str, world: World) -> None:
        """It looks at finished cycles only."""

    def check_cycle(self, finished: FinishedCycle) -> Iterator[Violation]:
        assert self._scheduler is not None
        outcome = finished.outcome
        self._scheduler.feed(in_other_order(finished.events))
        self._scheduler.world.derived.clear()
        text = _first_difference(outcome, self._scheduler.tick(outcome.now))
        if text:
            yield Violation(SAME_DECISION, outcome.cycle, outcome.now, text)


def _first_difference(outcome: Outcome, other: Outcome) -> str:
    """The place where the two decisions differ, or nothing."""
    ours, theirs = outcome_bytes(outcome), outcome_bytes(other)
    if ours == theirs:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    first, second = (text[max(0, at - 40) : at + 60].decode("utf-8", "replace") for text in (ours, theirs))
    return f"the same events led to ...{first}... and ...{second}..."


def in_other_order(events: Iterable[Event]) -> list[Event]:
    """The same events, shuffled the same way every time; those about one object stay in their order."""
    by_subject: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        by_subject.setdefault(_subject(event), []).append(event)
    sequences = list(by_subject.values())
    random.Random(len(sequences)).shuffle(sequences)
    return [event for sequence in sequences for event in sequence]


def _subject(event: Event) -> tuple[str, str]:
    match event:
        case Upsert(obj=Pod(uid=uid)):
            return "Pod", uid
        case Upsert(obj=PodGroup() | Queue() as obj):
            return type(obj).__name__, obj.key
        case Upsert(obj=obj):
            return type(obj).__name__, getattr(obj, "key", "") or obj.name
        case Delete(kind=kind, key=key):
            return kind, key
        case SaveFailed(kind=kind, key=key):
            return kind, key
        case _:
            return "Pod", event.uid
