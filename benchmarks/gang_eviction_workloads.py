"""Preemption and reclaim for whole gangs: how long an eviction plan takes on a full cluster."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from muster.bench import synthetic
from muster.bench.core_workloads import empty_cluster
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import load_policy
from muster.convert import convert
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
RACK_PREEMPT_POLICY = """
actions: [expire, enqueue, allocate, gang-preempt]
plugins: [priority, unschedulable, selectors, taints, fit, binpack, nominated, pdb, lost-work, {topology: {tiers: {rack: rack}}}]
"""
VOLCANO_CONF = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def fold(store: Store, events: Iterable[Event], *, now: float = 10_000.0) -> None:
    for event in events:
        store.fold(event)
    store.world(now)


def cycle(store: Store, policy: Policy, *, now: float) -> tuple[Outcome, float]:
    """Run one cycle; its outcome and its CPU seconds."""
    watch = Stopwatch()
    with watch:
        outcome = run_cycle(store.world(now), policy)
    return outcome, watch.seconds


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


def _hundred_preemptors(policy_text: Callable[[], str]) -> Callable[[], Measurement]:
    """500 full nodes of 8 GPUs used by 4,000 one-GPU gangs; 100 gangs of 8 preempt in one cycle."""

    def run() -> Measurement:
        store, policy = empty_cluster(500), load_policy(policy_text())
        each = synthetic.signature(gpus=1)
        for number in range(4000):
            on_nodes = [f"node-{number % 500:05d}"]
            fold(store, synthetic.gang(f"low-{number}", 1, each, priority=1, created=float(number), on_nodes=on_nodes))
        run_cycle(store.world(10_000.0), policy)
        for number in range(100):
            fold(store, synthetic.gang(f"hi-{number}", 8, each, priority=9, created=10_000.0 + number))
        outcome, seconds = cycle(store, policy, now=10_001.0)
        evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
        if evicted != 800:
            raise AssertionError(f"{evicted} pods were evicted instead of 800")
        return Measurement(seconds)

    return run


def _moved_for_a_gang() -> Measurement:
    """1,000 nodes of 8 GPUs, each 60 % full of pods of 1, 2 and 4 GPUs that may be moved; a gang of 8 needs 8 nodes."""
    store, policy = empty_cluster(1000), load_policy(PREEMPT_POLICY.replace("gang-preempt", "consolidate"))
    for number in range(1000):
        for at, gpus in enumerate(((4, 1), (2, 2, 1), (1, 1, 1, 1, 1), (4,), (2, 1, 1, 1))[number % 5]):
            name, each = f"piece-{number}-{at}", synthetic.signature(gpus=gpus)
            store.fold(synthetic.pod(name, each, created=float(number % 97), node=f"node-{number:05d}", movable_by=f"owner-{name}"))
    run_cycle(store.world(10_000.0), policy)
    fold(store, synthetic.gang("big", 8, synthetic.signature(gpus=8), priority=9, created=10_000.0))
    outcome, seconds = cycle(store, policy, now=10_001.0)
    moved = sum(isinstance(effect, Evict) for effect in outcome.effects)
    if moved != 8:
        raise AssertionError(f"{moved} pods were moved: 8 nodes have one pod each")
    return Measurement(1000 * seconds, (("pods moved", float(moved)),))


def _reclaim_seconds(nodes: int) -> float:
    """On each node 8 running jobs of one queue; as many jobs of another queue reclaim: all decided."""
    store, policy, jobs = empty_cluster(nodes), load_policy(RECLAIM_POLICY), 8 * nodes
    half = Resources.of({GPU: jobs // 2})
    for name in ("borrower", "owner"):
        store.fold(Upsert(Queue(f"queue/{name}", version=1, deserved=half)))
    each = synthetic.signature(gpus=1)
    for number in range(jobs):
        on_nodes = [f"node-{number % nodes:05d}"]
        fold(store, synthetic.gang(f"borrowed-{number}", 1, each, created=float(number), on_nodes=on_nodes, queue="queue/borrower"))
    run_cycle(store.world(10_000.0), policy)
    for number in range(jobs):
        fold(store, synthetic.gang(f"own-{number}", 1, each, created=10_000.0 + number, queue="queue/owner"))
    outcome, seconds = cycle(store, policy, now=20_000.0)
    evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
    if not jobs // 2 - 10 <= evicted <= jobs // 2:
        raise AssertionError(f"{evicted} were evicted")
    return seconds


def _reclaim() -> Measurement:
    return Measurement(_reclaim_seconds(500))


def _reclaim_growth() -> Measurement:
    """Ratio of the time on 1,000 nodes, with twice the jobs, to that on 500; 2 would be linear."""
    small, large = (min(_reclaim_seconds(nodes) for _ in range(2)) for nodes in (500, 1000))
    return Measurement(large / small, (("s on 500", small), ("s on 1,000", large)))


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


def _racks(nodes: int) -> Store:
    """Nodes of 8 GPUs in 50 racks."""
    store = Store()
    allocatable = Resources.of({CPU: 64_000, MEMORY: 512 * synthetic.GI, PODS: 110, GPU: 8})
    for number in range(nodes):
        labels = {"rack": f"rack-{number * 50 // nodes:02d}"}
        store.fold(Upsert(Node(f"node-{number:05d}", version=1, allocatable=allocatable, labels=labels)))
    store.world(0.0)
    return store


def _rack_placement() -> Measurement:
    """5,000 nodes in 50 racks, gangs of 4 that must be in one rack, all racks scored."""
    store, policy = _racks(5000), load_policy(RACK_POLICY)
    each = synthetic.signature(gpus=4)
    for number in range(500):
        fold(store, synthetic.gang(f"gang-{number}", 4, each, created=float(number), highest_tier=1))
    outcome, seconds = cycle(store, policy, now=10_000.0)
    bound = sum(isinstance(effect, Bind) for effect in outcome.effects)
    if bound != 2000:
        raise AssertionError(f"{bound} of 2000 pods were bound")
    return Measurement(bound / seconds)


def _rack_preemption() -> Measurement:
    """1,000 full nodes in 50 racks, two gangs of 4 on each; gangs of 8 preempt in the best rack, one after the other."""
    store, policy = _racks(1000), load_policy(RACK_PREEMPT_POLICY)
    each = synthetic.signature(gpus=1)
    for number in range(2000):
        on_nodes = [f"node-{number // 2:05d}"] * 4
        fold(
            store, synthetic.gang(f"low-{number}", 4, each, priority=1 + number % 5, created=float(number % 977), on_nodes=on_nodes)
        )
    run_cycle(store.world(10_000.0), policy)
    times = []
    for number in range(21):
        preemptor = synthetic.gang(
            f"hi-{number}", 8, synthetic.signature(gpus=4), priority=9, created=10_000.0 + number, highest_tier=1
        )
        fold(store, preemptor)
        outcome, seconds = cycle(store, policy, now=10_001.0 + number)
        if sum(isinstance(effect, Nominate) for effect in outcome.effects) != 8:
            raise AssertionError("no plan was found")
        times.append(1000 * seconds)
    return Measurement(statistics.median(times), (("the first", times[0]),))


WORKLOADS = (
    Workload(
        GROUP, "a gang of 10 preempts, 1,000 nodes, 1,000 gangs of 10: median", "ms", _preempt_median, target=10, at_least=False
    ),
    Workload(GROUP, "a gang of 10 preempts: 99th percentile", "ms", _preempt_p99, target=60, at_least=False),
    Workload(
        GROUP,
        "100 gangs of 8 preempt in one cycle, 500 nodes",
        "s",
        _hundred_preemptors(lambda: PREEMPT_POLICY),
        target=1,
        at_least=False,
    ),
    Workload(
        GROUP,
        "100 gangs of 8 preempt with Volcano's default configuration, 500 nodes",
        "s",
        _hundred_preemptors(lambda: convert(VOLCANO_CONF).text),
        target=0.4,
        at_least=False,
    ),
    Workload(
        GROUP,
        "pods are moved for a gang of 8, 1,000 nodes of 8 GPUs, 60 % full",
        "ms",
        _moved_for_a_gang,
        target=300,
        at_least=False,
    ),
    Workload(GROUP, "4,000 jobs reclaim from 4,000, 500 nodes", "s", _reclaim, target=1.2, at_least=False),
    Workload(GROUP, "reclaim: growth to 1,000 nodes with twice the jobs", "times", _reclaim_growth, target=2.2, at_least=False),
    Workload(GROUP, "an infeasible gang, 5,000 full nodes", "ms", _infeasible_gang, target=100, at_least=False),
    Workload(GROUP, "a gang of 8 preempts in the best of 50 racks, 1,000 nodes", "ms", _rack_preemption, target=60, at_least=False),
    Workload(GROUP, "gangs of 4 in one of 50 racks, 5,000 nodes", "pods/s", _rack_placement, target=1500),
)
