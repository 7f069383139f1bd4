"""What a workload is, how it is run, and whether it met its target."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

# A target is missed badly only beyond this share of it: machines are noisy.
TARGET_TOLERANCE = 0.20
# The one of the service.
_GC_THRESHOLD = 20_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """`details` are further measurements that are printed beside the main one."""

    value: float
    details: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SeededRow:
    """A workload over random clusters of one kind: it can be run on some seeds only, and one cluster shown as a scenario."""

    name: str
    run: Callable[[range], Measurement]
    show: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Workload:
    """`target` None: measured only. `at_least`: higher is better."""

    group: str
    name: str
    unit: str
    run: Callable[[], Measurement]
    target: float | None = None
    at_least: bool = True
    row: SeededRow | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """`measured` None: the workload failed, and `error` says why."""

    workload: Workload
    measured: Measurement | None
    seconds: float = 0.0
    error: str = ""

    @property
    def missed_by(self) -> float | None:
        """The share of the target by which it was missed: 0 where it was met, None where there is no target."""
        target = self.workload.target
        if self.measured is None:
            return math.inf
        if target is None:
            return None
        below = target - self.measured.value
        gap = max(0.0, below if self.workload.at_least else -below)
        # Of a target of nothing everything is too much.
        return gap / target if target else math.inf if gap else 0.0

    @property
    def met(self) -> bool | None:
        return None if self.missed_by is None else not self.missed_by

    @property
    def missed_badly(self) -> bool:
        """Missed by more than the tolerance."""
        return self.missed_by is not None and self.missed_by > TARGET_TOLERANCE


def measure(workload: Workload) -> Result:
    start = time.perf_counter()
    measured = workload.run()
    return Result(workload, measured, time.perf_counter() - start)


class Stopwatch:
    """CPU seconds of this process inside `with` blocks: other load on the machine does not count.

    Garbage is collected as in a running scheduler: without what was built before, and rarely.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0
        self._threshold = gc.get_threshold()

    def __enter__(self) -> Stopwatch:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        self._start = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._start
        gc.set_threshold(*self._threshold)
        gc.unfreeze()
