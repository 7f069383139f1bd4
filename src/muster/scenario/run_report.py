"""The report of a run: all that tables, charts and tests need, as plain frozen values.

Times are seconds since the start of the scenario; amounts are in the model's units (thousandths of a core, bytes, devices).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from muster.model.effects import Effect, Outcome
from muster.queue_report import QueueRow, ResourceAmounts
from muster.scenario.invariants import Violation


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One cycle in numbers. `waiting` counts gangs with unplaced members."""

    cycle: int
    at_s: float
    binds: int = 0
    reservations: int = 0
    nominations: int = 0
    releases: int = 0
    evictions: int = 0
    waiting: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    resource: str
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class UsageSample:
    """The cluster's usage after a cycle."""

    at_s: float
    usage: tuple[ResourceUsage, ...]

    def share(self, resource: str) -> float:
        for use in self.usage:
            if use.resource == resource and use.total:
                return use.used / use.total
        return 0.0


@dataclass(frozen=True, slots=True)
class GangRow:
    """One gang at the end. `members` counts placed ones; `waited_s` is the time to its first bind, or until now."""

    gang: str
    queue: str
    priority: int
    members: int
    min: int
    size: int
    succeeded: int
    failed: int
    stage: str
    nodes: tuple[str, ...]
    waited_s: float
    why: str = ""
    code: str = ""
    attempts: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class QueueSample:
    """The shares of the queues after a cycle, as in `QueueRow`."""

    at_s: float
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class EvictionRow:
    """`request` is what is released, `lost_work_s` the time since the pod's start or its last checkpoint."""

    cycle: int
    at_s: float
    pod: str
    node: str
    gang: str
    for_gang: str
    why: str
    cause: str
    request: ResourceAmounts = ()
    lost_work_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TimelineNote:
    """A mark for a chart: a node failed, the scheduler restarted."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class DecidedEffect:
    """One effect, and when it was decided."""

    cycle: int
    at_s: float
    effect: Effect


@dataclass(frozen=True, slots=True)
class Mismatch:
    what: str
    expected: str
    found: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class ExpectationFailure:
    """An expect step that does not hold, with all its mismatches."""

    file: str
    line: int
    at_s: float
    mismatches: tuple[Mismatch, ...]

    def __str__(self) -> str:
        lines = [f"{self.file}:{self.line}: after {self.at_s:g} s this does not hold:"]
        for each in self.mismatches:
            lines.append(f"  {each.what} (line {each.line})")
            lines.append(f"    expected  {each.expected}")
            lines.append(f"    found     {each.found}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """`virtual_s` is how much time passed in the scenario, `wall_s` how long it took to run."""

    name: str
    file: str
    line: int
    cycles: int
    virtual_s: float
    wall_s: float
    rows: tuple[CycleRow, ...] = ()
    gangs: tuple[GangRow, ...] = ()
    samples: tuple[UsageSample, ...] = ()
    queues: tuple[QueueRow, ...] = ()
    shares: tuple[QueueSample, ...] = ()
    evictions: tuple[EvictionRow, ...] = ()
    undone_evictions: tuple[EvictionRow, ...] = ()
    """Refused, or cancelled: the pod ran on."""
    timeline_notes: tuple[TimelineNote, ...] = ()
    failures: tuple[ExpectationFailure, ...] = ()
    violations: tuple[Violation, ...] = ()
    decided_effects: tuple[DecidedEffect, ...] = field(default=(), repr=False)
    writes: int = 0

    @property
    def ok(self) -> bool:
        return not self.failures and not self.violations

    def explain(self) -> str:
        """All failures and violations as text; empty if there are none."""
        texts = [str(failure) for failure in self.failures]
        texts.extend(f"{self.file}:{self.line}: invariant violated in {violation}" for violation in self.violations)
        return "\n".join(texts)


@dataclass(frozen=True, slots=True)
class CycleUpdate:
    """What an observer gets after each cycle. `total_s` is the virtual time of the whole scenario."""

    row: CycleRow
    total_s: float
    sample: UsageSample
    outcome: Outcome


class Observer(Protocol):
    def cycle(self, cycle_update: CycleUpdate) -> None: ...
