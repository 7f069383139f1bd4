"""What a gang's life costs: members that mind each other, claims taken over by a scheduler that starts anew, and a tick of news."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

from muster.bench import worlds
from muster.bench.core import cluster, decide
from muster.bench.workload import Measured, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.events import Event, Seen
from muster.model.pod import ClaimNote, Phase, Pod, Running
from muster.model.selectors import LabelSelector, Operator, PodAffinity, PodTerm, Requirement, SpreadConstraint
from muster.state.store import Store

GROUP = "lifecycle"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def _own(name: str) -> LabelSelector:
    """The pods of this gang."""
    return LabelSelector((Requirement("gang", Operator.IN, (name,)),))


def _gang(name: str, size: int, number: int) -> Iterator[Event]:
    """Every fifth gang keeps its members on different nodes, every fifth spreads them over the zones."""
    each = worlds.kind(cpu_m=1000 + 10 * (number % 50))
    if number % 5 == 0:
        apart = PodTerm(topology_key=HOSTNAME, selector=_own(name))
        each = replace(each, anti_affinity=PodAffinity(required=(apart,)), namespace="bench")
    elif number % 5 == 1:
        each = replace(each, spread=(SpreadConstraint(1, ZONE, True, _own(name)),), namespace="bench")
    for event in worlds.gang(name, size, each, created=float(number)):
        if isinstance(event, Seen) and isinstance(event.thing, Pod):
            event = Seen(replace(event.thing, labels={"gang": name}))
        yield event


def _mixed() -> Measured:
    """500 gangs of 20."""
    best = 0.0
    for _ in range(3):
        events = [event for number in range(500) for event in _gang(f"gang-{number}", 20, number)]
        bound, seconds = decide(cluster(5000), events)
        if bound != 10_000:
            raise AssertionError(f"{bound} of 10000 pods were bound")
        best = max(best, bound / seconds)
    return Measured(best)


def _claimed(gangs: int, size: int) -> Iterator[Event]:
    """Gangs that were promised nodes when the last scheduler died; those who leave are still there."""
    whole = worlds.kind(cpu_m=64_000, gpus=8)
    nodes = gangs * size // 4
    for number in range(nodes):
        uid = f"going-{number}"
        yield Seen(Pod(uid, "bench", uid, whole, version=1, node=f"node-{number:05d}", running=Running.RUNNING, deleted_at=1100.0))
    each = worlds.kind(cpu_m=16_000, gpus=2)
    for number in range(gangs):
        name = f"gang-{number}"
        for event in worlds.gang(name, size, each, created=float(number), priority=5):
            if isinstance(event, Seen) and isinstance(event.thing, Pod):
                pod = event.thing
                at = f"node-{(number * size + int(pod.name.rsplit('-', 1)[1])) // 4:05d}"
                plan = f"bench/{name}@900"
                note = ClaimNote(Phase.NOMINATED, at, 900.0, plan=plan, size=size)
                event = Seen(replace(pod, nominated_node=at, claim=note))
            yield event


def _recovery() -> Measured:
    """20,000 claims of 1,000 gangs on 5,000 nodes, from the first event to the first decision."""
    policy = default_policy()
    events = [*worlds.nodes(5000), *_claimed(1000, 20)]
    gc.collect()
    watch = Stopwatch()
    with watch:
        store = Store()
        for event in events:
            store.fold(event)
        outcome = run_cycle(store.world(1000.0), policy)
    recovered = dict(outcome.stats).get("claims recovered", 0)
    if recovered != 20_000:
        raise AssertionError(f"{recovered} of 20000 claims were recovered")
    return Measured(watch.seconds)


def _a_tick_of_news() -> Measured:
    """1,000 of 50,000 pods started running: folded, and the picture brought up to date."""
    store = cluster(5000)
    each = worlds.kind(cpu_m=6000)
    pods: list[Pod] = []
    for number in range(2500):
        on = [f"node-{(number * 20 + i) % 5000:05d}" for i in range(20)]
        for event in worlds.gang(f"gang-{number}", 20, each, on=on):
            if isinstance(event, Seen) and isinstance(event.thing, Pod):
                pods.append(replace(event.thing, running=Running.PENDING, started=None))
                store.fold(Seen(pods[-1]))
            else:
                store.fold(event)
    run_cycle(store.world(1000.0), default_policy())
    times = []
    for turn in range(5):
        news = [Seen(replace(pod, version=2 + turn, running=Running.RUNNING, started=1000.0 + turn)) for pod in pods[turn::50]]
        gc.collect()
        watch = Stopwatch()
        with watch:
            for event in news:
                store.fold(event)
            store.world(1001.0 + turn)
        times.append(1000 * watch.seconds)
    return Measured(sorted(times)[2], (("pods", float(len(news))),))


WORKLOADS = (
    Workload(GROUP, "10,000 pods, a fifth apart and a fifth spread, 5,000 nodes", "pods/s", _mixed, bar=2000),
    Workload(GROUP, "recovery of 20,000 claims", "s", _recovery, bar=5, at_least=False),
    Workload(GROUP, "news of 1,000 of 50,000 pods", "ms", _a_tick_of_news, bar=100, at_least=False),
)
