"""A decision log as a history: the cluster's own jobs, to be played again with another policy.

A job ran from its start to its end as the log saw them; of one that was evicted the last run counts, and of one that still ran at
the end of the log what it declares, or else what it had run by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.decision_log import BadDecisionLog, read_decision_log
from muster.model.effects import Outcome
from muster.model.events import Delete, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.model.topology_spec import DomainSpec
from muster.trace.job_trace import JobTrace, TraceJob, sorted_jobs
from muster.yaml_positions import InputError, InputFault


@dataclass(slots=True)
class _LoggedJob:
    first: Pod
    names: set[str] = field(default_factory=set)
    run_s: float = 0.0


class ObservedCluster:
    """What was seen of a cluster so far: its objects, and the jobs of its pods."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, DomainSpec] = {}
        self.groups: dict[str, PodGroup] = {}
        self.jobs: dict[str, _LoggedJob] = {}
        self.running: dict[str, Pod] = {}
        self._ended: list[Pod] = []

    def upsert(self, thing: object) -> None:
        match thing:
            case Pod() if thing.ours:
                self._see(thing)
            case Node():
                self.nodes[thing.name] = thing
            case Queue():
                self.queues[thing.key] = thing
            case DomainSpec():
                self.domains[thing.name] = thing
            case PodGroup():
                self.groups[thing.key] = thing

    def _see(self, pod: Pod) -> None:
        job = self.jobs.setdefault(pod.gang_key if pod.membership is not None else f"pod:{pod.full_name}", _LoggedJob(pod))
        job.names.add(pod.full_name)
        if pod.finished:
            self.end(pod.uid)
        elif pod.started is not None:
            self.running[pod.uid] = pod

    def end(self, uid: str) -> None:
        pod = self.running.pop(uid, None)
        if pod is not None:
            self._ended.append(pod)

    def tick(self, now: float) -> None:
        """What ended since the cycle before ended by now."""
        for pod in self._ended:
            self._ran(pod, now)
        self._ended = []

    def finish(self, now: float) -> None:
        self.tick(now)
        for pod in self.running.values():
            self._ran(pod, now if pod.run_s is None else (pod.started or now) + pod.run_s)

    def _ran(self, pod: Pod, until: float) -> None:
        job = self.jobs[pod.gang_key if pod.membership is not None else f"pod:{pod.full_name}"]
        job.run_s = until - (pod.started if pod.started is not None else until)

    def trace(self) -> JobTrace:
        jobs = [self._trace_job(key, job) for key, job in self.jobs.items()]
        ran = sorted_jobs(job for job in jobs if job.run_s > 0)
        cluster = tuple(self.nodes.values()), tuple(self.queues.values()), tuple(self.domains.values())
        return JobTrace(ran, *cluster, left_out=len(jobs) - len(ran))

    def _trace_job(self, key: str, job: _LoggedJob) -> TraceJob:
        pod, group = job.first, self.groups.get(key)
        members = len(job.names)
        if group is not None:
            members = min(members, group.min_member) or members
        name = group.full_name if group is not None else key.partition(":")[2]
        return TraceJob(
            name=name.replace("/", "."),
            arrival_s=pod.created,
            run_s=job.run_s,
            members=members,
            signature=pod.signature,
            queue=((group.queue if group is not None else "") or pod.queue).removeprefix("queue/"),
            priority=pod.priority,
            topology=group.topology if group is not None else None,
            declared_s=pod.run_s,
        )


def read_log(lines: Iterable[bytes], *, file: str) -> JobTrace:
    seen, now = ObservedCluster(), 0.0
    try:
        for _, entry, _ in read_decision_log(lines):
            if isinstance(entry, Outcome):
                now = entry.now
                seen.tick(now)
            elif isinstance(entry, Upsert):
                seen.upsert(entry.obj)
            elif isinstance(entry, Delete) and entry.kind == "Pod":
                seen.end(entry.key)
    except BadDecisionLog as error:
        raise InputError([InputFault(str(error), file=file)]) from None
    seen.finish(now)
    return seen.trace()
