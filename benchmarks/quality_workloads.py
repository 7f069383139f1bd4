"""How good plans are: on small random clusters, beside the best plan of an oracle that tries every set of victims.

Of each row are counted the clusters with a wrong answer: no plan found though there is one, a higher priority evicted than needed,
a worse key of the order of plans that counts before the cost, a torn gang, a victim that no rule allows, an eviction without need.
The cost of victims is compared where nothing else is wrong. Its figure is in `tests/oracles/plan_order.py`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

from benchmarks.plan_quality import RowQuality, WorldQuality, row_quality, world_quality
from benchmarks.quality_rows import ROWS, make_world
from muster.bench.workload import Measurement, SeededRow, Workload

GROUP = "quality"
SEEDS = range(300)
MOST_COST, MOST_COST_MEAN = 1.5, 1.02


@cache
def measured(row: str, seeds: range) -> RowQuality:
    """The row on these seeds, shared out among the cores."""
    if len(seeds) < 20:
        return row_quality(row, seeds)
    workers = min(os.cpu_count() or 1, 4)
    parts = _pool(workers).map(partial(row_quality, row), [seeds[at::workers] for at in range(workers)])
    return RowQuality.joined(parts)


@cache
def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _wrong(row: str, seeds: range = SEEDS) -> Measurement:
    found = measured(row, seeds)
    counts = [("clusters", found.worlds), ("with a plan", found.exist), ("found", found.found)]
    counts += [(fault.value, len(wrong)) for fault, wrong in found.faults.items()]
    return Measurement(found.wrong, tuple((name, float(count)) for name, count in counts))


def _mean(row: str, seeds: range = SEEDS) -> Measurement:
    found = measured(row, seeds)
    return Measurement(found.mean, (("plans", float(len(found.ratios))),))


def _worst(row: str, seeds: range = SEEDS) -> Measurement:
    return Measurement(measured(row, seeds).worst)


def show(row: str, seed: int) -> str:
    """The cluster as a scenario that `muster sim` runs, and above it what the answer was and what is best."""
    document = make_world(row, seed)
    lines = [f"# {line}" for line in _about(world_quality(document))]
    for key, value in document.items():
        # Flow style, which is JSON: one line for each node, queue and gang.
        many = isinstance(value, list)
        lines += [f"{key}:", *(f"- {json.dumps(each)}" for each in value)] if many else [f"{key}: {json.dumps(value)}"]
    return "\n".join(lines)


def _about(found: WorldQuality) -> list[str]:
    if not found.exists and not found.ours:
        return ["no plan is needed, or none is legal; nobody is evicted"]
    cost = [] if found.ratio is None else [f"cost of victims over the best: {found.ratio:.3f}"]
    faults = sorted(fault.value for fault in found.faults)
    wrong = [f"wrong: {', '.join(faults)}"] if faults else []
    return [f"found: {found.ours or 'no plan'}", f"best: {found.best}", *cost, *wrong, *map(str, found.findings)]


def _workloads(row: str) -> tuple[Workload, ...]:
    about = partial(show, row)
    return (
        Workload(
            GROUP, f"{row}: wrong answers", "clusters", partial(_wrong, row), target=0, at_least=False,
            row=SeededRow(row, partial(_wrong, row), about),
        ),
        Workload(
            GROUP, f"{row}: cost of victims, mean", "times the least", partial(_mean, row), target=MOST_COST_MEAN, at_least=False,
            row=SeededRow(row, partial(_mean, row), about),
        ),
        Workload(
            GROUP, f"{row}: cost of victims, worst", "times the least", partial(_worst, row), target=MOST_COST, at_least=False,
            row=SeededRow(row, partial(_worst, row), about),
        ),
    )  # fmt: skip


WORKLOADS = tuple(workload for row in ROWS for workload in _workloads(row))
