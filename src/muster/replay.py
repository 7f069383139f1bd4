"""Run a decision log again: the same events must give the same decisions, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from muster.config import load_policy
from muster.decision_log import BadDecisionLog, LogHeader, outcome_bytes, read_decision_log
from muster.engine.hooks import Policy
from muster.model.effects import Outcome
from muster.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class CycleDifference:
    """The first cycle whose outcome differs."""

    line: int
    cycle: int
    logged: bytes
    decided: bytes


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`starts` counts the schedulers in the log: one, and one more for each restart."""

    cycles: int
    events: int
    starts: int = 1
    difference: CycleDifference | None = None


def replay(
    lines: Iterable[bytes],
    *,
    file: str = "<log>",
    policy: Policy | None = None,
    on_cycle: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Feed the logged events to a fresh scheduler and compare each outcome with the logged one.

    Plugins that the logged policy names by relative files are searched for beside `file`. `on_cycle` is called with the number of
    cycles that were equal so far.
    """
    scheduler: Scheduler | None = None
    cycles = events = starts = 0
    for number, entry, line in read_decision_log(lines):
        if isinstance(entry, LogHeader):
            scheduler = Scheduler(policy or load_policy(entry.policy, file=file))
            starts += 1
            continue
        if scheduler is None:
            raise BadDecisionLog(f"line {number} comes before the line that names the policy")
        if not isinstance(entry, Outcome):
            scheduler.feed([entry])
            events += 1
            continue
        cycles += 1
        decided = outcome_bytes(scheduler.tick(entry.now))
        if decided != line:
            return ReplayResult(cycles, events, starts, CycleDifference(number, entry.cycle, line, decided))
        if on_cycle is not None:
            on_cycle(cycles)
    return ReplayResult(cycles, events, starts)
