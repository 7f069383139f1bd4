"""The Prometheus metrics of a running scheduler, in a registry of their own: several schedulers may run in one process.

Gauges of queues and gangs are set by the thread that owns the world; the others are read when metrics are scraped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as CountOf
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from muster import __version__
from muster.cycle_log import effect_name
from muster.forecast.shadow_comparison import ShadowReport
from muster.kube.watch.client import NO_RESPONSE
from muster.kube.watch.reflector import WatchHealth
from muster.model.effects import Effect, Evict, Nominate, Outcome, Reserve, StatusEffect
from muster.model.events import BindFailed, Event, EvictFailed
from muster.model.queue import ROOT_QUEUE
from muster.queue_report import QueueRow
from muster.service.metric_specs import METRICS, PREFIX, MetricSpec
from muster.state.world import World

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_QUEUE_AMOUNTS = ("used", "deserved", "limit", "guarantee", "fair_share", "past_use")
_WAIT_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0)
_MAX_QUEUES = 500
_MAX_PAIRS = 2000
"""Series of counters and histograms stay for ever, and queues come and go. Of pairs there could be as many as queues squared."""
_OTHER_QUEUES = "other"
_BIND_REQUEST = ("POST", "pods/binding")
_STATUS_UPDATES: Final = frozenset(get_args(StatusEffect))
_RESERVATION_STATS = {
    "reservations bound": "bound",
    "reservations moved": "moved",
    "reservations expired": "expired",
    "reservations lost": "lost",
    "reservations recovered": "recovered",
}
"""The `result` label of each stat of a cycle."""

Family = CounterMetricFamily | GaugeMetricFamily
HealthSource = Callable[[], Mapping[tuple[str, str], WatchHealth]]


_BY_NAME = {metric.name.removeprefix(PREFIX): metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of the service that probes and metrics read. Each function may be called in any thread."""

    is_leader: Callable[[], bool]
    is_synced: Callable[[], bool]
    loop_age_s: Callable[[], float]
    pending_writes: Callable[[], int]
    backlog: Callable[[], int]
    objects_ignored: Callable[[], int]
    events_dropped: Callable[[], int]
    health: HealthSource


class Metrics:
    """`begin`, `on_step`, `end` and the gauges belong to the thread of the scheduling loop, `observe` to the event loop."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.queue_registry = CollectorRegistry(auto_describe=False)
        """Names of queues are not for everybody."""
        self._clock = clock
        self._render_lock = threading.Lock()
        self._phase = ""
        self._entered = self._began = 0.0
        self._gauge("build_info").labels(__version__).set(1)
        self._cycles = self._counter("cycles_total")
        self._cycle_s = self._histogram("cycle_duration_seconds")
        self._phase_s = self._histogram("cycle_phase_duration_seconds")
        self._share = self._gauge("queue_share", self.queue_registry)
        self._queue_amounts = {field: self._gauge(f"queue_{field}", self.queue_registry) for field in _QUEUE_AMOUNTS}
        self._pending = self._gauge("queue_pending_gangs", self.queue_registry)
        self._waits = self._histogram("gang_wait_seconds", self.queue_registry, buckets=_WAIT_BUCKETS_S)
        self._lost = self._counter("lost_gpu_hours_total", self.queue_registry)
        self._queues: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._gangs = self._gauge("pending_gangs")
        self._pods = self._gauge("pending_pods")
        self._decisions = self._counter("decisions_total")
        self._binds = self._counter("binds_total")
        self._evictions = self._counter("evictions_total")
        self._evictions_failed = self._counter("evictions_failed_total")
        self._active_reservations = self._gauge("active_reservations")
        self._reservations = self._counter("reservations_total")
        self._timed_out = self._counter("gangs_timed_out_total")
        self._shadow = self._gauge("shadow_report")
        self._requests = self._histogram("api_request_duration_seconds")
        self._request_series: dict[tuple[str, str, int], Histogram] = {}
        for result in ("made", *_RESERVATION_STATS.values()):
            self._reservations.labels(result)
        self._binds.labels("failed")
        self._bound = self._binds.labels("ok")

    def collect_from(self, state: ServiceState) -> None:
        """From now on, read the state of the service whenever metrics are scraped."""
        self.registry.register(_StateCollector(state))

    def page(self, *, queues: bool = True) -> bytes:
        with self._render_lock:
            return generate_latest(self.registry) + (generate_latest(self.queue_registry) if queues else b"")

    # -- requests --------------------------------------------------------------------------------------------------------------

    def observe(self, verb: str, resource: str, status: int, took_s: float) -> None:
        if verb != "WATCH":
            # A watch lasts until it is disconnected: its duration means nothing.
            self._series(verb, resource, status).observe(took_s)
        if (verb, resource) == _BIND_REQUEST and NO_RESPONSE < status < 300:
            self._bound.inc()

    def _series(self, verb: str, resource: str, status: int) -> Histogram:
        """Cached: looking up labels is slow for a thousand requests per second."""
        key = (verb, resource, status)
        series = self._request_series.get(key)
        if series is None:
            series = self._request_series[key] = self._requests.labels(verb, resource, str(status))
        return series

    # -- cycles ----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._began = self._clock()
        self.on_step("events")

    def on_step(self, phase: str) -> None:
        """A phase of a cycle begins, which ends the previous one."""
        now = self._clock()
        if self._phase:
            self._phase_s.labels(self._phase).observe(now - self._entered)
        self._phase, self._entered = phase, now

    def end(self, outcome: Outcome) -> float:
        """End the cycle and return its duration."""
        self.on_step("")
        took_s = self._clock() - self._began
        self._cycles.inc()
        self._cycle_s.observe(took_s)
        self._count(outcome.effects)
        for stat, number in outcome.stats:
            if stat in _RESERVATION_STATS:
                self._reservations.labels(_RESERVATION_STATS[stat]).inc(number)
            elif stat == "gangs timed out":
                self._timed_out.inc(number)
        return took_s

    def _count(self, effects: Collection[Effect]) -> None:
        counts = CountOf(map(type, effects))
        for kind in counts.keys() - _STATUS_UPDATES:
            self._decisions.labels(effect_name(kind)).inc(counts[kind])
        self._reservations.labels("made").inc(counts[Reserve] + counts[Nominate])
        if counts[Evict]:
            for effect in effects:
                if isinstance(effect, Evict):
                    self._evictions.labels(effect.cause, effect.method).inc()

    def count_wait(self, queue: str, wait_s: float) -> None:
        """A gang is bound for the first time."""
        self._waits.labels(self._bounded(queue)).observe(wait_s)

    def count_lost(self, queue: str, for_queue: str, gpu_hours: float) -> None:
        pair = (self._bounded(queue), self._bounded(for_queue))
        if pair not in self._pairs and len(self._pairs) >= _MAX_PAIRS:
            pair = (_OTHER_QUEUES, _OTHER_QUEUES)
        self._pairs.add(pair)
        self._lost.labels(*pair).inc(gpu_hours)

    def _bounded(self, queue: str) -> str:
        if queue not in self._queues and len(self._queues) >= _MAX_QUEUES:
            return _OTHER_QUEUES
        self._queues.add(queue)
        return queue

    def count_failures(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, BindFailed):
                self._binds.labels("failed").inc()
            elif isinstance(event, EvictFailed):
                self._evictions_failed.labels("budget" if event.refused_by else "other").inc()

    def set_shadow_report(self, report: ShadowReport) -> None:
        figures = {field.name: getattr(report, field.name) for field in fields(report) if field.name != "differences"}
        with self._render_lock:
            _replace_series(self._shadow, {(name,): float(value) for name, value in figures.items()})

    def update_gauges(self, world: World, rows: Iterable[QueueRow]) -> None:
        """Set the gauges of gangs, pods and queues after a cycle. A scrape sees all of them or none."""
        rows = list(rows)
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unplaced_members)
        codes = [verdict.code if verdict is not None and verdict.code else "none" for verdict in verdicts]
        queues = [world.facts.gangs[gang].queue for gang in world.placements.unplaced_members]
        waiting = CountOf(codes)
        with self._render_lock:
            _replace_series(self._gangs, {(code,): float(gangs) for code, gangs in waiting.items()})
            self._pods.set(sum(world.placements.unplaced_members.values()))
            self._active_reservations.labels("reserved").set(len(world.placements.reserved))
            self._active_reservations.labels("nominated").set(len(world.placements.reservations) - len(world.placements.reserved))
            self._update_queue_gauges(rows)
            shown = {row.queue for row in rows[:_MAX_QUEUES]}
            pending = CountOf((queue if queue in shown else _OTHER_QUEUES, code) for queue, code in zip(queues, codes, strict=True))
            _replace_series(self._pending, {key: float(gangs) for key, gangs in pending.items()})

    def _update_queue_gauges(self, rows: list[QueueRow]) -> None:
        """Of those that are first in the tree: each parent comes before its children, and its figures include theirs."""
        rows = rows[:_MAX_QUEUES]
        _replace_series(self._share, {(_queue_label(row),): row.share for row in rows})
        for field, gauge in self._queue_amounts.items():
            amounts = ((_queue_label(row), name, value) for row in rows for name, value in getattr(row, field))
            _replace_series(gauge, {(queue, name): _in_base_units(name, value) for queue, name, value in amounts})

    # -- registration ----------------------------------------------------------------------------------------------------------

    def _gauge(self, name: str, registry: CollectorRegistry | None = None) -> Gauge:
        metric = _BY_NAME[name]
        return Gauge(metric.name, metric.description, metric.labels, registry=registry or self.registry)

    def _counter(self, name: str, registry: CollectorRegistry | None = None) -> Counter:
        metric = _BY_NAME[name]
        return Counter(metric.name, metric.description, metric.labels, registry=registry or self.registry)

    def _histogram(
        self, name: str, registry: CollectorRegistry | None = None, buckets: tuple[float, ...] = _BUCKETS_S
    ) -> Histogram:
        metric = _BY_NAME[name]
        return Histogram(metric.name, metric.description, metric.labels, registry=registry or self.registry, buckets=buckets)


class _StateCollector(Collector):
    """Metrics that are read from the service when they are scraped."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        state = self._state
        yield _sample("leader", float(state.is_leader()))
        yield _sample("synced", float(state.is_synced()))
        yield _sample("last_iteration_age_seconds", state.loop_age_s())
        yield _sample("pending_writes", state.pending_writes())
        yield _sample("watch_backlog_objects", state.backlog())
        yield _sample("objects_ignored", state.objects_ignored())
        yield _sample("events_dropped_total", state.events_dropped())
        watches = {f"{kind}.{group}" if group else kind: health for (group, kind), health in state.health().items()}
        yield _labelled_samples("watch_event_age_seconds", {name: watch.silent_for_s() for name, watch in watches.items()})
        yield _labelled_samples("watch_events_total", {name: watch.events for name, watch in watches.items()})
        yield _labelled_samples("watch_relists_total", {name: watch.relists for name, watch in watches.items()})
        yield _labelled_samples("watch_disconnects_total", {name: watch.disconnects for name, watch in watches.items()})
        yield _labelled_samples("watch_forbidden", {name: float(watch.forbidden) for name, watch in watches.items()})


def _sample(name: str, value: float) -> Family:
    family = _family(_BY_NAME[name])
    family.add_metric([], value)
    return family


def _labelled_samples(name: str, values: Mapping[str, float]) -> Family:
    family = _family(_BY_NAME[name])
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _family(metric: MetricSpec) -> Family:
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return make(metric.name, metric.description, labels=metric.labels)


def _replace_series(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Set these series and remove all others."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


def _queue_label(row: QueueRow) -> str:
    return "root" if row.queue == ROOT_QUEUE else row.queue


def _in_base_units(resource: str, value: int) -> float:
    """Millicores as cores; everything else unchanged."""
    return value / 1000 if resource == "cpu" else float(value)
