"""The figures of a running scheduler, in Prometheus' words. One registry of its own, so that two in one process do not meet.

`TABLE` is all of them; the documentation is made from it. Figures that belong to a world are taken by the thread that owns it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from muster import __version__
from muster.adapters.kube.client import UNREACHED
from muster.adapters.kube.reflector import Health
from muster.model.effects import Effect, Evict, Hold, Nominate, Outcome, Word
from muster.model.events import BindFailed, Event, EvictFailed
from muster.model.queue import ROOT_QUEUE
from muster.scenario.report import QueueRow
from muster.state.world import World

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BINDING = ("POST", "pods/binding")
_WORDS: Final = frozenset(get_args(Word))
_CLAIMS_ENDED = {
    "claims redeemed": "redeemed",
    "claims moved": "moved",
    "claims expired": "expired",
    "claims lost": "lost",
    "claims recovered": "recovered",
}

Family = CounterMetricFamily | GaugeMetricFamily
HealthOf = Callable[[], Mapping[tuple[str, str], Health]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric: its name, its kind, its labels and what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    says: str


def _figure(name: str, kind: str, *labels: str, says: str) -> Figure:
    return Figure(f"muster_{name}", kind, labels, says)


TABLE: Final = (
    _figure("build_info", "gauge", "version", says="Always 1; the version is in the label."),
    _figure("leader", "gauge", says="1 while this process holds the lease, or needs none."),
    _figure("synced", "gauge", says="1 once all that exists has been seen."),
    _figure("cycles_total", "counter", says="Cycles that were run. Where nothing happened and nothing is due, none is."),
    _figure("cycle_seconds", "histogram", says="How long a whole cycle took, from its events to its effects."),
    _figure(
        "cycle_phase_seconds", "histogram", "phase", says="How long a part of a cycle took: events, recover, each action, deeds."
    ),
    _figure("last_turn_age_seconds", "gauge", says="For how long the loop has not come round. /healthz fails above 60."),
    _figure("queue_used", "gauge", "queue", "resource", says="What a queue has, in cores, bytes or devices."),
    _figure("queue_deserved", "gauge", "queue", "resource", says="What a queue deserves, in the same units."),
    _figure("queue_share", "gauge", "queue", says="The largest part of what it deserves that a queue has; 1 is all of it."),
    _figure(
        "pending_gangs", "gauge", "code", says="Gangs that wait, by the code of the last verdict on them; none: not yet judged."
    ),
    _figure("pending_pods", "gauge", says="Pods that wait for a node."),
    _figure("decisions_total", "counter", "effect", says="What cycles decided: bind, hold, nominate, release, evict, spare."),
    _figure("binds_total", "counter", "result", says="Binds that the API server took (ok), and binds that failed for good."),
    _figure(
        "evictions_total", "counter", "action", "manner", says="Evictions by the action that chose them, and how they are done."
    ),
    _figure(
        "evictions_failed_total", "counter", "refused_by", says="Evictions that were refused: by a budget, or for another reason."
    ),
    _figure("claims_open", "gauge", "phase", says="Nodes that are kept for pods now: held or nominated."),
    _figure(
        "claims_total",
        "counter",
        "end",
        says="What became of claims: made, redeemed, moved to other room, expired, lost; and those recovered after a restart.",
    ),
    _figure("gangs_timed_out_total", "counter", says="Gangs whose wait time ran out."),
    _figure("pending_writes", "gauge", says="Writes that were decided and are not done yet."),
    _figure("objects_ignored", "gauge", says="Objects that cannot be read at all; the log names them."),
    _figure(
        "events_dropped", "gauge", says="Events that were not written since the start, because too much else was to be written."
    ),
    _figure("api_request_seconds", "histogram", "verb", "resource", "status", says="How long requests took. Status 0: no answer."),
    _figure(
        "watch_event_age_seconds", "gauge", "resource", says="How long ago anything, a bookmark too, was last heard on a watch."
    ),
    _figure("watch_events_total", "counter", "resource", says="What came in on a watch."),
    _figure("watch_relists_total", "counter", "resource", says="How often all had to be listed again."),
    _figure("watch_breaks_total", "counter", "resource", says="Watches that broke."),
    _figure("watch_refused", "gauge", "resource", says="1 where we may not read a resource: check the role."),
    _figure("inbox_objects", "gauge", says="Objects with news that the scheduler has not taken in yet."),
)
_BY_NAME = {figure.name.removeprefix("muster_"): figure for figure in TABLE}


@dataclass(frozen=True, slots=True)
class State:
    """What pages and figures ask a service for. Every answer may be given from any thread."""

    is_leader: Callable[[], bool]
    is_synced: Callable[[], bool]
    turn_age_s: Callable[[], float]
    pending_writes: Callable[[], int]
    inbox: Callable[[], int]
    ignored: Callable[[], int]
    events_dropped: Callable[[], int]
    health: HealthOf


class Metrics:
    """`enter` and `leave` belong to the scheduler's thread, `observe` to the event loop."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._clock = clock
        self._looking = threading.Lock()
        self._phase = ""
        self._entered = self._began = 0.0
        self._gauge("build_info").labels(__version__).set(1)
        self._cycles = self._counter("cycles_total")
        self._cycle_s = self._histogram("cycle_seconds")
        self._phase_s = self._histogram("cycle_phase_seconds")
        self._used = self._gauge("queue_used")
        self._deserved = self._gauge("queue_deserved")
        self._share = self._gauge("queue_share")
        self._gangs = self._gauge("pending_gangs")
        self._pods = self._gauge("pending_pods")
        self._decisions = self._counter("decisions_total")
        self._binds = self._counter("binds_total")
        self._evictions = self._counter("evictions_total")
        self._refused = self._counter("evictions_failed_total")
        self._claims = self._gauge("claims_open")
        self._ended = self._counter("claims_total")
        self._timed_out = self._counter("gangs_timed_out_total")
        self._requests = self._histogram("api_request_seconds")
        self._at_hand: dict[tuple[str, str, int], Histogram] = {}
        for end in ("made", *_CLAIMS_ENDED.values()):
            self._ended.labels(end)
        self._binds.labels("failed")
        self._bound = self._binds.labels("ok")

    def follow(self, state: State) -> None:
        """From now on, what only the service knows is asked for whenever somebody looks."""
        self.registry.register(_Asked(state))

    def page(self) -> bytes:
        with self._looking:
            return generate_latest(self.registry)

    # -- requests --------------------------------------------------------------------------------------------------------------

    def observe(self, verb: str, resource: str, status: int, took_s: float) -> None:
        if verb != "WATCH":
            # A watch lasts for as long as it can: its length says nothing.
            self._series(verb, resource, status).observe(took_s)
        if (verb, resource) == _BINDING and UNREACHED < status < 300:
            self._bound.inc()

    def _series(self, verb: str, resource: str, status: int) -> Histogram:
        """Kept at hand: a thousand requests in a second are of the same few kinds."""
        key = (verb, resource, status)
        found = self._at_hand.get(key)
        if found is None:
            found = self._at_hand[key] = self._requests.labels(verb, resource, str(status))
        return found

    # -- cycles ----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._began = self._clock()
        self.enter("events")

    def enter(self, phase: str) -> None:
        """A part of a cycle begins, so the one before it is over."""
        now = self._clock()
        if self._phase:
            self._phase_s.labels(self._phase).observe(now - self._entered)
        self._phase, self._entered = phase, now

    def end(self, outcome: Outcome) -> float:
        """The cycle is over; how long it took."""
        self.enter("")
        took_s = self._clock() - self._began
        self._cycles.inc()
        self._cycle_s.observe(took_s)
        self._count(outcome.effects)
        for what, times in outcome.stats:
            if what in _CLAIMS_ENDED:
                self._ended.labels(_CLAIMS_ENDED[what]).inc(times)
            elif what == "gangs timed out":
                self._timed_out.inc(times)
        return took_s

    def _count(self, effects: Collection[Effect]) -> None:
        times = Tally(map(type, effects))
        for deed in times.keys() - _WORDS:
            self._decisions.labels(deed.__name__.lower()).inc(times[deed])
        self._ended.labels("made").inc(times[Hold] + times[Nominate])
        if times[Evict]:
            for effect in effects:
                if isinstance(effect, Evict):
                    self._evictions.labels(effect.cause, effect.manner).inc()

    def heard(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, BindFailed):
                self._binds.labels("failed").inc()
            elif isinstance(event, EvictFailed):
                self._refused.labels("budget" if event.refused_by else "other").inc()

    def look(self, world: World, rows: Iterable[QueueRow]) -> None:
        """How things stand after a cycle. Nobody is shown half of it."""
        rows = list(rows)
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unseated)
        waiting = Tally(verdict.code if verdict is not None and verdict.code else "none" for verdict in verdicts)
        with self._looking:
            _replace(self._gangs, {(code,): float(gangs) for code, gangs in waiting.items()})
            self._pods.set(sum(world.placements.unseated.values()))
            self._claims.labels("held").set(len(world.placements.held))
            self._claims.labels("nominated").set(len(world.placements.claims) - len(world.placements.held))
            self._look_at_queues(rows)

    def _look_at_queues(self, rows: list[QueueRow]) -> None:
        _replace(self._share, {(_queue(row),): row.share for row in rows})
        _replace(self._used, {(_queue(row), name): _plain(name, value) for row in rows for name, value in row.used})
        _replace(self._deserved, {(_queue(row), name): _plain(name, value) for row in rows for name, value in row.deserved})

    # -- making them -----------------------------------------------------------------------------------------------------------

    def _gauge(self, name: str) -> Gauge:
        figure = _BY_NAME[name]
        return Gauge(figure.name, figure.says, figure.labels, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        figure = _BY_NAME[name]
        return Counter(figure.name, figure.says, figure.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        figure = _BY_NAME[name]
        return Histogram(figure.name, figure.says, figure.labels, registry=self.registry, buckets=_SECONDS)


class _Asked(Collector):
    """What is asked for at the moment when somebody looks."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        state = self._state
        yield _one("leader", float(state.is_leader()))
        yield _one("synced", float(state.is_synced()))
        yield _one("last_turn_age_seconds", state.turn_age_s())
        yield _one("pending_writes", state.pending_writes())
        yield _one("inbox_objects", state.inbox())
        yield _one("objects_ignored", state.ignored())
        yield _one("events_dropped", state.events_dropped())
        health = {f"{kind}.{group}" if group else kind: one for (group, kind), one in state.health().items()}
        yield _many("watch_event_age_seconds", {name: one.quiet_s() for name, one in health.items()})
        yield _many("watch_events_total", {name: one.events for name, one in health.items()})
        yield _many("watch_relists_total", {name: one.relists for name, one in health.items()})
        yield _many("watch_breaks_total", {name: one.breaks for name, one in health.items()})
        yield _many("watch_refused", {name: float(one.refused) for name, one in health.items()})


def _one(name: str, value: float) -> Family:
    return GaugeMetricFamily(_BY_NAME[name].name, _BY_NAME[name].says, value=value)


def _many(name: str, values: Mapping[str, float]) -> Family:
    figure = _BY_NAME[name]
    make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    family: Family = make(figure.name, figure.says, labels=figure.labels)
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _replace(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """What is no longer there is shown no longer."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


def _queue(row: QueueRow) -> str:
    return "root" if row.queue == ROOT_QUEUE else row.queue


def _plain(resource: str, value: int) -> float:
    """Thousandths of cores as cores; everything else as it is counted."""
    return value / 1000 if resource == "cpu" else float(value)


def table() -> str:
    """All figures as the documentation has them."""
    rows = (f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.says} |" for one in TABLE)
    return "\n".join(("| metric | kind | labels | what it says |", "| --- | --- | --- | --- |", *rows))
