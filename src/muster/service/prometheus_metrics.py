"""The figures of a running scheduler, in Prometheus' words. One registry of its own, so that two in one process do not meet.

`METRICS` is all of them; the documentation is made from it. Figures that belong to a world are taken by the thread that owns it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as CountOf
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from muster import __version__
from muster.kube.watch.client import NO_RESPONSE
from muster.kube.watch.reflector import WatchHealth
from muster.model.effects import Effect, Evict, Nominate, Outcome, Reserve, StatusEffect
from muster.model.events import BindFailed, Event, EvictFailed
from muster.model.queue import ROOT_QUEUE
from muster.scenario.run_report import QueueRow
from muster.state.world import World

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BIND_REQUEST = ("POST", "pods/binding")
_STATUS_UPDATES: Final = frozenset(get_args(StatusEffect))
_RESERVATION_ENDS = {
    "claims redeemed": "redeemed",
    "claims moved": "moved",
    "claims expired": "expired",
    "claims lost": "lost",
    "claims recovered": "recovered",
}

Family = CounterMetricFamily | GaugeMetricFamily
HealthSource = Callable[[], Mapping[tuple[str, str], WatchHealth]]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: its name, its kind, its labels and what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    description: str


def _metric(name: str, kind: str, *labels: str, description: str) -> MetricSpec:
    return MetricSpec(f"muster_{name}", kind, labels, description)


METRICS: Final = (
    _metric("build_info", "gauge", "version", description="Always 1; the version is in the label."),
    _metric("leader", "gauge", description="1 while this process holds the lease, or needs none."),
    _metric("synced", "gauge", description="1 once all that exists has been seen."),
    _metric("cycles_total", "counter", description="Cycles that were run. Where nothing happened and nothing is due, none is."),
    _metric("cycle_seconds", "histogram", description="How long a whole cycle took, from its events to its effects."),
    _metric(
        "cycle_phase_seconds",
        "histogram",
        "phase",
        description="How long a part of a cycle took: events, recover, each action, deeds.",
    ),
    _metric("last_turn_age_seconds", "gauge", description="For how long the loop has not come round. /healthz fails above 60."),
    _metric("queue_used", "gauge", "queue", "resource", description="What a queue has, in cores, bytes or devices."),
    _metric("queue_deserved", "gauge", "queue", "resource", description="What a queue deserves, in the same units."),
    _metric("queue_share", "gauge", "queue", description="The largest part of what it deserves that a queue has; 1 is all of it."),
    _metric(
        "pending_gangs",
        "gauge",
        "code",
        description="Gangs that wait, by the code of the last verdict on them; none: not yet judged.",
    ),
    _metric("pending_pods", "gauge", description="Pods that wait for a node."),
    _metric(
        "decisions_total", "counter", "effect", description="What cycles decided: bind, hold, nominate, release, evict, spare."
    ),
    _metric("binds_total", "counter", "result", description="Binds that the API server took (ok), and binds that failed for good."),
    _metric(
        "evictions_total",
        "counter",
        "action",
        "manner",
        description="Evictions by the action that chose them, and how they are done.",
    ),
    _metric(
        "evictions_failed_total",
        "counter",
        "refused_by",
        description="Evictions that were refused: by a budget, or for another reason.",
    ),
    _metric("claims_open", "gauge", "phase", description="Nodes that are kept for pods now: held or nominated."),
    _metric(
        "claims_total",
        "counter",
        "end",
        description="What became of claims: made, redeemed, moved to other room, expired, lost, or recovered after a restart.",
    ),
    _metric("gangs_timed_out_total", "counter", description="Gangs whose wait time ran out."),
    _metric("pending_writes", "gauge", description="Writes that were decided and are not done yet."),
    _metric("objects_ignored", "gauge", description="Objects that cannot be read at all; the log names them."),
    _metric(
        "events_dropped",
        "gauge",
        description="Events that were not written since the start, because too much else was to be written.",
    ),
    _metric(
        "api_request_seconds", "histogram", "verb", "resource", "status", description="How long requests took. Status 0: no answer."
    ),
    _metric(
        "watch_event_age_seconds",
        "gauge",
        "resource",
        description="How long ago anything, a bookmark too, was last heard on a watch.",
    ),
    _metric("watch_events_total", "counter", "resource", description="What came in on a watch."),
    _metric("watch_relists_total", "counter", "resource", description="How often all had to be listed again."),
    _metric("watch_breaks_total", "counter", "resource", description="Watches that broke."),
    _metric("watch_refused", "gauge", "resource", description="1 where we may not read a resource: check the role."),
    _metric("inbox_objects", "gauge", description="Objects with news that the scheduler has not taken in yet."),
)
_BY_NAME = {metric.name.removeprefix("muster_"): metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What pages and figures ask a service for. Every answer may be given from any thread."""

    is_leader: Callable[[], bool]
    is_synced: Callable[[], bool]
    loop_age_s: Callable[[], float]
    pending_writes: Callable[[], int]
    backlog: Callable[[], int]
    objects_ignored: Callable[[], int]
    events_dropped: Callable[[], int]
    health: HealthSource


class Metrics:
    """`on_step` and `leave` belong to the scheduler's thread, `observe` to the event loop."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._clock = clock
        self._render_lock = threading.Lock()
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
        self._evictions_failed = self._counter("evictions_failed_total")
        self._reservations = self._gauge("claims_open")
        self._reservation_ends = self._counter("claims_total")
        self._timed_out = self._counter("gangs_timed_out_total")
        self._requests = self._histogram("api_request_seconds")
        self._request_series: dict[tuple[str, str, int], Histogram] = {}
        for end in ("made", *_RESERVATION_ENDS.values()):
            self._reservation_ends.labels(end)
        self._binds.labels("failed")
        self._bound = self._binds.labels("ok")

    def collect_from(self, state: ServiceState) -> None:
        """From now on, what only the service knows is asked for whenever somebody looks."""
        self.registry.register(_StateCollector(state))

    def page(self) -> bytes:
        with self._render_lock:
            return generate_latest(self.registry)

    # -- requests --------------------------------------------------------------------------------------------------------------

    def observe(self, verb: str, resource: str, status: int, took_s: float) -> None:
        if verb != "WATCH":
            # A watch lasts for as long as it can: its length says nothing.
            self._series(verb, resource, status).observe(took_s)
        if (verb, resource) == _BIND_REQUEST and NO_RESPONSE < status < 300:
            self._bound.inc()

    def _series(self, verb: str, resource: str, status: int) -> Histogram:
        """Kept at hand: a thousand requests in a second are of the same few kinds."""
        key = (verb, resource, status)
        found = self._request_series.get(key)
        if found is None:
            found = self._request_series[key] = self._requests.labels(verb, resource, str(status))
        return found

    # -- cycles ----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._began = self._clock()
        self.on_step("events")

    def on_step(self, phase: str) -> None:
        """A part of a cycle begins, so the one before it is over."""
        now = self._clock()
        if self._phase:
            self._phase_s.labels(self._phase).observe(now - self._entered)
        self._phase, self._entered = phase, now

    def end(self, outcome: Outcome) -> float:
        """The cycle is over; how long it took."""
        self.on_step("")
        took_s = self._clock() - self._began
        self._cycles.inc()
        self._cycle_s.observe(took_s)
        self._count(outcome.effects)
        for what, times in outcome.stats:
            if what in _RESERVATION_ENDS:
                self._reservation_ends.labels(_RESERVATION_ENDS[what]).inc(times)
            elif what == "gangs timed out":
                self._timed_out.inc(times)
        return took_s

    def _count(self, effects: Collection[Effect]) -> None:
        times = CountOf(map(type, effects))
        for deed in times.keys() - _STATUS_UPDATES:
            self._decisions.labels(deed.__name__.lower()).inc(times[deed])
        self._reservation_ends.labels("made").inc(times[Reserve] + times[Nominate])
        if times[Evict]:
            for effect in effects:
                if isinstance(effect, Evict):
                    self._evictions.labels(effect.cause, effect.method).inc()

    def count_failures(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, BindFailed):
                self._binds.labels("failed").inc()
            elif isinstance(event, EvictFailed):
                self._evictions_failed.labels("budget" if event.refused_by else "other").inc()

    def update_gauges(self, world: World, rows: Iterable[QueueRow]) -> None:
        """How things stand after a cycle. Nobody is shown half of it."""
        rows = list(rows)
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unplaced_members)
        waiting = CountOf(verdict.code if verdict is not None and verdict.code else "none" for verdict in verdicts)
        with self._render_lock:
            _replace_series(self._gangs, {(code,): float(gangs) for code, gangs in waiting.items()})
            self._pods.set(sum(world.placements.unplaced_members.values()))
            self._reservations.labels("held").set(len(world.placements.reserved))
            self._reservations.labels("nominated").set(len(world.placements.reservations) - len(world.placements.reserved))
            self._update_queue_gauges(rows)

    def _update_queue_gauges(self, rows: list[QueueRow]) -> None:
        _replace_series(self._share, {(_queue_label(row),): row.share for row in rows})
        _replace_series(
            self._used, {(_queue_label(row), name): _in_base_units(name, value) for row in rows for name, value in row.used}
        )
        _replace_series(
            self._deserved, {(_queue_label(row), name): _in_base_units(name, value) for row in rows for name, value in row.deserved}
        )

    # -- making them -----------------------------------------------------------------------------------------------------------

    def _gauge(self, name: str) -> Gauge:
        metric = _BY_NAME[name]
        return Gauge(metric.name, metric.description, metric.labels, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        metric = _BY_NAME[name]
        return Counter(metric.name, metric.description, metric.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        metric = _BY_NAME[name]
        return Histogram(metric.name, metric.description, metric.labels, registry=self.registry, buckets=_BUCKETS_S)


class _StateCollector(Collector):
    """What is asked for at the moment when somebody looks."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        state = self._state
        yield _sample("leader", float(state.is_leader()))
        yield _sample("synced", float(state.is_synced()))
        yield _sample("last_turn_age_seconds", state.loop_age_s())
        yield _sample("pending_writes", state.pending_writes())
        yield _sample("inbox_objects", state.backlog())
        yield _sample("objects_ignored", state.objects_ignored())
        yield _sample("events_dropped", state.events_dropped())
        health = {f"{kind}.{group}" if group else kind: one for (group, kind), one in state.health().items()}
        yield _labelled_samples("watch_event_age_seconds", {name: one.silent_for_s() for name, one in health.items()})
        yield _labelled_samples("watch_events_total", {name: one.events for name, one in health.items()})
        yield _labelled_samples("watch_relists_total", {name: one.relists for name, one in health.items()})
        yield _labelled_samples("watch_breaks_total", {name: one.disconnects for name, one in health.items()})
        yield _labelled_samples("watch_refused", {name: float(one.forbidden) for name, one in health.items()})


def _sample(name: str, value: float) -> Family:
    return GaugeMetricFamily(_BY_NAME[name].name, _BY_NAME[name].description, value=value)


def _labelled_samples(name: str, values: Mapping[str, float]) -> Family:
    metric = _BY_NAME[name]
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: Family = make(metric.name, metric.description, labels=metric.labels)
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _replace_series(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """What is no longer there is shown no longer."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


def _queue_label(row: QueueRow) -> str:
    return "root" if row.queue == ROOT_QUEUE else row.queue


def _in_base_units(resource: str, value: int) -> float:
    """Thousandths of cores as cores; everything else as it is counted."""
    return value / 1000 if resource == "cpu" else float(value)


def metrics_table() -> str:
    """All figures as the documentation has them."""
    rows = (
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.description} |" for one in METRICS
    )
    return "\n".join(("| metric | kind | labels | what it says |", "| --- | --- | --- | --- |", *rows))
