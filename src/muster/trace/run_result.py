"""What one run of a history leaves: its figures, how each job fared and why, and curves over time. Plain values, which go over a
network and into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIGHER, LOWER = 1, -1


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a run. `better` says which way."""

    name: str
    unit: str
    value: float
    better: int = LOWER


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job fared. `why` is what was said of it: of its longest wait, and of its last eviction."""

    name: str
    queue: str
    gpus: float
    arrival_s: float
    first_start_s: float | None
    end_s: float | None
    waited_s: float
    evictions: int
    lost_gpu_hours: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A value over time: its mean in each of so many equal parts of the history."""

    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """`until_s`: how long the history is that the curves show."""

    figures: tuple[Figure, ...]
    jobs: tuple[JobOutcome, ...] = ()
    curves: Mapping[str, Curve] = field(default_factory=dict)
    until_s: float = 0.0
