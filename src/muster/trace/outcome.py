"""What came of a history: waits, completion times, work that counted and work that was lost, fairness, fragmentation.

Shares of the cluster are those of all GPU-hours until the last job arrived: after that the cluster empties. Times are of all jobs,
to their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from muster.model.resource_amounts import GPU
from muster.state.node_table import FloatColumn
from muster.trace.job_simulation import GpuUsage, JobRun, SimulatedTrace
from muster.trace.run_result import HIGHER, Curve, Figure, JobOutcome, RunResult

_HOUR = 3600.0
# A job of a second that waits a minute is not sixty times as slow.
_SHORTEST_S = 600.0
_POINTS = 200


def result_of(done: SimulatedTrace) -> RunResult:
    return RunResult(tuple(figures(done)), tuple(map(_job_outcome, done.runs)), _curves(done), done.trace.jobs[-1].arrival_s)


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
    yield from _spread("wait in all", "h", [run.waited_s / _HOUR for run in ended])
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
    yield Figure("evictions of a gang, mean", "times", _mean(counts))
    yield Figure("worst gang evicted", "times", float(max(counts, default=0)))


def _sharing(done: SimulatedTrace) -> Iterator[Figure]:
    window, deserved = done.trace.jobs[-1].arrival_s, _deserved(done)
    if len(deserved) < 2 or not window:
        return
    found = sum(_jain(sample.by_queue, deserved) * _inside(sample, window) for sample in done.samples)
    yield Figure("fairness (Jain, use / deserved)", "", found / window, HIGHER)


def _deserved(done: SimulatedTrace) -> dict[str, float]:
    """By queue as jobs name it. What a queue with others below it deserves is theirs."""
    queues = done.trace.queues
    parents = {queue.parent for queue in queues}
    leaves = (queue for queue in queues if queue.key not in parents)
    return {queue.key.removeprefix("queue/"): float(queue.deserved[GPU]) for queue in leaves if queue.deserved[GPU]}


def _jain(used: Mapping[str, float], deserved: Mapping[str, float]) -> float:
    """1 where all queues have the same part of what they deserve, 1/n where one of n has everything."""
    parts = [used.get(name, 0.0) / share for name, share in deserved.items()]
    squares = len(parts) * sum(part * part for part in parts)
    return sum(parts) ** 2 / squares if squares else 1.0


# -- each job, and over time -----------------------------------------------------------------------------------------------------


def _job_outcome(run: JobRun) -> JobOutcome:
    job = run.job
    lost = sum(note.seconds for note in run.lost) * job.gpus / _HOUR
    said = [f"waited {run.longest_s / _HOUR:.1f} h: {run.why_longest}"] if run.why_longest else []
    if run.end_s is None and run.started_s is None:
        said.append(f"still waits: {run.why}")
    if run.lost:
        said.append(f"last evicted after {run.lost[-1].at_s / _HOUR:.1f} h: {run.lost[-1].why}")
    return JobOutcome(
        job.name,
        job.queue,
        job.gpus,
        job.arrival_s,
        run.first_start_s,
        run.end_s,
        run.waited_s,
        run.evictions,
        lost,
        "; ".join(said),
    )


def _curves(done: SimulatedTrace) -> dict[str, Curve]:
    window, samples = done.trace.jobs[-1].arrival_s, done.samples
    if not window or not samples:
        return {}
    found = {"waiting jobs": ("", [float(sample.waiting) for sample in samples]), **_gpu_curves(done), **_queue_curves(done)}
    times = np.array([*(sample.at_s for sample in samples), samples[-1].at_s + samples[-1].seconds])
    return {name: Curve(unit, _means(times, np.array(values), window)) for name, (unit, values) in found.items()}


_SampledCurves = dict[str, tuple[str, list[float]]]
"""By name the unit, and a value for each sample."""


def _gpu_curves(done: SimulatedTrace) -> _SampledCurves:
    gpus = done.trace.gpus
    if not gpus:
        return {}
    notes = sorted((note.at_s, note.seconds * run.job.gpus / _HOUR) for run in done.runs for note in run.lost)
    return {
        "GPUs in use": ("%", [100 * sample.gpus / gpus for sample in done.samples]),
        "GPUs idle that a waiting job asks for": ("%", [100 * sample.stranded / gpus for sample in done.samples]),
        "GPU-hours lost so far": ("", _sum_until(notes, [sample.at_s for sample in done.samples])),
    }


def _queue_curves(done: SimulatedTrace) -> _SampledCurves:
    deserved = _deserved(done)
    if len(deserved) < 2:
        return {}
    fairness = [_jain(sample.by_queue, deserved) for sample in done.samples]
    used = {f"GPUs of {queue}": ("", [sample.by_queue.get(queue, 0.0) for sample in done.samples]) for queue in deserved}
    return {"fairness (Jain, use / deserved)": ("", fairness), **used}


def _sum_until(notes: Sequence[tuple[float, float]], times: Sequence[float]) -> list[float]:
    sums = np.concatenate(([0.0], np.cumsum([amount for _, amount in notes])))
    found: list[float] = sums[np.searchsorted([at for at, _ in notes], times, side="right")].tolist()
    return found


def _means(times: FloatColumn, values: FloatColumn, window: float) -> tuple[float, ...]:
    """The mean in each of so many equal parts: a value holds until the next."""
    edges = np.linspace(0.0, window, _POINTS + 1)
    integral = np.interp(edges, times, np.concatenate(([0.0], np.cumsum(values * np.diff(times)))))
    return tuple(np.round(np.diff(integral) / (window / _POINTS), 6).tolist())
