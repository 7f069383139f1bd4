"""A check that a test adds to a run, in addition to the invariants, such as a second scheduler that must decide the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.model.events import Event
from muster.scenario.invariants import Violation
from muster.state.world import World


@dataclass(frozen=True, slots=True)
class FinishedCycle:
    """`events` is what the scheduler was fed before the cycle; `ok`: no invariant is violated."""

    world: World
    policy: Policy
    outcome: Outcome
    events: Sequence[Event]
    ok: bool


class RunCheck(Protocol):
    def start(self, policy: Policy, events: Sequence[Event]) -> None:
        """A scheduler starts, or restarts, with this policy of its own and these events."""

    def on_step(self, name: str, world: World) -> None:
        """A part of a cycle begins: `recover`, an action of the policy, or `commit`."""

    def check_cycle(self, finished: FinishedCycle) -> Iterable[Violation]: ...
