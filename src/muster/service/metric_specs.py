"""The metrics of a running scheduler: names, types, labels and help texts, after Prometheus' conventions.

docs/metrics.md has the same table; a test compares them. Names are without their prefix `muster_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PREFIX: Final = "muster_"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    kind: str
    labels: tuple[str, ...]
    description: str


def _gauge(name: str, *labels: str, description: str) -> MetricSpec:
    return MetricSpec(PREFIX + name, "gauge", labels, description)


def _counter(name: str, *labels: str, description: str) -> MetricSpec:
    return MetricSpec(PREFIX + name, "counter", labels, description)


def _histogram(name: str, *labels: str, description: str) -> MetricSpec:
    return MetricSpec(PREFIX + name, "histogram", labels, description)


METRICS: Final = (
    _gauge("build_info", "version", description="Always 1; the version is in the label."),
    _gauge("leader", description="1 while this replica holds the lease, or runs without leader election."),
    _gauge("synced", description="1 once all watched objects were listed and a first cycle was run."),
    _counter("cycles_total", description="Scheduling cycles. None is run without events or timeouts."),
    _histogram("cycle_duration_seconds", description="Duration of a cycle, from its events to its effects."),
    _histogram(
        "cycle_phase_duration_seconds",
        "phase",
        description="Duration of a phase of a cycle: events, recover, each action, commit.",
    ),
    _gauge(
        "last_iteration_age_seconds", description="Time since the scheduling loop last iterated. /healthz fails above 60 seconds."
    ),
    _gauge("queue_used", "queue", "resource", description="Resources used by a queue, in cores, bytes or devices."),
    _gauge("queue_deserved", "queue", "resource", description="Resources deserved by a queue, in the same units."),
    _gauge("queue_fair_share", "queue", "resource", description="Fair shares of a queue, in the same units."),
    _gauge("queue_past_use", "queue", "resource", description="Resources used by a queue on average before, in the same units."),
    _gauge("queue_limit", "queue", "resource", description="Limit of a queue, in the same units; nothing where there is none."),
    _gauge(
        "queue_guarantee", "queue", "resource", description="Guarantee of a queue, in the same units; nothing where there is none."
    ),
    _gauge(
        "queue_pending_gangs",
        "queue",
        "code",
        description="Gangs with members without a node, by queue and by the code of their last verdict; none: not attempted yet.",
    ),
    _histogram("gang_wait_seconds", "queue", description="Time from the creation of a gang to its first bind, by queue."),
    _counter(
        "lost_gpu_hours_total",
        "queue",
        "for_queue",
        description="GPU-hours lost by evictions, restarts included, by queue and by the queue that gains.",
    ),
    _gauge("queue_share", "queue", description="Share of a queue: the largest ratio of used to deserved over all resources."),
    _gauge(
        "pending_gangs",
        "code",
        description="Gangs with members without a node, by the code of their last verdict; none: not attempted yet.",
    ),
    _gauge("pending_pods", description="Pods without a node."),
    _counter(
        "decisions_total",
        "effect",
        description="Effects decided: bind, reserve, nominate, release, evict, cancel-eviction.",
    ),
    _counter("binds_total", "result", description="Binds accepted by the API server (ok), and binds that failed."),
    _counter(
        "evictions_total",
        "action",
        "method",
        description="Evictions decided, by action and method (delete, evict, soft).",
    ),
    _counter(
        "evictions_failed_total",
        "reason",
        description="Evictions refused by the API server: by a disruption budget (budget), or for another reason (other).",
    ),
    _gauge(
        "active_reservations", "phase", description="Pods that have a node reserved or nominated (phase) and are not bound yet."
    ),
    _counter(
        "reservations_total",
        "result",
        description="Reservations and nominations: made, bound, moved to another node, expired, lost, recovered after a restart.",
    ),
    _counter("gangs_timed_out_total", description="Gangs whose wait time expired."),
    _gauge(
        "shadow_report",
        "figure",
        description="Figures of the last report of shadow mode: gangs, evictions, hours of gangs and of GPUs.",
    ),
    _gauge("pending_writes", description="Writes that were decided and are not acknowledged by the API server yet."),
    _gauge("objects_ignored", description="Objects that cannot be decoded; the log names them."),
    _counter("events_dropped_total", description="Kubernetes Events that were not written because too many writes were pending."),
    _histogram(
        "api_request_duration_seconds",
        "verb",
        "resource",
        "status",
        description="Duration of API requests. Status 0: no response.",
    ),
    _gauge("watch_event_age_seconds", "resource", description="Time since the last event, bookmarks included, of a watch."),
    _counter("watch_events_total", "resource", description="Events received on a watch."),
    _counter("watch_relists_total", "resource", description="Times that a resource had to be listed again."),
    _counter("watch_disconnects_total", "resource", description="Watches that were disconnected."),
    _gauge("watch_forbidden", "resource", description="1 where the role does not allow to read a resource."),
    _gauge("watch_backlog_objects", description="Changed objects that the scheduler has not processed yet."),
)
