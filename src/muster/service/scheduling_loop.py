"""The scheduler's thread: wait for news, decide, hand over. Where nothing happened and nothing is due, nothing is done."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from muster.engine.hooks import Policy
from muster.kube.watch.leader_election import boot_clock_s
from muster.kube.watch.live_cluster import LiveCluster
from muster.model.effects import Effect, Outcome
from muster.model.events import Event
from muster.rotating_decision_log import RollingLog
from muster.scenario.queue_report import queue_rows
from muster.scheduler import Scheduler, step
from muster.service.cycle_log import CycleLog
from muster.service.prometheus_metrics import Metrics

log = structlog.get_logger(__name__)

BUSY_INTERVAL_S: Final = 1.0
"""While claims are open or somebody is leaving, time alone may change what is to be done: look so often."""
IDLE_INTERVAL_S: Final = 5.0
"""So often when gangs only wait, and so often the loop shows that it is alive."""
_MIN_IDLE_RATIO = 20
"""A turn for which there was no news is not taken before so many times the last one's length: 5 % of a core at most."""
_METRICS_INTERVAL_S = 5.0
MAX_LOG_DELAY_S: Final = 10.0
"""Lines of the log are not held back for longer than this."""
_GC_THRESHOLD = 20_000
"""New objects before some are looked through for those that only know each other."""


class MonotonicClock:
    """The time of day, but for steps back: what was decided later must never be older."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._latest = 0.0

    def __call__(self) -> float:
        self._latest = max(self._latest, self._now())
        return self._latest


class SchedulingLoop:
    """The scheduler's thread: wait for news, decide, hand over. `on_end` is called there with what ended it, or None."""

    def __init__(
        self,
        cluster: LiveCluster,
        policy: Policy,
        metrics: Metrics,
        *,
        log: RollingLog | None,
        clock: Callable[[], float],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self.is_ready = False
        """Has a cycle been run on all that exists?"""
        self._cluster = cluster
        self._counting_cluster = _CountingCluster(cluster, metrics)
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._on_end = on_end
        self._cycle_log = CycleLog()
        self._unlogged: list[Outcome] = []
        self._stopping = threading.Event()
        self._iterated_at = boot_clock_s()
        self._scheduler = self._new_scheduler()
        self._last_cycle_s = 0.0
        self._metrics_updated_at = 0.0
        self._metrics_stale = False
        # A cycle that does not end must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="cycles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the turn that is under way, if any."""
        self._stopping.set()
        self._cluster.wake()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def age_s(self) -> float:
        return boot_clock_s() - self._iterated_at

    # -- in the thread ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._loop()
        except BaseException as broken:
            error = broken
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
        finally:
            self._log_all()

    def _sync(self) -> None:
        """All that exists is taken in before anything is decided."""
        began = boot_clock_s()
        while not self._stopping.is_set():
            synced = self._cluster.synced
            self._scheduler.feed(self._counting_cluster.events())
            self._iterated_at = boot_clock_s()
            if synced:
                break
            self._cluster.wait(0.2)
        if not self._stopping.is_set():
            # Done before anything is decided, since nothing else happens meanwhile, not even a write.
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
        has_news = self._cluster.wait(wait_s)
        self._iterated_at = boot_clock_s()
        if self._stopping.is_set():
            return
        if has_news or is_due:
            self._cycle()
        elif self._metrics_stale:
            self._update_metrics()
        if self._log is not None and self._log.is_full() and not self._cluster.pending_writes:
            self._start_new_log_file(self._log)

    def _next_wait(self) -> tuple[float, bool]:
        """How long to wait for news, and whether there is something to do then without any."""
        world, least_s = self._scheduler.world, _MIN_IDLE_RATIO * self._last_cycle_s
        if world.placements.reservations or world.placements.releasing or world.memory.plans or world.facts.reservation_notes:
            return max(BUSY_INTERVAL_S, least_s), True
        if not world.placements.unplaced_members:
            return IDLE_INTERVAL_S, False
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unplaced_members)
        due = min((verdict.at for verdict in verdicts if verdict is not None and verdict.at is not None), default=float("inf"))
        return max(min(IDLE_INTERVAL_S, due - self._clock()), BUSY_INTERVAL_S, least_s), True

    def _cycle(self) -> None:
        self._metrics.begin()
        outcome = step(self._scheduler, self._counting_cluster, self._clock())
        self._last_cycle_s = self._metrics.end(outcome)
        self._unlogged.append(outcome)
        self._metrics_stale = True
        if self._clock() - self._metrics_updated_at >= _METRICS_INTERVAL_S:
            self._update_metrics()

    def _log_if_idle(self) -> None:
        """Lines of the log wait for the writes, as all words do: a cycle may have thousands of both."""
        if self._unlogged and not (self._cluster.is_busy and self._clock() - self._unlogged[0].now < MAX_LOG_DELAY_S):
            self._log_all()

    def _log_all(self) -> None:
        for outcome in self._unlogged:
            self._cycle_log.write(outcome)
        self._unlogged.clear()

    def _update_metrics(self) -> None:
        """Figures for those who watch; they cost more than a quiet cycle does."""
        world = self._scheduler.world
        self._metrics.update_gauges(world, queue_rows(world, self._policy))
        self._metrics_updated_at, self._metrics_stale = self._clock(), False

    def _start_new_log_file(self, full: RollingLog) -> None:
        """A new file of the decision log begins with a new memory, so that it can be run again by itself."""
        facts = full.facts
        self._scheduler = self._new_scheduler()
        self._scheduler.feed(facts)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self._policy, log=self._log, on_step=self._metrics.on_step)


def _freeze_gc() -> None:
    """What is known now stays: nobody need look through all of it again and again. What comes later is looked through seldom: it
    has hardly any rings in it, and is let go of as soon as nobody knows it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


class _CountingCluster:
    """The cluster as the scheduler sees it, with somebody who counts what fails there."""

    def __init__(self, cluster: LiveCluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics

    def events(self) -> list[Event]:
        events = self._cluster.events()
        self._metrics.count_failures(events)
        return events

    def execute(self, effects: Iterable[Effect]) -> None:
        self._cluster.execute(effects)
