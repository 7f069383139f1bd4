"""Shared GPUs: the time for a gang that fits beside others, and for one that preempts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from muster.bench import synthetic
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.device import MIB, Device, DeviceApi, DeviceRequest, DeviceSlotNote
from muster.model.effects import Bind, Evict, Nominate
from muster.model.events import Event, Upsert
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature
from muster.model.resource_amounts import CPU, MEMORY, PODS, Resources
from muster.state.store import Store

GROUP = "preempt"

NODES, GPUS_PER_NODE, GANG_SIZE = 1000, 8, 64
GPU_MEMORY = 16 * synthetic.GI
VGPU_NUMBER, VGPU_MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


def nodes() -> Iterator[Event]:
    """1,000 nodes of 8 GPUs of 16 GiB, in device groups of four, each shared by up to ten pods."""
    amounts = {
        CPU: 64_000,
        MEMORY: 512 * synthetic.GI,
        PODS: 110,
        VGPU_NUMBER: 10 * GPUS_PER_NODE,
        VGPU_MEMORY: GPUS_PER_NODE * GPU_MEMORY // MIB,
    }
    for number in range(NODES):
        name = f"node-{number:05d}"
        devices = tuple(
            Device(index, memory=GPU_MEMORY, uuid=f"{name}-{index}", device_group=f"i{index // 4}", shares=10)
            for index in range(GPUS_PER_NODE)
        )
        labels = {"kubernetes.io/hostname": name}
        yield Upsert(Node(name, version=1, allocatable=Resources.of(amounts), labels=labels, devices=devices))


def shared_gpu(gigabytes: int) -> PodSignature:
    """A part of one GPU."""
    request = {CPU: 1000, PODS: 1, VGPU_NUMBER: 1, VGPU_MEMORY: gigabytes * 1024}
    device_request = DeviceRequest(DeviceApi.VGPU, memory=gigabytes * synthetic.GI)
    return PodSignature(request=Resources.of(request), devices=(device_request,))


def with_slots(events: Iterator[Event], indices: Iterator[int]) -> Iterator[Event]:
    """Bound pods with a note of their GPU."""
    for event in events:
        if isinstance(event, Upsert) and isinstance(event.obj, Pod):
            event = Upsert(replace(event.obj, device_slots=(DeviceSlotNote(index=next(indices)),)))
        yield event


def busy_cluster(gigabytes: int) -> Store:
    """A pod of that size on every GPU of the cluster."""
    store, each = Store(), shared_gpu(gigabytes)
    for event in nodes():
        store.fold(event)
    for number in range(NODES):
        on_nodes = [f"node-{number:05d}"] * GPUS_PER_NODE
        pods = synthetic.gang(f"low-{number}", GPUS_PER_NODE, each, priority=1, created=float(number), on_nodes=on_nodes)
        for event in with_slots(pods, iter(range(GPUS_PER_NODE))):
            store.fold(event)
    run_cycle(store.world(10_000.0), default_policy())
    return store


def _fits_beside_others() -> Measurement:
    """8 GiB of every GPU are used, and 4 GiB are requested."""
    return _decide(busy_cluster(8), shared_gpu(4), expected=Bind)


def _preempts() -> Measurement:
    """8 GiB of every GPU are used, and 12 GiB are requested: half of all memory is free, and no pod fits."""
    return _decide(busy_cluster(8), shared_gpu(12), expected=Nominate)


def _decide(store: Store, each: PodSignature, *, expected: type[Bind] | type[Nominate]) -> Measurement:
    """The median of several gangs, one after the other, each decided in a cycle of its own."""
    policy, times = default_policy(), []
    for turn in range(5):
        for event in synthetic.gang(f"hi-{turn}", GANG_SIZE, each, priority=9, created=10_000.0 + turn):
            store.fold(event)
        watch = Stopwatch()
        with watch:
            outcome = run_cycle(store.world(10_001.0 + turn), policy)
        served = sum(isinstance(effect, expected) for effect in outcome.effects)
        evicted = sum(isinstance(effect, Evict) for effect in outcome.effects)
        if served != GANG_SIZE or evicted != (GANG_SIZE if expected is Nominate else 0):
            raise AssertionError(f"{served} of {GANG_SIZE} members were placed, and {evicted} pods evicted")
        times.append(1000 * watch.seconds)
    return Measurement(statistics.median(times), (("the first", times[0]),))


WORKLOADS = (
    Workload(GROUP, "a gang of 64 with shared GPUs, 1,000 nodes", "ms", _fits_beside_others, target=50, at_least=False),
    Workload(GROUP, "a gang of 64 with shared GPUs preempts, 1,000 nodes", "ms", _preempts, target=50, at_least=False),
)
