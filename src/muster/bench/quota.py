"""Room in a quota for a whole job, on a cluster that others have borrowed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from muster.bench import worlds
from muster.bench.core import cluster
from muster.bench.workload import Measured, Workload
from muster.config import load_policy
from muster.engine.cycle import run_cycle
from muster.engine.hooks import Policy
from muster.model.effects import Evict, Nominate
from muster.model.events import Event, Seen
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.model.resources import CPU, Resources
from muster.state.store import Store

GROUP = "quota"

NODES, PER_NODE, QUOTAS, SIZE = 1000, 10, 50, 256
POLICY = """
actions: [expire, enqueue, allocate, job-preempt]
plugins:
- priority
- {elastic_quota: {enableRuntimeQuota: %s}}
- unschedulable
- selectors
- taints
- fit
- binpack
- nominated
- pdb
- lost_work
"""


def borrowed(policy: Policy) -> Store:
    """10,000 preemptible pods in 50 quotas fill 1,000 nodes, each quota beyond its minimum; one more quota is empty."""
    store, each = cluster(NODES), worlds.kind(cpu_m=6400)
    share = 64_000 * NODES // QUOTAS
    for number in range(QUOTAS):
        least, most = Resources.of({CPU: share // 2}), Resources.of({CPU: 4 * share})
        store.fold(Seen(Queue(f"quota/bench/team-{number:02d}", version=1, deserved=least, limit=most)))
    own = Resources.of({CPU: 16_000 * NODES})
    store.fold(Seen(Queue("quota/bench/owner", version=1, deserved=own, limit=own)))
    for number in range(NODES * PER_NODE):
        queue = f"quota/bench/team-{number % QUOTAS:02d}"
        on = [f"node-{number % NODES:05d}"]
        for event in worlds.gang(f"low-{number}", 1, each, priority=1 + number % 3, created=float(number % 997), on=on):
            store.fold(in_queue(event, queue))
    run_cycle(store.world(10_000.0), policy)
    return store


def in_queue(event: Event, queue: str) -> Event:
    if isinstance(event, Seen) and isinstance(event.thing, Pod):
        return Seen(replace(event.thing, queue=queue))
    return event


def job(name: str, *, created: float) -> Iterator[Event]:
    for event in worlds.gang(name, SIZE, worlds.kind(cpu_m=6400), priority=9, created=created):
        yield in_queue(event, "quota/bench/owner")


def _a_job(*, runtime: str) -> Measured:
    """The median of several jobs, one after the other, each decided in a cycle of its own; seconds of this process."""
    policy = load_policy(POLICY % runtime)
    store, times = borrowed(policy), []
    for turn in range(5):
        for event in job(f"job-{turn}", created=10_000.0 + turn):
            store.fold(event)
        gc.collect()
        start = time.process_time()
        outcome = run_cycle(store.world(10_001.0 + turn), policy)
        times.append(1000 * (time.process_time() - start))
        served = sum(isinstance(effect, Nominate) for effect in outcome.effects)
        evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
        if served != SIZE or evicted != SIZE:
            raise AssertionError(f"{served} of {SIZE} members were nominated, and {evicted} pods evicted")
    return Measured(statistics.median(times[1:]), (("the first", times[0]),))


def _greedy() -> Measured:
    return _a_job(runtime="false")


def _by_runtime() -> Measured:
    return _a_job(runtime="true")


WORKLOADS = (
    Workload(GROUP, "a job of 256 preempts, 50 quotas, 1,000 nodes", "ms", _greedy, bar=200, at_least=False),
    Workload(GROUP, "a job of 256 preempts, with runtime quotas", "ms", _by_runtime, bar=200, at_least=False),
)
