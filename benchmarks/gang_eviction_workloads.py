"""Preemption and reclaim for whole gangs: how long an eviction plan takes on a full cluster."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable

from muster.bench import synthetic
from muster.bench.core_workloads import empty_cluster
from muster.bench.workload import Measurement, Workload
from muster.config import load_policy
from muster.engine.cycle import run_cycle
from muster.engine.hooks import Policy
from muster.model.effects import Bind, Evict, Nominate, Outcome
from muster.model.events import Event, Upsert
from muster.model.node import Node
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.state.store import Store

GROUP = "evict"

PREEMPT_POLICY = """
actions: [expire, enqueue, allocate, gang-preempt]
plugins: [priority, unschedulable, selectors, taints, fit, binpack, nominated, pdb, lost-work]
"""
RECLAIM_POLICY = """
actions: [expire, enqueue, allocate, gang-preempt, gang-reclaim]
plugins: [priority, unschedulable, selectors, taints, fit, binpack, nominated, pdb, lost-work, capacity]
"""
RACK_POLICY = """
actions: [expire, enqueue, allocate]
plugins: [priority, unschedulable, selectors, taints, fit, binpack, {topology: {tiers: {rack: rack}}}]
"""


def fold(store: Store, events: Iterable[Event], *, now: float = 10_000.0) -> None:
    for event in events:
        store.fold(event)
    store.world(now)


def cycle(store: Store, policy: Policy, *, now: float) -> tuple[Outcome, float]:
    """Run one cycle; its outcome and its seconds."""
    gc.collect()
    start = time.perf_counter()
    outcome = run_cycle(store.world(now), policy)
    return outcome, time.perf_counter() - start


def _preempt_median() -> Measurement:
    """1,000 nodes, 1,000 gangs of 10 pods, 100 preemptors, one after the other: the median in ms, and the 99th percentile."""
    times = sorted(_preempt_times())
    return Measurement(statistics.median(times), (("99th percentile", times[98]),))


def _preempt_p99() -> Measurement:
    return Measurement(sorted(_preempt_times())[98])


def _preempt_times() -> list[float]:
    store, policy = empty_cluster(1000), load_policy(PREEMPT_POLICY)
    each = synthetic.signature(cpu_m=6400)
    for number in range(1000):
        on_nodes = [f"node-{(number * 10 + i) % 1000:05d}" for i in range(10)]
        fold(store, synthetic.gang(f"low-{number}", 10, each, priority=1, created=float(number), on_nodes=on_nodes))
    run_cycle(store.world(10_000.0), policy)
    times = []
    for number in range(100):
        fold(store, synthetic.gang(f"hi-{number}", 10, each, priority=9, created=10_000.0 + number))
        outcome, seconds = cycle(store, policy, now=10_001.0 + number)
        if not any(isinstance(effect, Nominate) for effect in outcome.effects):
            raise AssertionError("no plan was found")
        times.append(1000 * seconds)
    return times


def _hundred_preemptors() -> Measurement:
    """500 full nodes of 8 GPUs used by 4,000 one-GPU gangs; 100 gangs of 8 preempt in one cycle."""
    store, policy = empty_cluster(500), load_policy(PREEMPT_POLICY)
    each = synthetic.signature(gpus=1)
    for number in range(4000):
        fold(
            store,
            synthetic.gang(f"low-{number}", 1, each, priority=1, created=float(number), on_nodes=[f"node-{number % 500:05d}"]),
        )
    run_cycle(store.world(10_000.0), policy)
    for number in range(100):
        fold(store, synthetic.gang(f"hi-{number}", 8, each, priority=9, created=10_000.0 + number))
    outcome, seconds = cycle(store, policy, now=10_001.0)
    evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
    if evicted != 800:
        raise AssertionError(f"{evicted} pods were evicted instead of 800")
    return Measurement(seconds)


def _reclaim() -> Measurement:
    """500 nodes, 4,000 running jobs of one queue, 4,000 jobs of another reclaim: all decided."""
    store, policy = empty_cluster(500), load_policy(RECLAIM_POLICY)
    half = Resources.of({GPU: 2000})
    for name in ("borrower", "owner"):
        store.fold(Upsert(Queue(f"queue/{name}", version=1, deserved=half)))
    each = synthetic.signature(gpus=1)
    for number in range(4000):
        on_nodes = [f"node-{number % 500:05d}"]
        fold(store, synthetic.gang(f"borrowed-{number}", 1, each, created=float(number), on_nodes=on_nodes, queue="queue/borrower"))
    run_cycle(store.world(10_000.0), policy)
    for number in range(4000):
        fold(store, synthetic.gang(f"own-{number}", 1, each, created=10_000.0 + number, queue="queue/owner"))
    outcome, seconds = cycle(store, policy, now=20_000.0)
    evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
    if not 1990 <= evicted <= 2000:
        raise AssertionError(f"{evicted} were evicted")
    return Measurement(seconds)


def _infeasible_gang() -> Measurement:
    """An infeasible gang on 5,000 full nodes: how long until its verdict."""
    store, policy = empty_cluster(5000), load_policy(PREEMPT_POLICY)
    each = synthetic.signature(gpus=1)
    for number in range(5000):
        fold(
            store, synthetic.gang(f"low-{number}", 8, each, priority=1, created=float(number), on_nodes=[f"node-{number:05d}"] * 8)
        )
    run_cycle(store.world(10_000.0), policy)
    fold(store, synthetic.gang("warm", 1, synthetic.signature(gpus=1), priority=9, created=10_000.0))
    run_cycle(store.world(10_001.0), policy)
    fold(store, synthetic.gang("huge", 6000, synthetic.signature(gpus=8), priority=9, created=10_002.0))
    outcome, seconds = cycle(store, policy, now=10_003.0)
    if any(isinstance(effect, Evict | Nominate) for effect in outcome.effects):
        raise AssertionError("an infeasible gang was nominated")
    return Measurement(1000 * seconds)


def _rack_placement() -> Measurement:
    """5,000 nodes in 50 racks, gangs of 4 that must be in one rack, all racks scored."""
    store, policy = Store(), load_policy(RACK_POLICY)
    allocatable = Resources.of({CPU: 64_000, MEMORY: 512 * synthetic.GI, PODS: 110, GPU: 8})
    for number in range(5000):
        labels = {"rack": f"rack-{number // 100:02d}"}
        store.fold(Upsert(Node(f"node-{number:05d}", version=1, allocatable=allocatable, labels=labels)))
    store.world(0.0)
    each = synthetic.signature(gpus=4)
    for number in range(500):
        fold(store, synthetic.gang(f"gang-{number}", 4, each, created=float(number), highest_tier=1))
    outcome, seconds = cycle(store, policy, now=10_000.0)
    bound = sum(isinstance(effect, Bind) for effect in outcome.effects)
    if bound != 2000:
        raise AssertionError(f"{bound} of 2000 pods were bound")
    return Measurement(bound / seconds)


WORKLOADS = (
    Workload(
        GROUP, "a gang of 10 preempts, 1,000 nodes, 1,000 gangs of 10: median", "ms", _preempt_median, target=10, at_least=False
    ),
    Workload(GROUP, "a gang of 10 preempts: 99th percentile", "ms", _preempt_p99, target=60, at_least=False),
    Workload(GROUP, "100 gangs of 8 preempt in one cycle, 500 nodes", "s", _hundred_preemptors, target=1, at_least=False),
    Workload(GROUP, "4,000 jobs reclaim from 4,000, 500 nodes", "s", _reclaim, target=5, at_least=False),
    Workload(GROUP, "an infeasible gang, 5,000 full nodes", "ms", _infeasible_gang, target=100, at_least=False),
    Workload(GROUP, "gangs of 4 in one of 50 racks, 5,000 nodes", "pods/s", _rack_placement, target=1500),
)
