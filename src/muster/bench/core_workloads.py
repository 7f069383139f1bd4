"""The decision path: events folded, cycle run, effects produced. All nodes are considered, with all default plugins."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterable

from muster.bench import synthetic
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.backfill_reservations import best_nodes
from muster.engine.cycle import run_cycle
from muster.engine.session import Session
from muster.model.effects import Bind
from muster.model.events import Event
from muster.state.store import Store

GROUP = "core"


def decide(store: Store, events: Iterable[Event], *, now: float = 1000.0) -> tuple[int, float]:
    """Fold the events and run a cycle; the number of binds, and the seconds it took."""
    policy = default_policy()
    incoming = list(events)
    watch = Stopwatch()
    with watch:
        for event in incoming:
            store.fold(event)
        outcome = run_cycle(store.world(now), policy)
    return sum(isinstance(effect, Bind) for effect in outcome.effects), watch.seconds


def empty_cluster(count: int) -> Store:
    store = Store()
    for event in synthetic.nodes(count):
        store.fold(event)
    store.world(0.0)
    return store


def _placement_rate(gangs: int, size: int, signatures: int = 1, *, nodes: int = 5000) -> Callable[[], Measurement]:
    def run() -> Measurement:
        best = 0.0
        for _ in range(3):
            distinct = [synthetic.signature(cpu_m=1000 + 10 * i) for i in range(signatures)]
            events: list[Event] = []
            for number in range(gangs):
                signature = distinct[number % signatures]
                if size == 1:
                    events.append(synthetic.pod(f"pod-{number}", signature, created=float(number)))
                else:
                    events.extend(synthetic.gang(f"gang-{number}", size, signature, created=float(number)))
            bound, seconds = decide(empty_cluster(nodes), events)
            if bound != gangs * size:
                raise AssertionError(f"{bound} of {gangs * size} pods were bound")
            best = max(best, bound / seconds)
        return Measurement(best)

    return run


def _many_signatures() -> Measurement:
    distinct = [synthetic.signature(cpu_m=1000 + 10 * i) for i in range(400)]
    events = [synthetic.pod(f"pod-{number}", distinct[number % 400], created=float(number)) for number in range(1000)]
    seconds = []
    for _ in range(3):
        bound, took = decide(empty_cluster(5000), events)
        if bound != 1000:
            raise AssertionError(f"{bound} of 1000 pods were bound")
        seconds.append(took)
    return Measurement(min(seconds))


def _small_gangs() -> Measurement:
    """On 5,000 nodes, every other one full."""
    store = empty_cluster(5000)
    whole = synthetic.signature(cpu_m=64_000, gpus=8)
    for number in range(0, 5000, 2):
        store.fold(synthetic.pod(f"full-{number}", whole, node=f"node-{number:05d}"))
    store.world(0.0)
    each = synthetic.signature(cpu_m=4000, gpus=1)
    events = [event for number in range(500) for event in synthetic.gang(f"trio-{number}", 3, each, created=float(number))]
    bound, seconds = decide(store, events)
    if bound != 1500:
        raise AssertionError(f"{bound} of 1500 pods were bound")
    return Measurement(1000 * seconds / 500)


def _idle_cycle() -> Measurement:
    """5,000 nodes, 50,000 bound pods, 2,000 waiting gangs that do not fit."""
    store = empty_cluster(5000)
    each = synthetic.signature(cpu_m=6400, memory=GI_40)
    for number in range(50_000):
        store.fold(synthetic.pod(f"runs-{number}", each, node=f"node-{number % 5000:05d}"))
    for number in range(2000):
        for event in synthetic.gang(f"waits-{number}", 4, synthetic.signature(cpu_m=8000), created=float(number)):
            store.fold(event)
    policy = default_policy()
    run_cycle(store.world(1000.0), policy)
    times = []
    for repeat in range(5):
        watch = Stopwatch()
        with watch:
            outcome = run_cycle(store.world(1001.0 + repeat), policy)
        if outcome.effects:
            raise AssertionError("a cycle without changes had effects")
        times.append(1000 * watch.seconds)
    return Measurement(sorted(times)[2])


def _backfill_reservation() -> Measurement:
    """Nodes for a gang of 64 whole nodes: 5,000 nodes, each with 8 pods, of which every other says how long it runs."""
    store = empty_cluster(5000)
    each = synthetic.signature(cpu_m=8000, gpus=1)
    for number in range(40_000):
        store.fold(synthetic.pod(f"runs-{number}", each, node=f"node-{number // 8:05d}", run_s=None if number % 2 else number))
    for event in synthetic.gang("waits", 64, synthetic.signature(cpu_m=8000, gpus=8)):
        store.fold(event)
    policy = default_policy()
    world = store.world(1000.0)
    run_cycle(world, policy)
    s, gang = Session(world, policy), world.facts.gangs["volcano:bench/waits"]
    times = []
    for _ in range(5):
        watch = Stopwatch()
        with watch:
            found = best_nodes(s, gang)
        if found is None or len(found.nodes) != 64:
            raise AssertionError("no 64 nodes were found")
        times.append(1000 * watch.seconds)
    return Measurement(sorted(times)[2])


GI_40 = 40 * synthetic.GI


def _in_new_process(function: str) -> list[float]:
    """Call a function of this module in a process of its own; the numbers that it prints."""
    script = f"from muster.bench.core_workloads import {function}; {function}()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def _first_cycle() -> Measurement:
    return Measurement(min(_in_new_process("first_cycle")[0] for _ in range(3)))


def first_cycle() -> None:
    """5,000 nodes, each with a gang of 4 on half of it; 50 gangs of 20 are placed in the first cycle."""
    store, each = empty_cluster(5000), synthetic.signature(cpu_m=8000, gpus=1)
    for number in range(5000):
        for event in synthetic.gang(f"runs-{number}", 4, each, on_nodes=[f"node-{number:05d}"] * 4):
            store.fold(event)
    store.world(0.0)
    events = [event for number in range(50) for event in synthetic.gang(f"gang-{number}", 20, each, created=float(number))]
    bound, seconds = decide(store, events)
    if bound != 1000:
        raise AssertionError(f"{bound} of 1000 pods were bound")
    print(seconds)


def _cold_start() -> Measurement:
    """150,000 pods on 5,000 nodes, in a process of its own so that its memory can be measured."""
    seconds, megabytes = _in_new_process("cold_start")
    return Measurement(seconds, (("resident MB", megabytes),))


def cold_start() -> None:
    store = Store()
    each = [synthetic.signature(cpu_m=1000 + i) for i in range(50)]
    watch = Stopwatch()
    with watch:
        for event in synthetic.nodes(5000):
            store.fold(event)
        for number in range(15_000):
            on_nodes = [f"node-{(number * 10 + i) % 5000:05d}" for i in range(10)]
            for event in synthetic.gang(f"gang-{number}", 10, each[number % 50], on_nodes=on_nodes):
                store.fold(event)
        run_cycle(store.world(1000.0), default_policy())
    print(watch.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _cold_start_memory() -> Measurement:
    return Measurement(_cold_start().details[0][1])


def _node_scaling() -> Measurement:
    """Ratio of the time for 2,000 pods on 10,000 nodes to that on 1,000; 10 would be linear."""
    each = [synthetic.signature(cpu_m=1000 + 10 * i) for i in range(20)]
    seconds = {}
    for count in (1000, 10_000):
        events = [synthetic.pod(f"pod-{n}", each[n % 20], created=float(n)) for n in range(2000)]
        seconds[count] = min(decide(empty_cluster(count), events)[1] for _ in range(3))
    return Measurement(
        seconds[10_000] / seconds[1000], (("ms on 1,000", 1000 * seconds[1000]), ("ms on 10,000", 1000 * seconds[10_000]))
    )


WORKLOADS = (
    Workload(GROUP, "10,000 single pods of 50 signatures, 5,000 nodes", "pods/s", _placement_rate(10_000, 1, 50), target=5000),
    Workload(GROUP, "500 gangs of 20, 5,000 nodes", "pods/s", _placement_rate(500, 20)),
    Workload(GROUP, "20 gangs of 500, 5,000 nodes", "pods/s", _placement_rate(20, 500), target=50_000),
    Workload(GROUP, "1 gang of 10,000, 5,000 nodes", "pods/s", _placement_rate(1, 10_000), target=50_000),
    Workload(GROUP, "1,000 single pods of 400 signatures, 5,000 nodes", "s", _many_signatures, target=0.2, at_least=False),
    Workload(
        GROUP, "first cycle of a process, 5,000 half-filled nodes, 50 gangs of 20", "s", _first_cycle, target=0.15, at_least=False
    ),
    Workload(GROUP, "gangs of 3 on 5,000 nodes, half full", "ms per gang", _small_gangs, target=2, at_least=False),
    Workload(GROUP, "a cycle without changes, 2,000 gangs waiting", "ms", _idle_cycle, target=10, at_least=False),
    Workload(GROUP, "nodes to keep for a gang of 64, 5,000 nodes", "ms", _backfill_reservation, target=100, at_least=False),
    Workload(GROUP, "cold start: 150,000 pods, 5,000 nodes", "s", _cold_start, target=20, at_least=False),
    Workload(GROUP, "cold start: memory", "MB", _cold_start_memory, target=2000, at_least=False),
    Workload(GROUP, "growth from 1,000 to 10,000 nodes", "times", _node_scaling, target=10, at_least=False),
)
