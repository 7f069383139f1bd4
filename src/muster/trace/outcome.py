"""What came of a history: waits, completion times, work that counted and work that was lost, fairness, fragmentation.

Shares of the cluster are those of all GPU-hours until the last job arrived: after that the cluster empties. Times are of all jobs,
to their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.model.resource_amounts import GPU
from muster.trace.job_simulation import GpuUsage, JobRun, SimulatedTrace

HIGHER, LOWER = 1, -1
_HOUR = 3600.0
# A job of a second that waits a minute is not sixty times as slow.
_SHORTEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a run. `better` says which way."""

    name: str
    unit: str
    value: float
    better: int = LOWER


def figures(done: SimulatedTrace) -> list[Figure]:
    """In the order in which they are shown; the same names for each run of a trace."""
    return [*_times(done.runs), *_work(done), *_evictions(done.runs), *_sharing(done)]


def mean_allocation_figure(percent: float) -> Figure:
    return Figure("GPUs allocated", "%", percent, HIGHER)


def _times(runs: Sequence[JobRun]) -> Iterator[Figure]:
    ended = [run for run in runs if run.end_s is not None]
    yield Figure("jobs that ended", "", len(ended), HIGHER)
    yield from _spread("wait", "h", _first_waits(runs))
    by_queue: dict[str, list[JobRun]] = {}
    for run in runs:
        by_queue.setdefault(run.job.queue, []).append(run)
    for queue in sorted(by_queue) if len(by_queue) > 1 else ():
        yield from _spread(f"wait, {queue or 'without a queue'}", "h", _first_waits(by_queue[queue]))
    yield Figure("wait in all, mean", "h", _mean([run.waited_s / _HOUR for run in ended]))
    completion = [(run, (run.end_s or 0.0) - run.job.arrival_s) for run in ended]
    yield from _spread("completion", "h", [seconds / _HOUR for _, seconds in completion])
    yield from _spread("slowdown", "times", [max(1.0, seconds / max(run.job.run_s, _SHORTEST_S)) for run, seconds in completion])


def _first_waits(runs: Sequence[JobRun]) -> list[float]:
    return [(run.first_start_s - run.job.arrival_s) / _HOUR for run in runs if run.first_start_s is not None]


def _spread(name: str, unit: str, values: Sequence[float]) -> Iterator[Figure]:
    yield Figure(f"{name}, mean", unit, _mean(values))
    for percent in (50, 99):
        yield Figure(f"{name}, p{percent}", unit, float(np.percentile(values, percent)) if values else 0.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _work(done: SimulatedTrace) -> Iterator[Figure]:
    window = done.trace.jobs[-1].arrival_s
    capacity = done.trace.gpus * window
    if not capacity:
        return
    used = sum(sample.gpus * _inside(sample, window) for sample in done.samples)
    lost: dict[str, float] = {}
    for run in done.runs:
        for note in run.lost:
            if note.at_s <= window:
                lost[note.cause] = lost.get(note.cause, 0.0) + note.seconds * run.job.gpus
    yield Figure("GPU-hours in use", "%", 100 * used / capacity, HIGHER)
    yield Figure("GPU-hours that counted", "%", 100 * (used - sum(lost.values())) / capacity, HIGHER)
    yield Figure("GPU-hours lost", "%", 100 * sum(lost.values()) / capacity)
    for cause in sorted(lost):
        yield Figure(f"GPU-hours lost to {cause}", "%", 100 * lost[cause] / capacity)
    stranded = sum(sample.stranded * _inside(sample, window) for sample in done.samples)
    yield Figure("GPUs idle that a waiting job asks for", "%", 100 * stranded / capacity)


def _inside(sample: GpuUsage, window: float) -> float:
    """How much of its time lies before the end of the window."""
    return max(0.0, min(sample.at_s + sample.seconds, window) - sample.at_s)


def _evictions(runs: Sequence[JobRun]) -> Iterator[Figure]:
    counts = [run.evictions for run in runs]
    yield Figure("evictions", "", float(sum(counts)))
    yield Figure("worst gang evicted", "times", float(max(counts, default=0)))


def _sharing(done: SimulatedTrace) -> Iterator[Figure]:
    window = done.trace.jobs[-1].arrival_s
    deserved = {queue.name: float(queue.deserved[GPU]) for queue in done.trace.queues if queue.deserved[GPU]}
    if len(deserved) < 2 or not window:
        return
    found = sum(_jain(sample.by_queue, deserved) * _inside(sample, window) for sample in done.samples)
    yield Figure("fairness (Jain, use / deserved)", "", found / window, HIGHER)


def _jain(used: Mapping[str, float], deserved: Mapping[str, float]) -> float:
    """1 where all queues have the same part of what they deserve, 1/n where one of n has everything."""
    parts = [used.get(name, 0.0) / share for name, share in deserved.items()]
    squares = len(parts) * sum(part * part for part in parts)
    return sum(parts) ** 2 / squares if squares else 1.0
