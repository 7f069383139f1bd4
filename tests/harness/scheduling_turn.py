"""One turn of a scheduling loop, on whatever cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from muster.model.effects import Effect, Outcome
from muster.model.events import Event
from muster.scheduler import Scheduler


class Cluster(Protocol):
    """Where events come from and effects are carried out."""

    def events(self) -> Iterable[Event]: ...

    def execute(self, effects: Iterable[Effect]) -> None: ...


def step(scheduler: Scheduler, cluster: Cluster, now: float) -> Outcome:
    scheduler.feed(cluster.events())
    outcome = scheduler.tick(now)
    cluster.execute(outcome.effects)
    return outcome
