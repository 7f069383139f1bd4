"""Long histories: how long the simulator takes for weeks of a contended cluster, and how much memory it needs for that."""

from __future__ import annotations

import resource
from collections.abc import Callable

from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import DEFAULT_POLICY, load_policy
from muster.trace.job_simulation import JobSimulation
from muster.trace.made_trace import MadeTrace, make_trace

GROUP, LARGE_GROUP = "history", "large-history"


def _gang_trace(spec: MadeTrace) -> Callable[[], Measurement]:
    """Gangs of three queues that ask for more than the nodes can do. All of them end."""

    def run() -> Measurement:
        simulation, watch = JobSimulation(make_trace(spec), load_policy(DEFAULT_POLICY)), Stopwatch()
        with watch:
            played = simulation.run()
        if (ended := sum(run.end_s is not None for run in played.runs)) != spec.gangs:
            raise AssertionError(f"{ended} of {spec.gangs} gangs ended")
        # Of the process: what ran before in it counts as well.
        most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        per_cycle = 1000 * watch.seconds / played.cycles
        return Measurement(watch.seconds, (("cycles", float(played.cycles)), ("ms each", per_cycle), ("MB at most", most_mb)))

    return run


WORKLOADS = (
    Workload(GROUP, "2,000 gangs in two weeks, 64 nodes of 8 GPUs", "s", _gang_trace(MadeTrace()), target=15, at_least=False),
    Workload(
        LARGE_GROUP,
        "20,000 gangs in two weeks, 640 nodes of 8 GPUs",
        "s",
        _gang_trace(MadeTrace(gangs=20_000, nodes=640)),
        target=300,
        at_least=False,
    ),
)
