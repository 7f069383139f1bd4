"""The scheduling loop: wait for events, run a cycle, pass its effects to the writer. No events and no timeouts: no cycle."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from muster.cycle_log import CycleLog
from muster.engine.attempt_budget import DEFERRED
from muster.engine.hooks import Policy
from muster.kube.live_cluster import LiveCluster
from muster.kube.watch.leader_election import boot_clock_s
from muster.model.effects import Outcome
from muster.model.events import ClusterObject
from muster.queue_report import main_resource, queue_rows
from muster.rotating_decision_log import LatestObjects, RotatingDecisionLog
from muster.scheduler import Scheduler
from muster.service.prometheus_metrics import Metrics
from muster.service.shadow import Shadow, ShadowSettings
from muster.web.cluster_view import ClusterCopy, copy_cluster
from muster.web.run_history import RunHistory, first_bound

log = structlog.get_logger(__name__)

BUSY_INTERVAL_S: Final = 1.0
"""Interval of cycles while there are reservations, nominations or terminating pods: time alone may change what is decided."""
IDLE_INTERVAL_S: Final = 5.0
"""Interval of cycles while gangs only wait, and of iterations in any case, which show that the loop is alive."""
_MIN_IDLE_RATIO = 20
"""A cycle without events is delayed by this multiple of the last cycle's duration: 5 % of a core at most."""
_DEFERRED_RATIO, _DEFERRED_INTERVAL_S = 4, 0.05
"""The same while gangs wait for their turn, and at least this: they take a fifth of a core, and others' events are seen at once."""
_METRICS_INTERVAL_S = 5.0
MAX_LOOK_INTERVAL_S: Final = 20.0
"""The longest interval of looks in shadow mode, whatever one of them takes."""
_TRIM_INTERVAL_S = 20.0
MAX_LOG_DELAY_S: Final = 10.0
"""Log lines are delayed by no more than this while writes are pending."""
_GC_THRESHOLD = 20_000
"""Allocations before the garbage collector looks for reference cycles."""


class MonotonicClock:
    """The wall-clock time of the start plus what has passed since: a wall clock that is set neither ends a wait nor puts it off."""

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = boot_clock_s) -> None:
        self._elapsed = elapsed
        self._offset = wall() - elapsed()

    def __call__(self) -> float:
        return self._offset + self._elapsed()


class SchedulingLoop:
    """The thread that runs cycles. `on_end` is called in it with the exception that ended it, or None."""

    def __init__(
        self,
        cluster: LiveCluster,
        policy: Policy,
        metrics: Metrics,
        *,
        log: RotatingDecisionLog | None,
        clock: Callable[[], float],
        on_end: Callable[[BaseException | None], None],
        shadow: ShadowSettings | None = None,
    ) -> None:
        self.is_ready = False
        """Whether a first cycle was run after the caches were synced."""
        self._cluster = cluster
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._on_end = on_end
        self._shadow = None if shadow is None else Shadow(shadow, on_report=metrics.set_shadow_report)
        self._cycle_log = CycleLog()
        self._unlogged: list[Outcome] = []
        self._stopping = threading.Event()
        self._iterated_at = boot_clock_s()
        self._scheduler = self._new_scheduler()
        self._last_cycle_s = 0.0
        self._has_deferred = False
        self._metrics_updated_at = 0.0
        self._metrics_stale = False
        self._trimmed_at = 0.0
        self._between_cycles = threading.Lock()
        """Whoever has it may read the world: the loop itself while it runs, and readers while it waits."""
        self._history = RunHistory()
        self._objects = LatestObjects()
        self.cycles = 0
        """How many were run, whichever scheduler ran them."""
        # A daemon: a cycle that hangs must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name="cycles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current iteration."""
        self._stopping.set()
        self._cluster.wake()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def age_s(self) -> float:
        return boot_clock_s() - self._iterated_at

    # -- for readers, in any thread --------------------------------------------------------------------------------------------

    def copy(self) -> ClusterCopy:
        with self._between_cycles:
            return copy_cluster(self._scheduler.world, self._policy, self._history)

    def objects(self) -> tuple[list[ClusterObject], float, str]:
        """All objects of the cluster, the time of the last cycle, and the text of the policy."""
        with self._between_cycles:
            return self._objects.listed(), self._scheduler.world.now, self._policy.source

    def entries(self, gang: str) -> list[dict[str, Any]]:
        """What was decided about it."""
        return self._history.of_gang(gang)

    # -- in the thread ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._loop()
        except BaseException as caught:
            error = caught
        finally:
            if self._log is not None:
                self._log.close()
            self._on_end(error)

    def _loop(self) -> None:
        try:
            self._sync()
            while not self._stopping.is_set():
                self._log_if_idle()
                self._iterate()
            if self._shadow is not None:
                self._shadow.report(self._scheduler.world)
        finally:
            self._log_all()

    def _sync(self) -> None:
        """Read all objects before anything is decided."""
        began = boot_clock_s()
        while not self._stopping.is_set():
            synced = self._cluster.synced
            with self._between_cycles:
                self._take_events()
            self._iterated_at = boot_clock_s()
            if synced:
                break
            self._cluster.wait(0.2)
        if not self._stopping.is_set():
            # Before the first decision: a full collection blocks writes as well.
            _freeze_gc()
            self._cycle()
            self.is_ready = True
            world = self._scheduler.world
            log.info(
                "ready",
                after_s=round(boot_clock_s() - began, 2),
                nodes=len(world.facts.nodes),
                pods=len(world.facts.pods),
                gangs=len(world.facts.gangs),
            )

    def _iterate(self) -> None:
        wait_s, is_due = self._next_wait()
        if self._shadow is not None:
            # Each look attempts everybody anew, and nobody waits for it.
            self._stopping.wait(min(MAX_LOOK_INTERVAL_S, max(BUSY_INTERVAL_S, _MIN_IDLE_RATIO * self._last_cycle_s)))
        has_events = self._cluster.wait(wait_s)
        self._iterated_at = boot_clock_s()
        if self._stopping.is_set():
            return
        if has_events or is_due:
            self._cycle()
        elif self._metrics_stale:
            self._update_metrics()
        if self._log is not None and self._log.is_full() and not self._cluster.pending_writes:
            self._start_new_log_file(self._log)

    def _next_wait(self) -> tuple[float, bool]:
        """How long to wait for events, and whether a cycle is due after that without any."""
        world, min_wait_s = self._scheduler.world, _MIN_IDLE_RATIO * self._last_cycle_s
        if self._shadow is not None:
            return BUSY_INTERVAL_S, True
        if self._has_deferred:
            return max(_DEFERRED_INTERVAL_S, _DEFERRED_RATIO * self._last_cycle_s), True
        if world.placements.reservations or world.placements.releasing or world.memory.plans:
            return max(BUSY_INTERVAL_S, min_wait_s), True
        if not world.placements.unplaced_members:
            return IDLE_INTERVAL_S, False
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unplaced_members)
        due = min((verdict.at for verdict in verdicts if verdict is not None and verdict.at is not None), default=float("inf"))
        return max(min(IDLE_INTERVAL_S, due - self._clock()), BUSY_INTERVAL_S, min_wait_s), True

    def _cycle(self) -> None:
        self._metrics.begin()
        with self._between_cycles:
            self._take_events()
            outcome = self._decide(self._clock())
            for lost in self._history.record_evictions(self._scheduler.world, outcome):
                self._metrics.count_lost(lost.queue, lost.for_queue, lost.lost_gpu_hours)
            for gang in first_bound(self._scheduler.world, outcome):
                self._metrics.count_wait(gang.queue, max(0.0, outcome.now - gang.created))
            self.cycles += 1
        self._cluster.execute(outcome.effects)
        self._last_cycle_s = self._metrics.end(outcome)
        self._has_deferred = any(name == DEFERRED for name, _ in outcome.stats)
        self._unlogged.append(outcome)
        self._metrics_stale = True
        if self._clock() - self._metrics_updated_at >= _METRICS_INTERVAL_S:
            self._update_metrics()

    def _decide(self, now: float) -> Outcome:
        if self._shadow is None:
            return self._scheduler.tick(now)
        return self._shadow.look(self._scheduler, now, on_step=self._metrics.on_step)

    def _take_events(self) -> None:
        events = self._cluster.events()
        self._metrics.count_failures(events)
        self._objects.apply(events)
        self._scheduler.feed(events)

    def _log_if_idle(self) -> None:
        """Log lines are delayed while writes are pending, as status updates are: a cycle may have thousands of both."""
        if self._unlogged and not (self._cluster.is_busy and self._clock() - self._unlogged[0].now < MAX_LOG_DELAY_S):
            self._log_all()

    def _log_all(self) -> None:
        for outcome in self._unlogged:
            self._history.record_entries(outcome, self._cycle_log.write(outcome))
        self._unlogged.clear()

    def _update_metrics(self) -> None:
        """Update the gauges of queues and gangs, which costs more than a cycle without changes."""
        with self._between_cycles:
            world = self._scheduler.world
            rows = queue_rows(world, self._policy)
            self._metrics.update_gauges(world, rows)
            self._history.record_sample(
                world.now, rows, resource=main_resource(world), waiting=len(world.placements.unplaced_members)
            )
        self._metrics_updated_at, self._metrics_stale = self._clock(), False
        if boot_clock_s() - self._trimmed_at >= _TRIM_INTERVAL_S:
            _return_free_memory()
            self._trimmed_at = boot_clock_s()

    def _start_new_log_file(self, full: RotatingDecisionLog) -> None:
        """Start a new file of the decision log with a new scheduler, so that the file can be replayed by itself."""
        facts = full.facts
        with self._between_cycles:
            self._scheduler = self._new_scheduler()
            self._scheduler.feed(facts)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self._policy, log=self._log, on_step=self._metrics.on_step)


def _freeze_gc() -> None:
    """Exclude the objects read so far from garbage collection, and collect later ones rarely: they have hardly any reference cycles
    and are freed by their reference counts."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def _return_free_memory() -> None:
    """What a burst of events needed goes back to the system. The C library keeps it, where it has no better idea: a quarter of all
    after 2,000 pods that fit nowhere."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
