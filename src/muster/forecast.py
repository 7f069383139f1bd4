"""What would be decided about a job: the same cycle on the same facts, without carrying the effects out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muster.engine.cycle import run_session
from muster.engine.evict.eviction_plan import Plan
from muster.engine.hooks import Policy
from muster.engine.session import EvictionAttempt, Session
from muster.model.effects import Bind, Nominate, Outcome, Reserve
from muster.model.events import Event, Upsert
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.resource_amounts import GPU
from muster.plugins.pdb import budgets_covering
from muster.scheduler import new_store
from muster.state.world import World

RUNS_NOW, RUNS_AFTER_EVICTION, CANNOT_RUN = 0, 2, 3


class NoSuchJob(ValueError):
    """The job's objects make no gang that could be scheduled."""


@dataclass(frozen=True, slots=True)
class EvictedGang:
    """One gang with evicted pods. `whole_gang`: it ends; otherwise it keeps running without these."""

    gang: str
    queue: str
    pods: tuple[str, ...]
    gang_size: int
    min: int
    whole_gang: bool
    priority: int
    hours: float
    """Work since the last checkpoint and time to restart, of the pod that loses most."""
    gpu_hours: float
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """What another domain, or another action, would have meant."""

    action: str
    domain: str
    why: str
    gpu_hours: float | None = None
    evicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """`code` is the exit code: 0 it runs now, 2 it runs after evictions, 3 it cannot run."""

    gang: str
    queue: str
    priority: int
    members: int
    min: int
    code: int
    why: str
    why_not_now: str
    """Why it does not run without evictions, node class by node class, where pods are evicted for it."""
    domain: str
    placements: tuple[tuple[str, str], ...]
    evicted_gangs: tuple[EvictedGang, ...]
    alternatives: tuple[Alternative, ...]

    @property
    def gpu_hours(self) -> float:
        return sum(evicted.gpu_hours for evicted in self.evicted_gangs)


def forecast(policy: Policy, facts: Iterable[Event], job: Iterable[Event], *, now: float) -> tuple[Forecast, ...]:
    """What one cycle would decide about the gangs of a job, given all that is known of a cluster."""
    store = new_store(policy)
    job = list(job)
    for event in (*facts, *job):
        store.fold(event)
    world = store.world(now)
    uids = {event.obj.uid for event in job if isinstance(event, Upsert) and isinstance(event.obj, Pod)}
    keys = dict.fromkeys(world.facts.members[uid].gang for uid in sorted(uids) if uid in world.facts.members)
    if not keys:
        raise NoSuchJob("these objects make no gang: there is no pod among them that Muster schedules")
    gangs = [world.facts.gangs[key] for key in keys]
    session = Session(world, policy)
    session.tries_all_domains = True
    running = {gang.key: gang for gang in world.facts.gangs.values()}
    outcome = run_session(session)
    return tuple(_forecast(session, outcome, gang, running) for gang in gangs)


def _forecast(s: Session, outcome: Outcome, gang: Gang, gangs: dict[str, Gang]) -> Forecast:
    own = {pod.uid for pod in gang.pods()}
    placements = [e for e in outcome.effects if isinstance(e, Bind | Nominate | Reserve) and e.uid in own]
    bound = any(isinstance(effect, Bind) for effect in placements)
    chosen = next((t for t in s.eviction_attempts if t.gang == gang.key and isinstance(t.found, Plan)), None)
    nominated = any(isinstance(effect, Nominate) for effect in placements)
    verdict = s.world.memory.attempts[gang.key].verdict
    evicted_gangs = (
        _evicted_gangs(s.world, chosen.found, gangs, s.now) if chosen is not None and isinstance(chosen.found, Plan) else ()
    )
    code = RUNS_AFTER_EVICTION if nominated else RUNS_NOW if bound else CANNOT_RUN
    return Forecast(
        gang=gang.full_name,
        queue=gang.queue,
        priority=gang.priority,
        members=gang.size,
        min=gang.min,
        code=code,
        why=verdict.why if verdict is not None else "",
        why_not_now=s.why_without_eviction.get(gang.key, "") if nominated else "",
        domain=chosen.domain if chosen is not None else "",
        placements=tuple((effect.pod, effect.node) for effect in placements),
        evicted_gangs=evicted_gangs,
        alternatives=tuple(
            _alternative(s.world, tried, gangs, s.now)
            for tried in s.eviction_attempts
            if tried.gang == gang.key and tried is not chosen
        ),
    )


def _evicted_gangs(world: World, plan: Plan, gangs: dict[str, Gang], now: float) -> tuple[EvictedGang, ...]:
    by_gang: dict[str, list[Pod]] = {}
    for pod in plan.victims:
        by_gang.setdefault(world.facts.members[pod.uid].gang, []).append(pod)
    return tuple(_evicted_gang(world, gangs[key], pods, now) for key, pods in by_gang.items())


def _evicted_gang(world: World, gang: Gang, pods: list[Pod], now: float) -> EvictedGang:
    left = gang.size - len(pods) + sum(role.succeeded for role in gang.roles)
    hours = [_lost_hours(pod, now) for pod in pods]
    return EvictedGang(
        gang=gang.full_name,
        queue=gang.queue,
        pods=tuple(pod.full_name for pod in pods),
        gang_size=gang.size,
        min=gang.min,
        whole_gang=left < gang.min,
        priority=gang.priority,
        hours=max(hours),
        gpu_hours=sum(each * pod.signature.request[GPU] for each, pod in zip(hours, pods, strict=True)),
        budgets=tuple(dict.fromkeys(key for pod in pods for key in budgets_covering(world, pod))),
    )


def _lost_hours(pod: Pod, now: float) -> float:
    saved = pod.checkpoint if pod.checkpoint is not None else pod.started
    return (max(0.0, now - (saved if saved is not None else now)) + pod.restart_s) / 3600


def _alternative(world: World, tried: EvictionAttempt, gangs: dict[str, Gang], now: float) -> Alternative:
    if not isinstance(tried.found, Plan):
        return Alternative(tried.action, tried.domain, tried.found.why)
    evicted_gangs = _evicted_gangs(world, tried.found, gangs, now)
    evicts = tuple(f"{evicted.gang} ({len(evicted.pods)} pods)" for evicted in evicted_gangs)
    return Alternative(tried.action, tried.domain, "possible too", sum(evicted.gpu_hours for evicted in evicted_gangs), evicts)
