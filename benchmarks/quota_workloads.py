"""Preemption for a whole job within its quota, on a cluster that other quotas have borrowed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from muster.bench import synthetic
from muster.bench.core_workloads import empty_cluster
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import load_policy
from muster.engine.cycle import run_cycle
from muster.engine.hooks import Policy
from muster.model.effects import Evict, Nominate
from muster.model.events import Event, Upsert
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, Resources
from muster.state.store import Store

GROUP = "quota"

NODES, PODS_PER_NODE, QUOTAS, JOB_SIZE = 1000, 10, 50, 256
POLICY = """
actions: [expire, enqueue, allocate, job-preempt]
plugins:
- priority
- {elastic-quota: {enableRuntimeQuota: %s}}
- unschedulable
- selectors
- taints
- fit
- binpack
- nominated
- pdb
- lost-work
"""


def overborrowed_store(policy: Policy) -> Store:
    """10,000 preemptible pods in 50 quotas fill 1,000 nodes, each quota beyond its minimum; one more quota is empty."""
    store, each = empty_cluster(NODES), synthetic.signature(cpu_m=6400)
    share = 64_000 * NODES // QUOTAS
    for number in range(QUOTAS):
        least, most = Resources.of({CPU: share // 2}), Resources.of({CPU: 4 * share})
        store.fold(Upsert(Queue(f"quota/bench/team-{number:02d}", version=1, deserved=least, limit=most)))
    own = Resources.of({CPU: 16_000 * NODES})
    store.fold(Upsert(Queue("quota/bench/owner", version=1, deserved=own, limit=own)))
    for number in range(NODES * PODS_PER_NODE):
        queue = f"quota/bench/team-{number % QUOTAS:02d}"
        on_nodes = [f"node-{number % NODES:05d}"]
        for event in synthetic.gang(
            f"low-{number}", 1, each, priority=1 + number % 3, created=float(number % 997), on_nodes=on_nodes
        ):
            store.fold(gangs_in_queue(event, queue))
    run_cycle(store.world(10_000.0), policy)
    return store


def gangs_in_queue(event: Event, queue: str) -> Event:
    if isinstance(event, Upsert) and isinstance(event.obj, Pod):
        return Upsert(replace(event.obj, queue=queue))
    return event


def job_events(name: str, *, created: float) -> Iterator[Event]:
    for event in synthetic.gang(name, JOB_SIZE, synthetic.signature(cpu_m=6400), priority=9, created=created):
        yield gangs_in_queue(event, "quota/bench/owner")


def _preempt_median(*, runtime: str) -> Measurement:
    """The median of several jobs, one after the other, each decided in a cycle of its own; CPU seconds of this process."""
    policy = load_policy(POLICY % runtime)
    store, times = overborrowed_store(policy), []
    for turn in range(5):
        for event in job_events(f"job-{turn}", created=10_000.0 + turn):
            store.fold(event)
        watch = Stopwatch()
        with watch:
            outcome = run_cycle(store.world(10_001.0 + turn), policy)
        times.append(1000 * watch.seconds)
        served = sum(isinstance(effect, Nominate) for effect in outcome.effects)
        evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
        if served != JOB_SIZE or evicted != JOB_SIZE:
            raise AssertionError(f"{served} of {JOB_SIZE} members were nominated, and {evicted} pods evicted")
    return Measurement(statistics.median(times[1:]), (("the first", times[0]),))


def _without_runtime_quota() -> Measurement:
    return _preempt_median(runtime="false")


def _with_runtime_quota() -> Measurement:
    return _preempt_median(runtime="true")


WORKLOADS = (
    Workload(GROUP, "a job of 256 preempts, 50 quotas, 1,000 nodes", "ms", _without_runtime_quota, target=200, at_least=False),
    Workload(GROUP, "a job of 256 preempts, with runtime quotas", "ms", _with_runtime_quota, target=200, at_least=False),
)
