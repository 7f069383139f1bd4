"""Large gangs beside a stream of small ones that never ends, with nodes kept for those that wait long, and without.

A generated history of one queue: single pods of one to eight GPUs that together ask for most of the cluster, and now and then a
gang that needs half of it. Every job declares for how long it runs at most, which is more than it runs. What counts is for how long
large gangs wait, and how much of the cluster is in use until the last job arrives.
"""

from __future__ import annotations

import random
from functools import cache, partial

import numpy as np

from muster.bench.workload import Measurement, Workload
from muster.config import load_policy
from muster.trace.job_simulation import JobSimulation
from muster.trace.job_trace import JobTrace, TraceJob, node_of, signature_of, sorted_jobs
from muster.trace.outcome import figures

GROUP = "backlog"
NODES, GPUS = 8, 8
HOURS, LOAD = 24, 0.97
SEEDS = range(3)
_LARGE, _LARGE_EVERY_S, _LARGE_RUNS_S = NODES // 2, 4 * 3600.0, 3600.0
_GIB = 2**30


def _trace(seed: int) -> JobTrace:
    draw = random.Random(f"backlog {seed}")
    nodes = tuple(node_of(f"node-{n:04d}", cpu_m=96_000, memory=1024 * _GIB, gpus=GPUS) for n in range(NODES))
    large = [
        _job(f"large-{n}", at=draw.uniform(0, HOURS * 3600.0), runs_s=_LARGE_RUNS_S, members=_LARGE, gpus=GPUS)
        for n in range(int(HOURS * 3600 / _LARGE_EVERY_S))
    ]
    wanted = LOAD * NODES * GPUS * HOURS * 3600.0 - sum(job.run_s * job.gpus for job in large)
    small: list[TraceJob] = []
    while wanted > 0:
        gpus, runs_s = draw.choice((1, 1, 2, 4, 8)), min(draw.lognormvariate(8.0, 0.8), 4 * 3600.0)
        small.append(_job(f"small-{len(small)}", at=draw.uniform(0, HOURS * 3600.0), runs_s=runs_s, members=1, gpus=gpus))
        wanted -= gpus * runs_s
    return JobTrace(sorted_jobs([*large, *small]), nodes)


def _job(name: str, *, at: float, runs_s: float, members: int, gpus: int) -> TraceJob:
    signature = signature_of(cpu_m=8000 * gpus, memory=64 * _GIB * gpus, gpus=gpus)
    return TraceJob(name, at, runs_s, members, signature, declared_s=1.2 * runs_s)


@cache
def _waits_and_use(after_s: int) -> tuple[tuple[float, ...], float]:
    """The waits of large gangs in hours, and the percent of GPU-hours in use: over all histories."""
    policy = load_policy({"base": "default", "settings": {"reserveAfterSeconds": after_s}})
    waits: list[float] = []
    used: list[float] = []
    for seed in SEEDS:
        done = JobSimulation(_trace(seed), policy).run()
        used += [each.value for each in figures(done) if each.name == "GPU-hours in use"]
        large = [run for run in done.runs if run.job.members > 1]
        # One that never starts waits until the end.
        end_s = max(run.end_s or 0.0 for run in done.runs)
        waits += [((end_s if run.first_start_s is None else run.first_start_s) - run.job.arrival_s) / 3600.0 for run in large]
    return tuple(waits), float(np.mean(used))


def _p99(after_s: int) -> Measurement:
    waits, used = _waits_and_use(after_s)
    return Measurement(float(np.percentile(waits, 99)), (("mean h", float(np.mean(waits))), ("GPUs in use %", used)))


def _shortened() -> Measurement:
    kept, never = _p99(600), _p99(0)
    return Measurement(100 * kept.value / never.value)


def _use_lost() -> Measurement:
    return Measurement(_waits_and_use(0)[1] - _waits_and_use(600)[1])


_RUN = f"gangs of half the cluster in a backlog of {LOAD:.0%}"
WORKLOADS = (
    Workload(GROUP, f"{_RUN}: 99th percentile of the wait, nodes kept after 10 min", "h", partial(_p99, 600), at_least=False),
    Workload(GROUP, f"{_RUN}: the same, nodes kept for nobody", "h", partial(_p99, 0), at_least=False),
    Workload(GROUP, f"{_RUN}: the first, of the second", "%", _shortened, target=50, at_least=False),
    Workload(GROUP, f"{_RUN}: GPUs less in use", "points", _use_lost, target=2, at_least=False),
)
