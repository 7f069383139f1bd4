"""What would be decided about a job: the same cycle on the same facts, without carrying the effects out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from muster.engine.cycle import run_session
from muster.engine.evict.eviction_plan import Plan
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import Policy
from muster.engine.session import EvictionAttempt, Session
from muster.forecast.remedies import Remedy, remedies_of
from muster.forecast.start_time import MayGoOn, RunTimes, Start, queue_order, starts_of, without_evictions
from muster.model.effects import Bind, Nominate, Outcome, Reserve
from muster.model.events import ClusterObject, Upsert
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.resource_amounts import GPU
from muster.plugins.pdb import budgets_covering
from muster.scheduler import new_store
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import TermHolders
from muster.state.store import Store
from muster.state.world import World

TimeLimit = Callable[[], MayGoOn]
"""Begins the time for one question."""

UNSEARCHED = "gangs not searched for"
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
    moved_to: tuple[str, ...] = ()
    """The nodes that are kept for these pods, where they are only moved."""


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
    runs_already: bool
    """It has nodes, and gets no more."""
    why_not_now: str
    """Why it does not run without evictions, node class by node class, where pods are evicted for it."""
    domain: str
    placements: tuple[tuple[str, str], ...]
    evicted_gangs: tuple[EvictedGang, ...]
    alternatives: tuple[Alternative, ...]
    position: int = 0
    """Its place among those that wait in its queue, from 1; 0 where it does not wait."""
    waiting_in_queue: int = 0
    start: Start | None = None
    """When it starts, where it does not now; where pods are evicted for it, when it would without."""

    remedies: tuple[Remedy, ...] = ()
    """Changes with which it runs, where it cannot."""
    remedies_cut_short: bool = False
    """The time was over before all were tried."""
    unsearched: int = 0
    """For so many other gangs that wait nobody looked whom they would have evicted: the time was over."""

    @property
    def gpu_hours(self) -> float:
        return sum(evicted.gpu_hours for evicted in self.evicted_gangs)


@dataclass(frozen=True, slots=True)
class DryRun:
    """One cycle that was decided and not carried out. `gangs` are those before it."""

    session: Session
    outcome: Outcome
    gangs: dict[str, Gang]
    store: Store

    @property
    def world(self) -> World:
        return self.session.world

    def forecast(self, gang: Gang) -> Forecast:
        found = _forecast(self.session, self.outcome, gang, self.gangs)
        return replace(found, unsearched=self.session.stats.get(UNSEARCHED, 0))


def dry_run(
    policy: Policy,
    objects: Iterable[ClusterObject],
    *,
    now: float,
    look: Callable[[Session], None] | None = None,
    store: Store | None = None,
) -> DryRun:
    """One cycle on all objects of a cluster. `look` is called once before anything is decided in it, and may say of which gangs all
    domains are to be shown. `store`: has all objects already, and nothing was decided in it."""
    store = store or filled_store(policy, objects)
    world = store.world(now)
    session = Session(world, policy)
    gangs = dict(world.facts.gangs)

    def on_step(name: str) -> None:
        if look is not None and name == policy.actions[0]:
            look(session)

    return DryRun(session, run_session(session, on_step=on_step), gangs, store)


def bound_searches(s: Session, asked: Collection[str], limit: TimeLimit) -> None:
    """Victims are searched for gangs that nobody asks about only as long as the time lasts, from the first of these on: thousands
    of gangs that could have others evicted take minutes. It is counted for how many they were not."""
    begun: list[MayGoOn] = []
    left_out: set[str] = set()

    def may_search(gang: str) -> bool:
        if gang in asked:
            return True
        if not begun:
            begun.append(limit())
        if begun[0]():
            return True
        left_out.add(gang)
        s.stats[UNSEARCHED] = len(left_out)
        return False

    s.may_search = may_search


def observed(policy: Policy, objects: Iterable[ClusterObject], *, now: float) -> World:
    """The world as it is, with what Plans say of nominations and reservations; nothing is decided."""
    world = world_of(policy, objects, now=now)
    run_session(Session(world, Policy(policy.plugins, (), settings=policy.settings, source=policy.source)))
    return world


def world_of(policy: Policy, objects: Iterable[ClusterObject], *, now: float) -> World:
    return filled_store(policy, objects).world(now)


def filled_store(policy: Policy, objects: Iterable[ClusterObject]) -> Store:
    store = new_store(policy)
    for obj in objects:
        store.fold(Upsert(obj))
    return store


def warmed_store(policy: Policy, objects: Iterable[ClusterObject], *, now: float) -> Store:
    """For a dry run of later, which need not derive again what does not depend on it. Nothing is decided."""
    store = filled_store(policy, objects)
    world = store.world(now)
    victim_table_of(world)
    counter_of(world, TermHolders)
    return store


def forecast(
    policy: Policy,
    objects: Sequence[ClusterObject],
    asked: Collection[str],
    *,
    now: float,
    run_times: RunTimes | None = None,
    limit: TimeLimit = lambda: lambda: True,
    store: Store | None = None,
) -> tuple[Forecast, ...]:
    """What one cycle would decide about the gangs of these pods (UIDs), given all objects of a cluster, the pods' own included.
    With `run_times` also when those start that do not now, and what would make them."""
    positions: dict[str, tuple[int, int]] = {}
    keys: dict[str, None] = {}

    def look(s: Session) -> None:
        members = s.world.facts.members
        keys.update(dict.fromkeys(members[uid].gang for uid in sorted(asked) if uid in members))
        s.shows_all_domains = frozenset(keys)
        bound_searches(s, keys, limit)
        positions.update(_positions(s, asked))

    run = dry_run(policy, objects, now=now, look=look, store=store)
    if not keys:
        raise NoSuchJob("these objects make no gang: there is no pod among them that Muster schedules")
    found = []
    for key in keys:
        position, waiting = positions.get(key, (0, 0))
        found.append(replace(run.forecast(run.gangs[key]), position=position, waiting_in_queue=waiting))
    if run_times is None:
        return tuple(found)
    gangs = [(run.gangs[key], each) for key, each in zip(keys, found, strict=True)]
    return tuple(with_outlook(run, objects, gangs, run_times, limit=limit))


def with_outlook(
    run: DryRun, objects: Sequence[ClusterObject], gangs: Sequence[tuple[Gang, Forecast]], run_times: RunTimes, *, limit: TimeLimit
) -> list[Forecast]:
    """The same, with when those start that do not now (where pods are evicted for one, when it would without), and with what would
    make the first that cannot run do so. Each of these questions has a time limit of its own. The dry run is at its end then: its
    world is that of a later time."""
    policy, now = run.session.policy, run.outcome.now
    starts: dict[str, Start] = {}
    for evicts in (False, True):
        waiting = [gang for gang, each in gangs if each.code != RUNS_NOW and bool(each.evicted_gangs) == evicts]
        if waiting:
            under = without_evictions(policy) if evicts else policy
            begun = None if evicts else (run.store, run.outcome)
            time = limit()
            starts |= starts_of(under, objects, waiting, run_times, now=now, may_go_on=time, within=time, begun=begun)
    found = [replace(each, start=starts.get(gang.key)) for gang, each in gangs]
    barred = [at for at, each in enumerate(found) if each.code == CANNOT_RUN]
    for at in barred[:1]:
        remedies, cut_short = remedies_of(policy, objects, gangs[at][0], now=now, limit=limit)
        found[at] = replace(found[at], remedies=remedies, remedies_cut_short=cut_short)
    return found


def starts_with_evictions(
    run: DryRun, objects: Sequence[ClusterObject], gangs: Iterable[Gang], run_times: RunTimes, *, may_go_on: MayGoOn
) -> dict[str, Start]:
    """When these start, by key, if others are evicted for them as the policy has it. The dry run is at its end then."""
    begun = (run.store, run.outcome)
    return starts_of(run.session.policy, objects, gangs, run_times, now=run.outcome.now, may_go_on=may_go_on, begun=begun)


def _positions(s: Session, asked: Collection[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    members = s.world.facts.members
    for queue in dict.fromkeys(s.world.facts.gangs[members[uid].gang].queue for uid in sorted(asked) if uid in members):
        order = queue_order(s, queue)
        yield from ((gang.key, (number, len(order))) for number, gang in enumerate(order, 1))


def joined(forecasts: Sequence[Forecast], *, name: str) -> Forecast:
    """Of pods that start by themselves, such as a Deployment's, as one: it runs if any does, and the reason is of the worst."""
    worst = max(forecasts, key=lambda each: each.code)
    started = max((each.code for each in forecasts if each.placements), default=CANNOT_RUN)
    return replace(
        worst,
        gang=name,
        members=sum(each.members for each in forecasts),
        min=1,
        code=started,
        placements=tuple(placement for each in forecasts for placement in each.placements),
        evicted_gangs=tuple(evicted for each in forecasts for evicted in each.evicted_gangs),
        alternatives=worst.alternatives if len(forecasts) == 1 else (),
    )


def _forecast(s: Session, outcome: Outcome, gang: Gang, gangs: dict[str, Gang]) -> Forecast:
    placements = _placements(outcome, gang)
    runs = tuple((pod.full_name, pod.node) for pod in gang.pods() if pod.node)
    code = _code(placements) if placements or not runs else RUNS_NOW
    attempts = [attempt for attempt in s.eviction_attempts if attempt.gang == gang.key]
    chosen = _best_attempt(attempts, code)
    verdict = s.world.memory.attempts[gang.key].verdict
    return Forecast(
        gang=gang.full_name,
        queue=gang.queue,
        priority=gang.priority,
        members=gang.size,
        min=gang.min,
        code=code,
        why=verdict.why if verdict is not None else "",
        why_not_now=s.why_without_eviction.get(gang.key, "") if code == RUNS_AFTER_EVICTION else "",
        domain=chosen.domain if chosen is not None else "",
        runs_already=bool(runs) and not placements,
        placements=(*runs, *((effect.pod, effect.node) for effect in placements)),
        evicted_gangs=() if chosen is None else _evicted_gangs(s.world, chosen, gangs, s.now),
        alternatives=tuple(_alternative(s.world, tried, gangs, s.now) for tried in attempts if tried is not chosen),
    )


def _best_attempt(attempts: list[EvictionAttempt], code: int) -> EvictionAttempt | None:
    """The one whose plan was carried out: of all domains the best plan wins. One whose nodes another gang got in the same cycle
    evicts nobody."""
    if code != RUNS_AFTER_EVICTION:
        return None
    found = [(attempt.found.key, at) for at, attempt in enumerate(attempts) if isinstance(attempt.found, Plan) and attempt.decides]
    return attempts[min(found)[1]] if found else None


def _placements(outcome: Outcome, gang: Gang) -> list[Bind | Nominate | Reserve]:
    own = {pod.uid for pod in gang.pods()}
    return [effect for effect in outcome.effects if isinstance(effect, Bind | Nominate | Reserve) and effect.uid in own]


def _code(placements: list[Bind | Nominate | Reserve]) -> int:
    if any(isinstance(effect, Nominate) for effect in placements):
        return RUNS_AFTER_EVICTION
    return RUNS_NOW if any(isinstance(effect, Bind) for effect in placements) else CANNOT_RUN


def _evicted_gangs(world: World, tried: EvictionAttempt, gangs: dict[str, Gang], now: float) -> tuple[EvictedGang, ...]:
    by_gang: dict[str, list[Pod]] = {}
    for pod in tried.found.victims if isinstance(tried.found, Plan) else ():
        by_gang.setdefault(world.facts.members[pod.uid].gang, []).append(pod)
    kept = {pod.uid: node for pod, node in tried.found.moves} if isinstance(tried.found, Plan) else {}
    return tuple(
        replace(
            _evicted_gang(world, gangs[key], pods, now),
            moved_to=tuple(dict.fromkeys(kept[pod.uid] for pod in pods if pod.uid in kept)),
        )
        for key, pods in by_gang.items()
    )


def _evicted_gang(world: World, gang: Gang, pods: list[Pod], now: float) -> EvictedGang:
    left = gang.size - len(pods) + sum(role.succeeded for role in gang.roles)
    hours = [pod.hours_lost(since=now, now=now) for pod in pods]
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


def _alternative(world: World, tried: EvictionAttempt, gangs: dict[str, Gang], now: float) -> Alternative:
    if not isinstance(tried.found, Plan):
        return Alternative(tried.action, tried.domain, tried.found.why)
    evicted_gangs = _evicted_gangs(world, tried, gangs, now)
    evicts = tuple(f"{evicted.gang} ({len(evicted.pods)} pods)" for evicted in evicted_gangs)
    return Alternative(tried.action, tried.domain, "possible too", sum(evicted.gpu_hours for evicted in evicted_gangs), evicts)
