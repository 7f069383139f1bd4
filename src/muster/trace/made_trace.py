"""Makes a history from a seed: gangs of whole and half nodes and of a few GPUs, of three queues, at a given load.

Each gang belongs to any of the queues with equal chance, so that the highest asks for less than it deserves, the middle one for
about that, and the lowest for three times as much: it lives on what the others leave, and what is evicted is mostly its own.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields, replace

from muster.model.queue import Queue
from muster.model.resource_amounts import GPU, Resources
from muster.trace.job_trace import JobTrace, TraceJob, node_of, signature_of, sorted_jobs
from muster.yaml_positions import InputError, InputFault, nearest

_QUEUES = (("prod", 0.5, 100), ("research", 0.375, 50), ("batch", 0.125, 10))
"""Name, share of the cluster that it deserves, and the priority of its gangs."""
_SIZES = ((1, 1, 30), (1, 2, 12), (1, 4, 14), (1, 8, 22), (2, 8, 10), (4, 8, 5))
"""Members, GPUs of each, and how frequent: many small jobs, most of the work in large ones."""
_DAY_S = 86_400.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class MadeTrace:
    """`load` is what the gangs ask for, in percent of all GPU-hours; `checkpoint` seconds between two checkpoints, 0: never."""

    gangs: int = 2000
    days: int = 14
    nodes: int = 64
    gpus: int = 8
    load: int = 110
    checkpoint: int = 0
    seed: int = 0


def parse_made_trace(text: str) -> MadeTrace:
    """`gangs=2000,days=14,load=110`."""
    known = [field.name for field in fields(MadeTrace)]
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in known:
            hint = nearest(name, known)
            raise InputError([InputFault(f"unknown {name!r}; known: {', '.join(known)}", file="--generate", suggestion=hint)])
        if not value.isdecimal() or (name not in ("seed", "checkpoint") and int(value) < 1):
            raise InputError([InputFault(f"{name} is a whole number from 1 on, not {value!r}", file="--generate")])
        found[name] = int(value)
    return MadeTrace(**found)


def make_trace(spec: MadeTrace) -> JobTrace:
    draw = random.Random(spec.seed)
    jobs = [_job(draw, spec, number) for number in range(spec.gangs)]
    # Run times are scaled so that the load is exactly what was asked for.
    capacity = spec.nodes * spec.gpus * spec.days * _DAY_S
    scale = spec.load / 100 * capacity / sum(job.run_s * job.gpus for job in jobs)
    nodes = tuple(node_of(f"node-{n:04d}", cpu_m=96_000, memory=1024 * _GIB, gpus=spec.gpus) for n in range(spec.nodes))
    total = spec.nodes * spec.gpus
    queues = tuple(
        Queue(f"queue/{name}", uid=name, version=1, deserved=Resources.of({GPU: int(total * share)})) for name, share, _ in _QUEUES
    )
    return JobTrace(sorted_jobs(replace(job, run_s=job.run_s * scale) for job in jobs), nodes, queues)


def _job(draw: random.Random, spec: MadeTrace, number: int) -> TraceJob:
    queue, _, priority = draw.choices(_QUEUES)[0]
    members, gpus, _ = draw.choices(_SIZES, [frequency for *_, frequency in _SIZES])[0]
    gpus = min(gpus, spec.gpus)
    return TraceJob(
        name=f"{queue}-{number:05d}",
        arrival_s=draw.uniform(0, spec.days * _DAY_S),
        run_s=min(draw.lognormvariate(0.0, 1.2), math.e**3),
        members=min(members, spec.nodes),
        signature=signature_of(cpu_m=8000 * gpus, memory=64 * _GIB * gpus, gpus=gpus),
        queue=queue,
        priority=priority,
        checkpoint_s=float(spec.checkpoint),
    )
