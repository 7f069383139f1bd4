"""The loop: events in, one cycle, effects out. The same for a virtual cluster and a real one; only the cluster differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from muster.engine.cycle import StepCallback, run_cycle
from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.model.events import Event
from muster.state.store import Store
from muster.state.world import World


class DecisionLog(Protocol):
    """Where decisions are recorded so that they can be replayed."""

    def begin(self, policy: str) -> None:
        """A scheduler starts with this policy and nothing else: after a restart it does so again."""
        ...

    def events(self, events: Iterable[Event]) -> None: ...

    def outcome(self, outcome: Outcome) -> None: ...


def new_store(policy: Policy) -> Store:
    """An empty store with the settings of this policy."""
    return Store(
        default_wait_s=policy.settings.default_permit_wait_s,
        preemptible_by_default=policy.preemptible_by_default,
        victim_schedulers=policy.settings.victim_schedulers,
    )


class Scheduler:
    """A running scheduler. A new one that is made from the cluster's objects continues where it stopped: no state is lost."""

    def __init__(self, policy: Policy, *, log: DecisionLog | None = None, on_step: StepCallback | None = None) -> None:
        self.policy = policy
        self._enter = on_step
        self._store = new_store(policy)
        self._log = log
        self.world: World = self._store.world(0.0)
        if log is not None:
            log.begin(policy.source)

    def feed(self, events: Iterable[Event]) -> None:
        events = list(events)
        if self._log is not None:
            self._log.events(events)
        for event in events:
            self._store.fold(event)

    def tick(self, now: float) -> Outcome:
        """Decide on what is known at this time."""
        self.world = self._store.world(now)
        outcome = run_cycle(self.world, self.policy, on_step=self._enter)
        if self._log is not None:
            self._log.outcome(outcome)
        return outcome

    def observe(self, now: float) -> World:
        """What is known at this time, with nothing decided."""
        self.world = self._store.world(now)
        return self.world
