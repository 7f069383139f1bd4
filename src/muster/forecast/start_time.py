"""When a gang starts: the cluster run on in virtual time, one cycle after the other, on the scheduler's own values.

Nobody else comes, nodes stay as they are, and pods end when their run time is over. What is not known of run times makes the answer
a bound and not an expectation.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple
from zlib import crc32

from muster.engine.consolidate.movable_pods import CONSOLIDATE
from muster.engine.cycle import run_session
from muster.engine.evict.evict_actions import EVICT_ACTIONS
from muster.engine.hooks import Policy
from muster.engine.run_times import run_time
from muster.engine.session import Session
from muster.model.effects import Bind, Evict, Outcome
from muster.model.events import ClusterObject, Delete, Upsert
from muster.model.gang import Gang
from muster.model.pod import Pod, PodStatusPhase
from muster.scheduler import new_store
from muster.state.store import Store

DECLARED, EARLIER, ASSUMED, UNKNOWN = "declared", "of earlier pods", "assumed", "unknown"
GRACE_S = 30.0
"""How long an evicted pod takes to end: Kubernetes' default, because pods seldom say otherwise."""
EVENS_OUT = 0.01
"""Pods that end within this part of the time that passed end together: a later hour needs no more cycles than the first."""

_SERIAL = re.compile(r"-[a-z0-9]{5}$|\d+")
_NAMES_NEEDED, _NAMESPACE_NEEDED = 1, 5
_MANY_RUNS = 30
"""So many gangs of an owner say themselves how their run times differ."""
_RUNS_FOR_SPREAD, _LEAST_SPREAD, _LEAST_RANK = 8, 0.05, 1e-6
_LOW, _MIDDLE, _HIGH = 0.2, 0.5, 0.8
_DRAWS = 14
NEVER = inf
_SAME = 0.1
"""An early and a late start that differ by less, relative to the wait, are one."""

MayGoOn = Callable[[], bool]


def always() -> bool:
    return True


Begun = tuple[Store, Outcome]
"""All objects, and what one cycle decided about them."""


def owner_of(pod: Pod) -> tuple[str, str]:
    """Jobs that are submitted again and again have names that differ in numbers."""
    return pod.namespace, _SERIAL.sub("#", pod.name)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How long pods run: as earlier pods of the same owner did, but no longer than they declare; else as they declare; else as
    somebody assumes."""

    earlier: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    """By namespace and name without numbers, and by namespace alone (an empty name): sorted."""
    assumed: float | None = None
    typical: Mapping[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    """The mean of the logarithms of the run times of an owner's gangs, and how many these are."""
    spread: float | None = None
    """By how much the logarithms of one owner differ, of all owners together; None where too few gangs have ended."""

    def of(self, pod: Pod, *, ran_s: float, part: float, declared: float | None) -> tuple[str, float | None]:
        """For how long it runs in all, given how long it has run, and how this is known. `part` of its like run no longer."""
        if (found := self._earlier(pod, ran_s, part)) is not None:
            return EARLIER, found if declared is None else min(found, declared)
        if declared is not None:
            return DECLARED, declared
        if self.assumed is None:
            return UNKNOWN, None
        # Who has outlived what is assumed goes on for as long again.
        return ASSUMED, self.assumed * (ran_s // self.assumed + 1) if self.assumed else 0.0

    def _earlier(self, pod: Pod, ran_s: float, part: float) -> float | None:
        typical = self.typical.get(owner_of(pod))
        if typical is not None and self.spread is not None and typical[1] < _MANY_RUNS:
            return _run_time_of_few(typical, self.spread, ran_s, part)
        for owner, needed in ((owner_of(pod), _NAMES_NEEDED), ((pod.namespace, ""), _NAMESPACE_NEEDED)):
            all_of_them = self.earlier.get(owner, ())
            longer = all_of_them[bisect_right(all_of_them, ran_s) :]
            if len(all_of_them) >= needed and longer:
                return longer[min(len(longer) - 1, int(part * len(longer)))]
        return None


def _run_time_of_few(typical: tuple[float, int], spread: float, ran_s: float, part: float) -> float:
    """Run times of one owner are about log-normal. A few earlier ones say little of how they differ, those of all owners together
    more; and who has outlived all of them still ends at some time."""
    mean, number = typical
    drawn = NormalDist(mean, spread * sqrt(1 + 1 / number))
    shorter = drawn.cdf(log(ran_s)) if ran_s > 0 else 0.0
    rank = min(max(shorter + part * (1 - shorter), _LEAST_RANK), 1 - _LEAST_RANK)
    return max(exp(drawn.inv_cdf(rank)), ran_s)


def run_times_of(ended: Iterable[tuple[Pod, float]], *, assumed: float | None = None) -> RunTimes:
    """From pods that ended, and for how long they ran."""
    found: dict[tuple[str, str], list[float]] = {}
    logs: dict[tuple[str, str], dict[str, float]] = {}
    for pod, ran_s in ended:
        for owner in (owner_of(pod), (pod.namespace, "")):
            found.setdefault(owner, []).append(ran_s)
        # Members of a gang end together: they are one observation.
        logs.setdefault(owner_of(pod), {})[pod.gang_key or pod.uid] = log(max(ran_s, 1.0))
    typical = {owner: (fmean(runs.values()), len(runs)) for owner, runs in logs.items()}
    squares = sum((each - typical[owner][0]) ** 2 for owner, runs in logs.items() for each in runs.values())
    freedom = sum(len(runs) - 1 for runs in logs.values())
    spread = max(sqrt(squares / freedom), _LEAST_SPREAD) if freedom >= _RUNS_FOR_SPREAD else None
    return RunTimes({owner: sorted(times) for owner, times in found.items()}, assumed, typical, spread)


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from now. `expected_s` is None where it is not known; then `not_before_s` is what is."""

    expected_s: float | None
    not_before_s: float
    latest_s: float | None
    """When it starts at the latest, if nobody comes before it."""
    known_from: tuple[tuple[str, int], ...]
    """How many of the pods that end before it do so by run times from where."""
    unknown: int
    """Pods whose run time nobody knows."""
    cut_short: bool
    """The time for the answer was over before the gang started."""


class _Moment(NamedTuple):
    """A time, how many pods had ended until then, by how their run time is known, and how many run of which it is not."""

    at: float
    ended: Counter[str]
    unknown: int


@dataclass(frozen=True, slots=True)
class _Passed:
    """What became of the cluster until the last of the gangs started, or as far as it was run on."""

    started: Mapping[str, _Moment]
    """By gang."""
    until: _Moment
    cut_short: bool

    def moment(self, gang: str) -> _Moment:
        return self.started.get(gang, self.until)

    def start(self, gang: str) -> float:
        return self.started[gang].at if gang in self.started else NEVER


def starts_of(
    policy: Policy,
    objects: Sequence[ClusterObject],
    gangs: Iterable[Gang],
    run_times: RunTimes,
    *,
    now: float,
    may_go_on: MayGoOn,
    within: MayGoOn = always,
    begun: Begun | None = None,
) -> dict[str, Start]:
    """When these gangs start, by key. `may_go_on` is asked before every cycle, `within` in each before victims are searched for
    other gangs. `begun`: the first one was run already."""
    uids = {pod.uid: gang.key for gang in gangs for pod in gang.pods()}
    if begun is None and not may_go_on():
        return {}

    def passed(draw: int, *, unknown_end: bool = False, begun: Begun | None = None) -> _Passed:
        run = _VirtualRun(policy, objects, run_times, now=now, draw=draw, unknown_end=unknown_end, begun=begun)
        return run.until_started(uids, may_go_on, within)

    middle = passed(0, begun=begun)
    runs = [middle]
    if any(middle.moment(key).unknown for key in uids.values()):
        early = passed(0, unknown_end=True) if may_go_on() else _Passed({}, _Moment(now, Counter(), 0), cut_short=True)
        return {key: _bounded(key, early, middle, now=now) for key in dict.fromkeys(uids.values())}
    if middle.until.ended[EARLIER]:
        # Of many gangs the first to end does so earlier than any of them usually: only draws tell how much.
        while len(runs) <= _DRAWS and may_go_on():
            runs.append(passed(len(runs)))
    return {key: _start(key, runs, now=now) for key in dict.fromkeys(uids.values())}


def _bounded(key: str, early: _Passed, middle: _Passed, *, now: float) -> Start:
    """Somewhere between these: pods that run nobody knows how long ended at once, or never."""
    first, last = early.start(key) - now, middle.start(key) - now
    is_known = last < NEVER and last - first <= _SAME * last
    never = first == NEVER and not early.cut_short
    return Start(
        expected_s=last if is_known else None,
        not_before_s=early.moment(key).at - now,
        latest_s=last if last < NEVER else None,
        known_from=_known_from(middle.moment(key)),
        unknown=0 if is_known or never else middle.moment(key).unknown,
        cut_short=early.cut_short and first == NEVER,
    )


def _start(key: str, runs: Sequence[_Passed], *, now: float) -> Start:
    """The middle of some draws."""
    middle = runs[0]
    waits = sorted(run.start(key) - now for run in runs if run is middle or not run.cut_short)
    first, expected_s, last = (waits[int(part * len(waits))] for part in (_LOW, _MIDDLE, _HIGH))
    return Start(
        expected_s=expected_s if expected_s < NEVER else None,
        not_before_s=first if first < NEVER else middle.until.at - now,
        latest_s=last if last < NEVER else None,
        known_from=_known_from(middle.moment(key)),
        unknown=0,
        cut_short=middle.cut_short,
    )


def _known_from(moment: _Moment) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((source, count) for source, count in moment.ended.items() if source != UNKNOWN))


def without_evictions(policy: Policy) -> Policy:
    """The same policy, under which nobody is evicted."""
    actions = tuple(action for action in policy.actions if action not in (*EVICT_ACTIONS, CONSOLIDATE))
    return Policy(policy.plugins, actions, settings=policy.settings, source=policy.source)


def queue_order(s: Session, queue: str) -> list[Gang]:
    """The gangs of a queue with members that have no node, in the order in which they are attempted."""
    gangs = [found for key in s.world.placements.unplaced_members if (found := s.world.facts.gangs[key]).queue == queue]
    return sorted(gangs, key=s.gang_key)


class _VirtualRun:
    def __init__(
        self,
        policy: Policy,
        objects: Iterable[ClusterObject],
        run_times: RunTimes,
        *,
        now: float,
        draw: int,
        unknown_end: bool,
        begun: Begun | None,
    ) -> None:
        self._policy, self._run_times, self._draw, self._unknown_end = policy, run_times, draw, unknown_end
        self._began = self._now = self._last_end = now
        self._store = new_store(policy) if begun is None else begun[0]
        self._first = None if begun is None else begun[1]
        self._pods: dict[str, Pod] = {}
        self._ends: list[tuple[float, str, str]] = []
        """When which pod ends, and how that is known; empty for one that is deleted."""
        self._wake_at: dict[str, float] = {}
        if policy.settings.reserve_after_s:
            self._wake_at[""] = now + policy.settings.reserve_after_s  # Capacity is kept for who has waited since now.
        self._unknown: set[str] = set()
        self._ended: Counter[str] = Counter()
        known = tuple(objects)
        for obj in known if begun is None else ():
            self._store.fold(Upsert(obj))
        self._world = self._store.world(now)
        for obj in known:
            if isinstance(obj, Pod) and not obj.finished:
                self._pods[obj.uid] = obj
                self._expect_end(obj)

    def until_started(self, uids: Mapping[str, str], may_go_on: MayGoOn, within: MayGoOn) -> _Passed:
        started: dict[str, _Moment] = {}
        missing, cut_short = set(uids.values()), False
        while True:
            outcome = self._first or self._decided(missing, within)
            self._first = None
            moment = _Moment(self._now, self._ended.copy(), len(self._unknown))
            for effect in outcome.effects:
                if isinstance(effect, Bind):
                    self._bind(effect)
                    if (gang := uids.get(effect.uid, "")) in missing:
                        missing.remove(gang)
                        started[gang] = moment
                elif isinstance(effect, Evict):
                    self._evict(effect)
            if not missing or not self._pass_time(outcome):
                break
            if not may_go_on():
                cut_short = True
                break
        until = self._now if cut_short or not missing else self._last_end
        return _Passed(started, _Moment(until, self._ended, len(self._unknown)), cut_short)

    def _decided(self, asked: Set[str], within: MayGoOn) -> Outcome:
        """One cycle. Once the time is over nobody is looked for whom those that are not asked about would have evicted."""
        session = Session(self._store.world(self._now), self._policy)
        session.may_search = lambda gang: gang in asked or within()
        return run_session(session)

    def _bind(self, effect: Bind) -> None:
        pod = self._pods[effect.uid]
        now = self._now
        running = replace(
            pod, node=effect.node, started=now, nominated_node=None, status_phase=PodStatusPhase.RUNNING, version=pod.version + 1
        )
        self._put(running)
        self._expect_end(running)

    def _evict(self, effect: Evict) -> None:
        pod = self._pods[effect.uid]
        going = replace(pod, deleted_at=self._now + GRACE_S, version=pod.version + 1)
        self._put(going)
        self._expect_end(going)

    def _put(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        self._store.fold(Upsert(pod))

    def _expect_end(self, pod: Pod) -> None:
        if pod.deleted_at is not None:
            self._unknown.discard(pod.uid)
            heapq.heappush(self._ends, (max(pod.deleted_at, self._now), pod.uid, ""))
        elif pod.node is not None and not pod.protected:
            started = pod.started if pod.started is not None else self._now
            source, runs_s = self._run_times.of(
                pod, ran_s=max(0.0, self._now - started), part=self._part(pod), declared=run_time(self._world, pod)
            )
            if runs_s is not None:
                heapq.heappush(self._ends, (max(started + runs_s, self._now), pod.uid, source))
                return
            self._unknown.add(pod.uid)
            if self._unknown_end:
                heapq.heappush(self._ends, (self._now, pod.uid, source))

    def _part(self, pod: Pod) -> float:
        """Of the first draw the middle, of the others anything: the same for all members of a gang, which end together."""
        return crc32(f"{self._draw} {pod.gang_key}".encode()) / 2**32 if self._draw else _MIDDLE

    def _pass_time(self, outcome: Outcome) -> bool:
        """To when something happens next; False where nothing will."""
        for gang, verdict in outcome.verdicts:
            self._wake_at.pop(gang, None)
            if verdict.at is not None:
                self._wake_at[gang] = verdict.at
        times = [at for at in self._wake_at.values() if at > self._now]
        if self._ends:
            times.append(self._ends[0][0])
        if not times:
            return False
        self._now = due = max(self._now, min(times))
        due += EVENS_OUT * (due - self._began)
        while self._ends and self._ends[0][0] <= due:
            at, uid, source = heapq.heappop(self._ends)
            self._now = self._last_end = max(self._now, at)
            self._end(uid, source)
        return True

    def _end(self, uid: str, source: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or (pod.deleted_at is not None and source):
            return
        del self._pods[uid]
        if source:
            self._ended[source] += 1
            self._store.fold(Upsert(replace(pod, status_phase=PodStatusPhase.SUCCEEDED, version=pod.version + 1)))
            return
        self._store.fold(Delete("Pod", uid))
        if pod.controller and pod.ours:
            self._put(_made_anew(pod, now=self._now))


def _made_anew(pod: Pod, *, now: float) -> Pod:
    return replace(
        pod,
        uid=f"{pod.uid}+",
        created=now,
        node=None,
        started=None,
        deleted_at=None,
        nominated_node=None,
        pipelined_node="",
        device_slots=(),
        eviction_marked_at=None,
        checkpoint=None,
        status_phase=PodStatusPhase.PENDING,
    )
