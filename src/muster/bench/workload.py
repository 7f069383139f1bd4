"""What a workload is, how it is run, and whether it met its target."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# A target is missed badly only beyond this share of it: machines are noisy.
TARGET_TOLERANCE = 0.20


@dataclass(frozen=True, slots=True)
class Measurement:
    """`details` are further measurements that are printed beside the main one."""

    value: float
    details: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """`target` None: measured only. `at_least`: higher is better."""

    group: str
    name: str
    unit: str
    run: Callable[[], Measurement]
    target: float | None = None
    at_least: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    workload: Workload
    measured: Measurement
    seconds: float

    @property
    def met(self) -> bool | None:
        target = self.workload.target
        if target is None:
            return None
        return self.measured.value >= target if self.workload.at_least else self.measured.value <= target

    @property
    def missed_badly(self) -> bool:
        """Missed by more than the tolerance."""
        target = self.workload.target
        if target is None:
            return False
        if self.workload.at_least:
            return self.measured.value < target * (1 - TARGET_TOLERANCE)
        return self.measured.value > target * (1 + TARGET_TOLERANCE)


def measure(workload: Workload) -> Result:
    start = time.perf_counter()
    measured = workload.run()
    return Result(workload, measured, time.perf_counter() - start)


class Stopwatch:
    """Seconds spent inside `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
