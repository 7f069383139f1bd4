"""Shared GPUs: how long a gang takes that finds room between others, and one that has to make it."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from dataclasses import replace

from muster.bench import worlds
from muster.bench.workload import Measured, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.devices import MIB, Device, DeviceAsk, DeviceDialect, SlotNote
from muster.model.effects import Bind, Evict, Nominate
from muster.model.events import Event, Seen
from muster.model.node import Node
from muster.model.pod import Kind, Pod
from muster.model.resources import CPU, MEMORY, PODS, Resources
from muster.state.store import Store

GROUP = "preempt"

NODES, GPUS, SIZE = 1000, 8, 64
GPU_MEMORY = 16 * worlds.GI
VGPU_NUMBER, VGPU_MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


def nodes() -> Iterator[Event]:
    """1,000 nodes of 8 GPUs of 16 GiB, four to an island, that ten pods may share."""
    amounts = {CPU: 64_000, MEMORY: 512 * worlds.GI, PODS: 110, VGPU_NUMBER: 10 * GPUS, VGPU_MEMORY: GPUS * GPU_MEMORY // MIB}
    for number in range(NODES):
        name = f"node-{number:05d}"
        devices = tuple(
            Device(index, memory=GPU_MEMORY, uuid=f"{name}-{index}", island=f"i{index // 4}", shares=10) for index in range(GPUS)
        )
        labels = {"kubernetes.io/hostname": name}
        yield Seen(Node(name, version=1, allocatable=Resources.of(amounts), labels=labels, devices=devices))


def shared(gigabytes: int) -> Kind:
    """A part of one GPU."""
    request = {CPU: 1000, PODS: 1, VGPU_NUMBER: 1, VGPU_MEMORY: gigabytes * 1024}
    ask = DeviceAsk(DeviceDialect.VGPU, memory=gigabytes * worlds.GI)
    return Kind(request=Resources.of(request), devices=(ask,))


def with_slots(events: Iterator[Event], indices: Iterator[int]) -> Iterator[Event]:
    """Bound pods that say which GPU they have."""
    for event in events:
        if isinstance(event, Seen) and isinstance(event.thing, Pod):
            event = Seen(replace(event.thing, slots=(SlotNote(index=next(indices)),)))
        yield event


def busy(gigabytes: int) -> Store:
    """A pod of that much on every GPU of the cluster."""
    store, each = Store(), shared(gigabytes)
    for event in nodes():
        store.fold(event)
    for number in range(NODES):
        on = [f"node-{number:05d}"] * GPUS
        pods = worlds.gang(f"low-{number}", GPUS, each, priority=1, created=float(number), on=on)
        for event in with_slots(pods, iter(range(GPUS))):
            store.fold(event)
    run_cycle(store.world(10_000.0), default_policy())
    return store


def _between_others() -> Measured:
    """8 GiB are taken of every GPU, and 4 GiB are asked for."""
    return _decide(busy(8), shared(4), want=Bind)


def _makes_room() -> Measured:
    """8 GiB are taken of every GPU, and 12 GiB are asked for: half of all memory is free, and nobody fits."""
    return _decide(busy(8), shared(12), want=Nominate)


def _decide(store: Store, each: Kind, *, want: type[Bind] | type[Nominate]) -> Measured:
    """The median of several gangs, one after the other, each decided in a cycle of its own."""
    policy, times = default_policy(), []
    for turn in range(5):
        for event in worlds.gang(f"hi-{turn}", SIZE, each, priority=9, created=10_000.0 + turn):
            store.fold(event)
        gc.collect()
        watch = Stopwatch()
        with watch:
            outcome = run_cycle(store.world(10_001.0 + turn), policy)
        served = sum(isinstance(effect, want) for effect in outcome.effects)
        evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
        if served != SIZE or evicted != (SIZE if want is Nominate else 0):
            raise AssertionError(f"{served} of {SIZE} members were served, and {evicted} pods evicted")
        times.append(1000 * watch.seconds)
    return Measured(statistics.median(times), (("the first", times[0]),))


WORKLOADS = (
    Workload(GROUP, "a gang of 64 with shared GPUs, 1,000 nodes", "ms", _between_others, bar=50, at_least=False),
    Workload(GROUP, "a gang of 64 with shared GPUs preempts, 1,000 nodes", "ms", _makes_room, bar=50, at_least=False),
)
