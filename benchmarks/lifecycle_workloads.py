"""Inter-pod constraints within gangs, recovery of nominations after a restart, and folding of pod updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.bench import synthetic
from muster.bench.core_workloads import decide, empty_cluster
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.events import Event, Upsert
from muster.model.pod import Phase, Pod, PodStatusPhase
from muster.model.pod_constraints import LabelSelector, Operator, PodAffinity, PodTerm, Requirement, SpreadConstraint
from muster.model.saved_state import SavedMember, SavedPlan, saved_plan_name
from muster.state.store import Store

GROUP = "lifecycle"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def _gang_selector(name: str) -> LabelSelector:
    """The pods of this gang."""
    return LabelSelector((Requirement("gang", Operator.IN, (name,)),))


def _constrained_gang(name: str, size: int, number: int) -> Iterator[Event]:
    """Every fifth gang has anti-affinity between its members, every fifth a spread constraint over zones."""
    each = synthetic.signature(cpu_m=1000 + 10 * (number % 50))
    if number % 5 == 0:
        apart = PodTerm(topology_key=HOSTNAME, selector=_gang_selector(name))
        each = replace(each, anti_affinity=PodAffinity(required=(apart,)), namespace="bench")
    elif number % 5 == 1:
        each = replace(each, spread=(SpreadConstraint(1, ZONE, True, _gang_selector(name)),), namespace="bench")
    for event in synthetic.gang(name, size, each, created=float(number)):
        if isinstance(event, Upsert) and isinstance(event.obj, Pod):
            event = Upsert(replace(event.obj, labels={"gang": name}))
        yield event


def _inter_pod_constraints() -> Measurement:
    """500 gangs of 20."""
    best = 0.0
    for _ in range(3):
        events = [event for number in range(500) for event in _constrained_gang(f"gang-{number}", 20, number)]
        bound, seconds = decide(empty_cluster(5000), events)
        if bound != 10_000:
            raise AssertionError(f"{bound} of 10000 pods were bound")
        best = max(best, bound / seconds)
    return Measurement(best)


def _nominated_gangs(gangs: int, size: int) -> Iterator[Event]:
    """Gangs that were nominated when the last scheduler died; their victims are still terminating."""
    whole = synthetic.signature(cpu_m=64_000, gpus=8)
    nodes = gangs * size // 4
    for number in range(nodes):
        uid = f"victim-{number}"
        yield Upsert(
            Pod(
                uid,
                "bench",
                uid,
                whole,
                version=1,
                node=f"node-{number:05d}",
                status_phase=PodStatusPhase.RUNNING,
                deleted_at=1100.0,
            )
        )
    each = synthetic.signature(cpu_m=16_000, gpus=2)
    for number in range(gangs):
        name = f"gang-{number}"
        plan, members, key = f"bench/{name}@900", [], ""
        for event in synthetic.gang(name, size, each, created=float(number), priority=5):
            if isinstance(event, Upsert) and isinstance(event.obj, Pod):
                pod = event.obj
                at = f"node-{(number * size + int(pod.name.rsplit('-', 1)[1])) // 4:05d}"
                members.append(SavedMember(pod.uid, pod.full_name, at, Phase.NOMINATED, 900.0, plan))
                key = pod.gang_key
                event = Upsert(replace(pod, nominated_node=at))
            yield event
        yield Upsert(SavedPlan(key, tuple(members), name=saved_plan_name(key), version=1))


def _recovery() -> Measurement:
    """20,000 nominations of 1,000 gangs on 5,000 nodes, from the first event to the first decision."""
    policy = default_policy()
    events = [*synthetic.nodes(5000), *_nominated_gangs(1000, 20)]
    watch = Stopwatch()
    with watch:
        store = Store()
        for event in events:
            store.fold(event)
        outcome = run_cycle(store.world(1000.0), policy)
    recovered = dict(outcome.stats).get("reservations recovered", 0)
    if recovered != 20_000:
        raise AssertionError(f"{recovered} of 20000 nominations were recovered")
    return Measurement(watch.seconds)


def _pod_updates() -> Measurement:
    """1,000 of 50,000 pods started running: folded into the world."""
    store = empty_cluster(5000)
    each = synthetic.signature(cpu_m=6000)
    pods: list[Pod] = []
    for number in range(2500):
        on_nodes = [f"node-{(number * 20 + i) % 5000:05d}" for i in range(20)]
        for event in synthetic.gang(f"gang-{number}", 20, each, on_nodes=on_nodes):
            if isinstance(event, Upsert) and isinstance(event.obj, Pod):
                pods.append(replace(event.obj, status_phase=PodStatusPhase.PENDING, started=None))
                store.fold(Upsert(pods[-1]))
            else:
                store.fold(event)
    run_cycle(store.world(1000.0), default_policy())
    times = []
    for repeat in range(5):
        updates = [
            Upsert(replace(pod, version=2 + repeat, status_phase=PodStatusPhase.RUNNING, started=1000.0 + repeat))
            for pod in pods[repeat::50]
        ]
        watch = Stopwatch()
        with watch:
            for event in updates:
                store.fold(event)
            store.world(1001.0 + repeat)
        times.append(1000 * watch.seconds)
    return Measurement(sorted(times)[2], (("pods", float(len(updates))),))


WORKLOADS = (
    Workload(
        GROUP, "10,000 pods, a fifth with anti-affinity, a fifth spread, 5,000 nodes", "pods/s", _inter_pod_constraints, target=2000
    ),
    Workload(GROUP, "recovery of 20,000 nominations", "s", _recovery, target=5, at_least=False),
    Workload(GROUP, "updates of 1,000 of 50,000 pods", "ms", _pod_updates, target=100, at_least=False),
)
