"""Preemption for single pods over all nodes: for one pod, for many, and how the time grows with the cluster."""

from __future__ import annotations

import statistics

from muster.bench import synthetic
from muster.bench.core_workloads import empty_cluster
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.effects import Evict, Nominate
from muster.state.store import Store

GROUP = "preempt"

NODES, PODS_PER_NODE = 5000, 10


def full_cluster(nodes: int = NODES) -> Store:
    """Ten single pods of five priorities on every node, and no free capacity."""
    store, each = empty_cluster(nodes), synthetic.signature(cpu_m=6400)
    for number in range(PODS_PER_NODE * nodes):
        node = f"node-{number % nodes:05d}"
        store.fold(synthetic.pod(f"low-{number:06d}", each, priority=1 + number % 5, created=float(number % 977), node=node))
    run_cycle(store.world(10_000.0), default_policy())
    return store


def preempt(store: Store, count: int, *, turn: int) -> float:
    """`count` pods preempt in one cycle. CPU seconds of this process: other load on the machine does not count."""
    policy = default_policy()
    for number in range(count):
        preemptor = synthetic.pod(f"hi-{turn}-{number}", synthetic.signature(cpu_m=10_000), priority=9, created=10_000.0 + turn)
        store.fold(preemptor)
    watch = Stopwatch()
    with watch:
        outcome = run_cycle(store.world(10_001.0 + turn), policy)
    served = sum(isinstance(effect, Nominate) for effect in outcome.effects)
    evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
    if served != count or not count <= evicted <= 2 * count:
        raise AssertionError(f"{served} of {count} pods were nominated, and {evicted} pods evicted")
    return watch.seconds


def _one_preemptor() -> Measurement:
    """The median of several, one per cycle; and the first, which also builds the victim table."""
    store = full_cluster()
    times = [1000 * preempt(store, 1, turn=turn) for turn in range(6)]
    return Measurement(statistics.median(times[1:]), (("the first", times[0]),))


def _many_preemptors() -> Measurement:
    return Measurement(preempt(full_cluster(), 500, turn=0))


def _node_scaling() -> Measurement:
    """Ratio of the time for one pod on 5,000 nodes to that on 1,000; 5 would be linear."""
    ms = {}
    for nodes in (1000, 5000):
        store = full_cluster(nodes)
        ms[nodes] = min([1000 * preempt(store, 1, turn=turn) for turn in range(6)][1:])
    return Measurement(ms[5000] / ms[1000], (("ms on 1,000", ms[1000]), ("ms on 5,000", ms[5000])))


WORKLOADS = (
    Workload(GROUP, "one pod preempts, 5,000 nodes, 50,000 pods", "ms", _one_preemptor, target=100, at_least=False),
    Workload(GROUP, "500 pods preempt in one cycle, 5,000 nodes, 50,000 pods", "s", _many_preemptors, target=10, at_least=False),
    Workload(GROUP, "one pod preempts: growth from 1,000 to 5,000 nodes", "times", _node_scaling, target=5, at_least=False),
)
