"""The scheduler's thread: wait for news, decide, hand over. Where nothing happened and nothing is due, nothing is done."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from muster.adapters.kube.leader import steady_s
from muster.adapters.kube.live import LiveCluster
from muster.adapters.rolling import RollingLog
from muster.engine.hooks import Policy
from muster.model.effects import Effect, Outcome
from muster.model.events import Event
from muster.runtime import Scheduler, step
from muster.scenario.queue_rows import queue_rows
from muster.serving.journal import Journal
from muster.serving.metrics import Metrics

log = structlog.get_logger(__name__)

BUSY_TURN_S: Final = 1.0
"""While claims are open or somebody is leaving, time alone may change what is to be done: look so often."""
QUIET_TURN_S: Final = 5.0
"""So often when gangs only wait, and so often the loop shows that it is alive."""
_LEISURE = 20
"""A turn for which there was no news is not taken before so many times the last one's length: 5 % of a core at most."""
_LOOK_S = 5.0
SILENCE_S: Final = 10.0
"""Lines of the log are not held back for longer than this."""
_YOUNG = 20_000
"""New objects before some are looked through for those that only know each other."""


class Clock:
    """The time of day, but for steps back: what was decided later must never be older."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._latest = 0.0

    def __call__(self) -> float:
        self._latest = max(self._latest, self._now())
        return self._latest


class Turns:
    """The scheduler's thread: wait for news, decide, hand over. `ended` is called there with what ended it, or None."""

    def __init__(
        self,
        cluster: LiveCluster,
        policy: Policy,
        metrics: Metrics,
        *,
        log: RollingLog | None,
        clock: Callable[[], float],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self.is_ready = False
        """Has a cycle been run on all that exists?"""
        self._cluster = cluster
        self._counted = _Counted(cluster, metrics)
        self._policy = policy
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._ended = ended
        self._journal = Journal()
        self._unsaid: list[Outcome] = []
        self._stopping = threading.Event()
        self._turned_at = steady_s()
        self._scheduler = self._memory()
        self._took_s = 0.0
        self._looked_at = 0.0
        self._is_unlooked = False
        # A cycle that does not end must not keep the process from ending.
        self._thread = threading.Thread(target=self._live, name="cycles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the turn that is under way, if any."""
        self._stopping.set()
        self._cluster.wake()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def age_s(self) -> float:
        return steady_s() - self._turned_at

    # -- in the thread ---------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        error: BaseException | None = None
        try:
            self._take_turns()
        except BaseException as broken:
            error = broken
        finally:
            if self._log is not None:
                self._log.close()
            self._ended(error)

    def _take_turns(self) -> None:
        try:
            self._gather()
            while not self._stopping.is_set():
                self._speak()
                self._turn()
        finally:
            self._say_all()

    def _gather(self) -> None:
        """All that exists is taken in before anything is decided."""
        began = steady_s()
        while not self._stopping.is_set():
            synced = self._cluster.synced
            self._scheduler.feed(self._counted.events())
            self._turned_at = steady_s()
            if synced:
                break
            self._cluster.wait(0.2)
        if not self._stopping.is_set():
            # Done before anything is decided, since nothing else happens meanwhile, not even a write.
            _settle_memory()
            self._cycle()
            self.is_ready = True
            world = self._scheduler.world
            log.info(
                "ready",
                after_s=round(steady_s() - began, 2),
                nodes=len(world.facts.nodes),
                pods=len(world.facts.pods),
                gangs=len(world.facts.gangs),
            )

    def _turn(self) -> None:
        wait_s, is_due = self._outlook()
        has_news = self._cluster.wait(wait_s)
        self._turned_at = steady_s()
        if self._stopping.is_set():
            return
        if has_news or is_due:
            self._cycle()
        elif self._is_unlooked:
            self._look()
        if self._log is not None and self._log.is_full() and not self._cluster.pending_writes:
            self._begin_anew(self._log)

    def _outlook(self) -> tuple[float, bool]:
        """How long to wait for news, and whether there is something to do then without any."""
        world, least_s = self._scheduler.world, _LEISURE * self._took_s
        if world.placements.claims or world.placements.going or world.memory.plans or world.facts.notes:
            return max(BUSY_TURN_S, least_s), True
        if not world.placements.unseated:
            return QUIET_TURN_S, False
        verdicts = (world.memory.attempts[gang].verdict for gang in world.placements.unseated)
        due = min((verdict.at for verdict in verdicts if verdict is not None and verdict.at is not None), default=float("inf"))
        return max(min(QUIET_TURN_S, due - self._clock()), BUSY_TURN_S, least_s), True

    def _cycle(self) -> None:
        self._metrics.begin()
        outcome = step(self._scheduler, self._counted, self._clock())
        self._took_s = self._metrics.end(outcome)
        self._unsaid.append(outcome)
        self._is_unlooked = True
        if self._clock() - self._looked_at >= _LOOK_S:
            self._look()

    def _speak(self) -> None:
        """Lines of the log wait for the writes, as all words do: a cycle may have thousands of both."""
        if self._unsaid and not (self._cluster.is_busy and self._clock() - self._unsaid[0].now < SILENCE_S):
            self._say_all()

    def _say_all(self) -> None:
        for outcome in self._unsaid:
            self._journal.note(outcome)
        self._unsaid.clear()

    def _look(self) -> None:
        """Figures for those who watch; they cost more than a quiet cycle does."""
        world = self._scheduler.world
        self._metrics.look(world, queue_rows(world, self._policy))
        self._looked_at, self._is_unlooked = self._clock(), False

    def _begin_anew(self, full: RollingLog) -> None:
        """A new file of the decision log begins with a new memory, so that it can be run again by itself."""
        facts = full.facts
        self._scheduler = self._memory()
        self._scheduler.feed(facts)

    def _memory(self) -> Scheduler:
        return Scheduler(self._policy, log=self._log, enter=self._metrics.enter)


def _settle_memory() -> None:
    """What is known now stays: nobody need look through all of it again and again. What comes later is looked through seldom: it
    has hardly any rings in it, and is let go of as soon as nobody knows it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)


class _Counted:
    """The cluster as the scheduler sees it, with somebody who counts what fails there."""

    def __init__(self, cluster: LiveCluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics

    def events(self) -> list[Event]:
        events = self._cluster.events()
        self._metrics.heard(events)
        return events

    def execute(self, effects: Iterable[Effect]) -> None:
        self._cluster.execute(effects)
