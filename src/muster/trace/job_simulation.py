"""Plays a history with a policy, from event to event: nothing is looked at while nothing can happen.

The scheduler is the real one. The cluster around it is only what a history tells of: pods start when they are bound, run together,
are saved now and then, end, and are created again after an eviction. Nodes do not fail, and no write is refused.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Effect, Evict, Outcome
from muster.model.events import ClusterObject, Delete, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.pod import ApiFlavour, Membership, Pod, PodStatusPhase
from muster.scheduler import DecisionLog, Scheduler
from muster.state.world import World
from muster.trace.job_trace import JobTrace, TraceJob, gpus_of

NAMESPACE = "trace"
START = 1_000_000.0
"""When a history begins, in the scheduler's time."""
TERMINATION_S = 30.0
# So many times what it takes at best, and something is wrong: it ends.
_PATIENCE = 10.0


class _Happens(IntEnum):
    """In this order where times are equal: what frees capacity first."""

    END = 0
    GONE = 1
    ARRIVAL = 2
    CHECKPOINT = 3
    WAKE = 4


@dataclass(frozen=True, slots=True)
class LostWorkNote:
    """So many seconds of all its members were lost then; `cause` is the action that evicted it."""

    at_s: float
    cause: str
    seconds: float
    why: str = ""


@dataclass(slots=True)
class JobRun:
    """How a job fares. Times are seconds since the beginning of the history."""

    job: TraceJob
    first_start_s: float | None = None
    end_s: float | None = None
    waited_s: float = 0.0
    """In all, after evictions too."""
    evictions: int = 0
    lost: list[LostWorkNote] = field(default_factory=list)
    saved_s: float = 0.0
    started_s: float | None = None
    """Since when all members run."""
    waiting_since_s: float = 0.0
    round: int = 0
    """Grows when it starts or stops: what was due before is not due any more."""
    pods: dict[str, Pod] = field(default_factory=dict)
    bound: int = 0
    why: str = ""
    """What was said of it when it was refused last."""
    longest_s: float = 0.0
    why_longest: str = ""
    """Its longest wait, and what was said of it at the end of that."""


@dataclass(slots=True)
class GpuUsage:
    """What was so from `at_s` for `seconds`: GPUs in use, and by queue; GPUs that a waiting job could have had by their number."""

    at_s: float
    seconds: float
    gpus: float
    by_queue: dict[str, float]
    stranded: float
    waiting: int


@dataclass(frozen=True, slots=True)
class SimulatedTrace:
    trace: JobTrace
    runs: tuple[JobRun, ...]
    samples: tuple[GpuUsage, ...]
    cycles: int


class JobSimulation:
    def __init__(self, trace: JobTrace, policy: Policy, *, log: DecisionLog | None = None) -> None:
        self.now_s = 0.0
        self.samples: list[GpuUsage] = []
        self.cycles = 0
        self._trace = trace
        self._scheduler = Scheduler(policy, log=log)
        self._runs = {job.name: JobRun(job) for job in trace.jobs}
        self._due: list[tuple[float, _Happens, int, str, int]] = []
        self._number = 0
        self._woken: set[float] = set()
        self._waiting: dict[str, JobRun] = {}
        self._used: dict[str, float] = {}
        self._events: list[Event] = [Upsert(thing) for thing in _cluster_objects(trace)]
        for job in trace.jobs:
            self._at(job.arrival_s, _Happens.ARRIVAL, job.name)

    def run(self, *, on_cycle: Callable[[World, Outcome], None] | None = None) -> SimulatedTrace:
        """Until all jobs have ended, or nothing happens any more. `on_cycle` is called after each cycle."""
        jobs = self._trace.jobs
        last = jobs[-1].arrival_s
        work = sum(job.run_s * job.gpus for job in jobs) / max(self._trace.gpus, 1)
        limit = last + _PATIENCE * (work + max(job.run_s for job in jobs))
        while self._due and self._due[0][0] <= limit:
            self.now_s = self._due[0][0]
            if self._take_due():
                outcome = self._cycle()
                if on_cycle is not None:
                    on_cycle(self._scheduler.world, outcome)
        return SimulatedTrace(self._trace, tuple(self._runs.values()), tuple(self.samples), self.cycles)

    def _at(self, when_s: float, what: _Happens, name: str = "", number: int = 0) -> None:
        self._number += 1
        heapq.heappush(self._due, (when_s, what, self._number, name, number))

    def _take_due(self) -> bool:
        """Everything that happens now. False where the scheduler need not look at it at once."""
        decides = False
        while self._due and self._due[0][0] == self.now_s:
            _, what, _, name, number = heapq.heappop(self._due)
            if what is _Happens.WAKE:
                self._woken.discard(self.now_s)
                decides = True
                continue
            run = self._runs[name]
            if what in (_Happens.END, _Happens.CHECKPOINT) and run.round != number:
                continue
            _HAPPENS[what](self, run)
            decides |= what is not _Happens.CHECKPOINT
        return decides

    # -- what happens to a job ---------------------------------------------------------------------------------------------------

    def _arrive(self, run: JobRun) -> None:
        job = run.job
        if job.members > 1 or job.topology is not None:
            self._events.append(Upsert(_group(job)))
        run.waiting_since_s = self.now_s
        self._waiting[job.name] = run
        for _ in range(job.members):
            self._create_pod(run)

    def _create_pod(self, run: JobRun) -> None:
        self._number += 1
        pod = _pod(run.job, uid=f"{run.job.name}/{self._number}", number=len(run.pods), created=START + run.job.arrival_s)
        taken = {each.name for each in run.pods.values()}
        if pod.name in taken:
            free = next(n for n in range(run.job.members) if f"{run.job.name}-{n}" not in taken)
            pod = replace(pod, name=f"{run.job.name}-{free}")
        run.pods[pod.uid] = pod
        self._events.append(Upsert(pod))

    def _end(self, run: JobRun) -> None:
        run.end_s, run.started_s = self.now_s, None
        run.round += 1
        for uid in run.pods:
            self._events.append(Delete("Pod", uid))
        if run.job.members > 1 or run.job.topology is not None:
            self._events.append(Delete("PodGroup", _group(run.job).key))
        self._use(run.job, -run.job.gpus)
        run.pods = {}

    def _terminated(self, run: JobRun) -> None:
        """The pods that were evicted are gone, and created again."""
        gone = [pod.uid for pod in run.pods.values() if pod.deleted_at is not None and pod.deleted_at <= START + self.now_s]
        for uid in gone:
            del run.pods[uid]
            self._events.append(Delete("Pod", uid))
            self._use(run.job, -gpus_of(run.job.signature))
            self._create_pod(run)

    def _checkpoint(self, run: JobRun) -> None:
        self._update(run, checkpoint=START + self.now_s)
        self._at(self.now_s + run.job.checkpoint_s, _Happens.CHECKPOINT, run.job.name, run.round)

    def _update(self, run: JobRun, **changes: float) -> None:
        for uid, pod in run.pods.items():
            run.pods[uid] = replace(pod, version=pod.version + 1, **changes)  # type: ignore[arg-type]
            self._events.append(Upsert(run.pods[uid]))

    # -- what the scheduler does ---------------------------------------------------------------------------------------------------

    def _cycle(self) -> Outcome:
        self._scheduler.feed(self._events)
        self._events = []
        outcome = self._scheduler.tick(START + self.now_s)
        self.cycles += 1
        self._carry_out(outcome.effects)
        for name, verdict in outcome.verdicts:
            if not verdict.ok and (run := self._run_of(name)) is not None:
                run.why = verdict.why
            if verdict.at is not None and verdict.at > START + self.now_s:
                self._wake(verdict.at - START)
        self._sample()
        return outcome

    def _run_of(self, name: str) -> JobRun | None:
        """Of a gang's full name: that of the job, or of the one pod that it has."""
        found = name.removeprefix(f"{NAMESPACE}/")
        return self._runs.get(found) or self._runs.get(found.rpartition("-")[0])

    def _wake(self, when_s: float) -> None:
        if math.isfinite(when_s) and when_s not in self._woken:
            self._woken.add(when_s)
            self._at(when_s, _Happens.WAKE)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        evicted: dict[str, list[Evict]] = {}
        for effect in effects:
            name = effect.uid.rpartition("/")[0] if isinstance(effect, Bind | Evict) else ""
            if isinstance(effect, Bind):
                self._bind(self._runs[name], effect)
            elif isinstance(effect, Evict):
                evicted.setdefault(name, []).append(effect)
        for name, evictions in evicted.items():
            self._evict(self._runs[name], evictions)

    def _bind(self, run: JobRun, effect: Bind) -> None:
        pod = run.pods[effect.uid]
        now = START + self.now_s
        bound = replace(pod, version=pod.version + 1, node=effect.node, status_phase=PodStatusPhase.RUNNING, started=now)
        run.pods[effect.uid] = bound
        self._events.append(Upsert(bound))
        self._use(run.job, gpus_of(run.job.signature))
        run.bound += 1
        if run.bound == run.job.members:
            self._start(run)

    def _start(self, run: JobRun) -> None:
        run.round += 1
        run.started_s = self.now_s
        waited = self.now_s - run.waiting_since_s
        run.waited_s += waited
        if waited > run.longest_s:
            run.longest_s, run.why_longest = waited, run.why
        if run.first_start_s is None:
            run.first_start_s = self.now_s
        del self._waiting[run.job.name]
        self._at(self.now_s + run.job.run_s - run.saved_s, _Happens.END, run.job.name, run.round)
        if run.job.checkpoint_s:
            self._at(self.now_s + run.job.checkpoint_s, _Happens.CHECKPOINT, run.job.name, run.round)

    def _evict(self, run: JobRun, evictions: list[Evict]) -> None:
        run.evictions += 1
        if run.started_s is not None:
            ran = self.now_s - run.started_s
            saved = ran // run.job.checkpoint_s * run.job.checkpoint_s if run.job.checkpoint_s else 0.0
            run.saved_s += saved
            run.lost.append(LostWorkNote(self.now_s, evictions[0].cause, ran - saved, evictions[0].why))
            run.started_s, run.waiting_since_s = None, self.now_s
            run.round += 1
            self._waiting[run.job.name] = run
        gone_at = self.now_s + TERMINATION_S
        for effect in evictions:
            pod = run.pods[effect.uid]
            run.bound -= 1
            run.pods[effect.uid] = replace(pod, version=pod.version + 1, deleted_at=START + gone_at)
            self._events.append(Upsert(run.pods[effect.uid]))
        self._at(gone_at, _Happens.GONE, run.job.name)

    # -- what is in use --------------------------------------------------------------------------------------------------------

    def _use(self, job: TraceJob, gpus: float) -> None:
        self._used[job.queue] = self._used.get(job.queue, 0.0) + gpus

    def _sample(self) -> None:
        if self.samples:
            self.samples[-1].seconds = self.now_s - self.samples[-1].at_s
        used = sum(self._used.values())
        idle = self._trace.gpus - used
        smallest = min((run.job.gpus for run in self._waiting.values()), default=math.inf)
        stranded = idle if 0 < smallest <= idle else 0.0
        self.samples.append(GpuUsage(self.now_s, 0.0, used, dict(self._used), stranded, len(self._waiting)))


_HAPPENS: dict[_Happens, Callable[[JobSimulation, JobRun], None]] = {
    _Happens.END: JobSimulation._end,
    _Happens.GONE: JobSimulation._terminated,
    _Happens.ARRIVAL: JobSimulation._arrive,
    _Happens.CHECKPOINT: JobSimulation._checkpoint,
}


def _group(job: TraceJob) -> PodGroup:
    created = START + job.arrival_s
    return PodGroup(
        ApiFlavour.VOLCANO,
        NAMESPACE,
        job.name,
        uid=f"group/{job.name}",
        created=created,
        version=1,
        min_member=job.members,
        queue=_queue_key(job),
        topology=job.topology,
    )


def _pod(job: TraceJob, *, uid: str, number: int, created: float) -> Pod:
    grouped = job.members > 1 or job.topology is not None
    return Pod(
        uid=uid,
        namespace=NAMESPACE,
        name=f"{job.name}-{number}",
        signature=job.signature,
        created=created,
        version=1,
        priority=job.priority,
        membership=Membership(ApiFlavour.VOLCANO, job.name) if grouped else None,
        queue=_queue_key(job),
        run_s=job.declared_s,
    )


def _queue_key(job: TraceJob) -> str:
    return f"queue/{job.queue}" if job.queue and not job.queue.startswith("quota/") else job.queue


# -- how full a cluster can be ---------------------------------------------------------------------------------------------------


def fill(trace: JobTrace, jobs: Iterable[TraceJob], policy: Policy) -> float:
    """The percent of all GPUs that jobs get which come one after the other onto an empty cluster, and none of which ends."""
    scheduler = Scheduler(policy)
    scheduler.feed(Upsert(thing) for thing in _cluster_objects(trace))
    by_uid: dict[str, TraceJob] = {}
    for job in jobs:
        if job.members > 1 or job.topology is not None:
            scheduler.feed([Upsert(_group(job))])
        pods = [_pod(job, uid=f"{job.name}/{n}", number=n, created=START + job.arrival_s) for n in range(job.members)]
        by_uid.update((pod.uid, job) for pod in pods)
        scheduler.feed(map(Upsert, pods))
    outcome = scheduler.tick(START + len(by_uid))
    used = sum(gpus_of(by_uid[effect.uid].signature) for effect in outcome.effects if isinstance(effect, Bind))
    return 100 * used / trace.gpus


def _cluster_objects(trace: JobTrace) -> list[ClusterObject]:
    return [*trace.nodes, *trace.queues, *trace.domains]
