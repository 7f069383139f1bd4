"""What a history is: jobs with their arrivals and run times, and the cluster on which they are played."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from muster.model.device import MIB, WHOLE_CORES, Device, DeviceApi, DeviceRequest
from muster.model.node import Node
from muster.model.pod import PodSignature
from muster.model.pod_constraints import NodeAffinity, NodeTerm, Operator, Requirement
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.model.topology_spec import DomainSpec, TopologyConstraint

GPU_MODEL_LABEL = "nvidia.com/gpu.product"
SHARED_GPU = "koordinator.sh/gpu-core"
"""Hundredths of GPUs: what pods that share GPUs are charged for in their queue."""
_PODS_OF_A_NODE = 1000
# Enough to write each hundredth of it as whole mebibytes.
_DEVICE_MEMORY = 100 * MIB


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of equal members that run together: it makes progress while all of them run, and ends after `run_s` of progress.

    `arrival_s` counts from the beginning of the history. What runs is saved every `checkpoint_s`; 0: never.
    """

    name: str
    arrival_s: float
    run_s: float
    members: int = 1
    signature: PodSignature = field(default_factory=PodSignature)
    queue: str = ""
    priority: int = 0
    checkpoint_s: float = 0.0
    topology: TopologyConstraint | None = None
    declared_s: float | None = None
    """For how long its pods declare to run at most."""

    @property
    def gpus(self) -> float:
        """Of all members together."""
        return self.members * gpus_of(self.signature)


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A history: jobs by their arrival, and the nodes and queues that there are all the time."""

    jobs: tuple[TraceJob, ...]
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    domains: tuple[DomainSpec, ...] = ()
    left_out: int = 0
    """Jobs that never ran."""

    @property
    def gpus(self) -> int:
        return sum(gpus_on(node) for node in self.nodes)


def gpus_of(signature: PodSignature) -> float:
    """Of one pod, whichever way it requests them."""
    devices = sum(request.count * request.cores for request in signature.devices) / WHOLE_CORES
    return devices or float(signature.request[GPU])


def gpus_on(node: Node) -> int:
    return len(node.devices) or node.allocatable[GPU]


@lru_cache(maxsize=4096)
def signature_of(*, cpu_m: int, memory: int, gpus: int, share: int = 0, models: tuple[str, ...] = ()) -> PodSignature:
    """A pod that asks for whole GPUs, or for a `share` of one in hundredths."""
    amounts = {CPU: cpu_m, MEMORY: memory, PODS: 1, GPU: 0 if share else gpus}
    devices: tuple[DeviceRequest, ...] = ()
    if share:
        amounts[SHARED_GPU] = share
        devices = (DeviceRequest(DeviceApi.KOORDINATOR, ratio=share, cores=share),)
    wanted = Requirement(GPU_MODEL_LABEL, Operator.IN, models)
    affinity = NodeAffinity(required=(NodeTerm(expressions=(wanted,)),)) if models else NodeAffinity()
    request = Resources.of({name: amount for name, amount in amounts.items() if amount})
    return PodSignature(request=request, node_affinity=affinity, devices=devices)


def node_of(name: str, *, cpu_m: int, memory: int, gpus: int, model: str = "") -> Node:
    amounts = {CPU: cpu_m, MEMORY: memory, PODS: _PODS_OF_A_NODE, GPU: gpus}
    labels = {"kubernetes.io/hostname": name, **({GPU_MODEL_LABEL: model} if model else {})}
    return Node(name, uid=name, version=1, allocatable=Resources.of({k: v for k, v in amounts.items() if v}), labels=labels)


def with_shared_gpus(trace: JobTrace) -> JobTrace:
    """The same, where GPUs are shared: each node says which devices it has, and whole ones are requested as devices, too."""
    if not any(request.api is not DeviceApi.WHOLE for job in trace.jobs for request in job.signature.devices):
        return trace
    made: dict[PodSignature, PodSignature] = {}
    jobs = tuple(replace(job, signature=made.setdefault(job.signature, _of_devices(job.signature))) for job in trace.jobs)
    return replace(trace, jobs=jobs, nodes=tuple(map(_listing_devices, trace.nodes)))


def _of_devices(signature: PodSignature) -> PodSignature:
    count = signature.request[GPU]
    if not count or any(request.api is not DeviceApi.WHOLE for request in signature.devices):
        return signature
    amounts = {name: amount for name, amount in signature.request.items if name != GPU} | {SHARED_GPU: count * WHOLE_CORES}
    devices = (DeviceRequest(DeviceApi.KOORDINATOR, count=count, ratio=100, cores=WHOLE_CORES),)
    return replace(signature, request=Resources.of(amounts), devices=devices)


def _listing_devices(node: Node) -> Node:
    count = node.allocatable[GPU]
    if node.devices or not count:
        return node
    amounts = {name: amount for name, amount in node.allocatable.items if name != GPU} | {SHARED_GPU: count * WHOLE_CORES}
    devices = tuple(Device(index, memory=_DEVICE_MEMORY, api=DeviceApi.KOORDINATOR) for index in range(count))
    return replace(node, allocatable=Resources.of(amounts), devices=devices)


# -- histories made from one ---------------------------------------------------------------------------------------------------


def shuffled(trace: JobTrace, *, seed: int) -> JobTrace:
    """Another history of the same load: arrivals stay, which job arrives when is drawn anew. Seed 0 is the history itself."""
    if not seed:
        return trace
    arrivals = [job.arrival_s for job in trace.jobs]
    jobs = list(trace.jobs)
    random.Random(seed).shuffle(jobs)
    return replace(trace, jobs=tuple(replace(job, arrival_s=at) for job, at in zip(jobs, arrivals, strict=True)))


def filling(trace: JobTrace, *, percent: float, seed: int) -> tuple[TraceJob, ...]:
    """Jobs in a random order, some again, until they ask for this part of all GPUs together, and none of them ends.

    Each job comes once before any comes again."""
    chosen: list[TraceJob] = []
    asked, wanted, draw = 0.0, trace.gpus * percent / 100, random.Random(seed)
    pool: list[TraceJob] = []
    while asked < wanted:
        if not pool:
            pool = list(trace.jobs)
            draw.shuffle(pool)
        job = pool.pop()
        asked += job.gpus
        chosen.append(replace(job, name=f"{job.name}-{len(chosen)}", arrival_s=float(len(chosen)), run_s=float("inf")))
    return tuple(chosen)


def sorted_jobs(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """By arrival, the first at 0; equal names get a number with which no other job is named."""
    ordered = sorted(jobs, key=lambda job: (job.arrival_s, job.name))
    begin = ordered[0].arrival_s if ordered else 0.0
    taken, seen = {job.name for job in ordered}, dict[str, int]()
    found = []
    for job in ordered:
        name, again = job.name, seen.get(job.name, -1) + 1
        while again and (name := f"{job.name}-{again}") in taken:
            again += 1
        seen[job.name] = again
        taken.add(name)
        found.append(replace(job, name=name, arrival_s=job.arrival_s - begin))
    return tuple(found)
