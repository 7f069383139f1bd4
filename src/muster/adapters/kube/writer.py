"""Carries out what cycles decided, on a real cluster: in order, at the same time where order does not matter, and never twice.

A round is what one cycle decided. Whoever may stay is told first, then claims end, then come binds and claims, then the evictions
of each plan, once all claims of that plan are written. Words (conditions, statuses, events) wait until nobody else writes. Rounds
may overlap; writes onto one object never do. What fails comes back as an event, and no failure stops anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from muster.adapters.kube import events, scribe
from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.deeds import Deeds, Refusal
from muster.adapters.kube.events import Recorder
from muster.adapters.kube.lanes import Lanes, Place
from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.refs import KindKey, pod_ref
from muster.adapters.kube.scribe import Claim, Eviction, Gather, Round
from muster.adapters.kube.sender import WRITE_TIMEOUT_S, NotLeading, Sender
from muster.adapters.kube.tries import NEWS, Setbacks
from muster.adapters.kube.words import Words
from muster.model.effects import Bind, Effect, Evict, Release, Spare
from muster.model.events import BindFailed, ClaimFailed, Event, EvictFailed

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast, and how patiently. `events_per_s` 0: no events are written."""

    deeds_at_once: int = 32
    words_at_once: int = 8
    timeout_s: float = WRITE_TIMEOUT_S
    release_s: float = 10.0
    """Nobody waits longer than this for what comes before it in its round, evictions apart."""
    patience_s: float = 2.0
    """Words do not wait longer than this for deeds that get nowhere."""
    silence_s: float = 10.0
    """Nor longer than this for deeds that do."""
    volume_wait_s: float = 120.0
    events_per_s: float = 50.0


DEFAULT_PACE = Pace()


class Writer:
    """`tell` is called in the event loop with what failed; `gathered` in the thread that submits, to know who is in a gang."""

    def __init__(
        self,
        client: Client,
        mirror: Mirror,
        *,
        tell: Callable[[Event], None],
        may_write: Callable[[], bool],
        gathered: Gather,
        version_of: Callable[[KindKey], str],
        now: Callable[[], float],
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tell = tell
        self._gathered = gathered
        self._pace = pace
        self._lanes = Lanes()
        self._setbacks = Setbacks(NEWS)
        self.withheld = 0
        """Failures that the scheduler has yet to be told of."""
        self._handed_over: deque[tuple[Round, events.Faces]] = deque()
        """What was submitted, and was not begun with."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._done = 0
        """Deeds that came to an end."""
        self._binds: deque[tuple[Bind, Place]] = deque()
        """Those that nobody has begun with: there may be thousands, and each of them as a task would only wait."""
        self._resting = 0
        """Tasks that wait for somebody else, who may take long."""
        self._idle = asyncio.Event()
        self._idle.set()

        def sender(at_once: int) -> Sender:
            return Sender(client, version_of=version_of, may_write=may_write, concurrency=at_once, timeout_s=pace.timeout_s)

        calm = sender(pace.words_at_once)
        self._recorder = Recorder(calm, mirror, now=now, per_second=pace.events_per_s)
        self._words = Words(calm, mirror, self._lanes, now=now, quiet=self._quiet, at_once=pace.words_at_once)
        beside = self._words.beside
        self._deeds = Deeds(
            sender(pace.deeds_at_once),
            mirror,
            now=now,
            volume_wait_s=pace.volume_wait_s,
            rests=self._rest,
            pauses=self._lend_a_hand,
            beside=beside,
        )

    # -- in --------------------------------------------------------------------------------------------------------------------

    def submit(self, effects: Iterable[Effect]) -> None:
        """From any thread. Returns at once."""
        effects = tuple(effects)
        if effects:
            ordered = scribe.staged(effects, gathered=self._gathered)
            self._handed_over.append((ordered, events.faces(effects, gathered=self._gathered)))
            self._loop.call_soon_threadsafe(self._begin)

    async def run(self) -> None:
        """Speak when there is something to say, until cancelled."""
        await asyncio.gather(self._words.run(), self._recorder.run(quiet=self._still))

    async def drain(self, *, timeout_s: float) -> bool:
        """Until all that was submitted is done, events left aside; False where that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop at once, whatever is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def pending(self) -> int:
        """Deeds that are not done, and objects of which something is still to be said."""
        return self._deeds_ahead() + len(self._tasks) + self._words.pending

    @property
    def busy_with(self) -> int:
        """Deeds that are under way or will be as soon as others are done, those left aside that wait for somebody else."""
        return self._deeds_ahead() + len(self._tasks) - self._resting

    def _deeds_ahead(self) -> int:
        return len(self._binds) + sum(one.size for one, _ in tuple(self._handed_over))

    @property
    def events_dropped(self) -> int:
        return self._recorder.dropped

    # -- one round -------------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        ordered, faces = self._handed_over.popleft()
        # Places are taken now, all at once: what a later round writes onto a pod comes after what this one does.
        spares = [(one, self._lanes.place(pod_ref(one.pod))) for one in ordered.spares]
        releases = [(one, self._lanes.place(pod_ref(one.pod))) for one in ordered.releases]
        deeds = [(one, self._lanes.place(pod_ref(one.pod))) for one in ordered.deeds]
        evictions = [(one, self._lanes.place(pod_ref(one.effect.pod))) for one in ordered.evictions]
        if spares or releases or deeds or evictions:
            self._start(self._carry_out(spares, releases, deeds, evictions, faces))
        self._words.add(ordered.words)
        self._recorder.add(events.of_words(ordered.words, faces))

    async def _carry_out(
        self,
        spares: list[tuple[Spare, Place]],
        releases: list[tuple[Release, Place]],
        deeds: list[tuple[Bind | Claim, Place]],
        evictions: list[tuple[Eviction, Place]],
        faces: events.Faces,
    ) -> None:
        for some in (spares, releases):
            first = [self._start(self._release(one, place)) for one, place in some]
            if first:
                # One that still goes on does no harm: what it leaves behind is judged anew after a restart.
                await asyncio.wait(first, timeout=self._pace.release_s)
        claims: dict[str, asyncio.Task[bool]] = {}
        for one, place in deeds:
            if isinstance(one, Bind):
                self._binds.append((one, place))
            else:
                claims[one.uid] = self._start(self._claim(one, place))
        for _ in range(self._pace.deeds_at_once):
            self._lend_a_hand()
        for eviction, place in evictions:
            awaited = [claims[uid] for uid in eviction.after]
            self._start(self._evict(eviction.effect, place, claims=awaited, faces=faces))

    async def _release(self, effect: Release | Spare, place: Place) -> None:
        async with place:
            done = await _tried(lambda: self._deeds.release(effect), otherwise=lambda _: False)
        if done:
            self._recorder.add_deed(effect)

    def _lend_a_hand(self) -> None:
        """One more who binds, one pod after the other, while there are any. Whoever has to wait for something calls another."""
        if self._binds:
            self._start(self._bind_some())

    async def _bind_some(self) -> None:
        while self._binds:
            effect, place = self._binds.popleft()
            if place.has_to_wait or effect.volumes:
                # It will wait, perhaps for long.
                self._start(self._bind(effect, place))
            else:
                # Where we may not write any more, the others are let go of in the same way.
                with contextlib.suppress(NotLeading):
                    await self._bind(effect, place)
                self._done += 1

    async def _bind(self, effect: Bind, place: Place) -> None:
        async with place:
            why = await _tried(lambda: self._deeds.bind(effect), otherwise=lambda said: f"pod {effect.pod} was not bound: {said}")
        if why:
            self._break_news(BindFailed(effect.uid, effect.node, why))
        else:
            self._setbacks.clear(BindFailed, effect.uid)
            self._recorder.add_deed(effect)

    async def _claim(self, effect: Claim, place: Place) -> bool:
        """Is it written?"""
        async with place:
            why = await _tried(lambda: self._deeds.claim(effect), otherwise=lambda said: said)
        if why:
            self._break_news(ClaimFailed(effect.uid, effect.node, effect.since, why))
        else:
            self._setbacks.clear(ClaimFailed, effect.uid)
            self._recorder.add_deed(effect)
        return not why

    def _break_news(self, failed: BindFailed | ClaimFailed) -> None:
        if pause_s := self._setbacks.pause_s(failed):
            self.withheld += 1
            self._loop.call_later(pause_s, self._tell_late, failed)
        else:
            self._tell(failed)

    def _tell_late(self, failed: BindFailed | ClaimFailed) -> None:
        self.withheld -= 1
        self._tell(failed)

    async def _evict(self, effect: Evict, place: Place, *, claims: list[asyncio.Task[bool]], faces: events.Faces) -> None:
        async with place:
            missing = (await asyncio.gather(*claims)).count(False)
            if missing:
                why = f"{missing} of {len(claims)} claims for {effect.for_gang} could not be written"
                refusal: Refusal | None = Refusal(f"pod {effect.pod} was not evicted: {why}")
            else:
                refusal = await _tried(lambda: self._deeds.evict(effect), otherwise=Refusal)
        if refusal is None:
            self._recorder.add(events.of_eviction(effect, faces))
        else:
            self._tell(EvictFailed(effect.uid, refusal.why, refusal.by))

    # -- keeping count ---------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._end)
        return task

    def _rest(self, more: int) -> None:
        self._resting += more
        self._judge()

    def _judge(self) -> None:
        if len(self._tasks) > self._resting or self._binds:
            self._idle.clear()
        else:
            self._idle.set()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._done += 1
        self._judge()
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, NotLeading):
            return
        log.error("a write broke off", exc_info=error)
        self._lend_a_hand()

    async def _quiet(self) -> None:
        """Until no deed is under way, or for as long as words have patience: longer where deeds get done than where none does."""
        until = self._loop.time() + self._pace.silence_s
        done = -1
        while not self._idle.is_set() and self._done != done and self._loop.time() < until:
            done = self._done
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, self._loop.time() + self._pace.patience_s)):
                    await self._idle.wait()

    async def _still(self) -> None:
        """The same for those who speak last."""
        await self._quiet()
        await self._words.said(timeout_s=self._pace.patience_s)


async def _tried(work: Callable[[], Awaitable[T]], *, otherwise: Callable[[str], T]) -> T:
    """Whatever goes wrong with one deed is a sentence, and the others go on."""
    try:
        return await work()
    except NotLeading:
        raise
    except ApiError as error:
        log.warning("the API server refused a write", error=str(error))
        return otherwise(str(error))
    except Exception as error:
        log.exception("a write failed")
        return otherwise(f"{type(error).__name__}: {error}")
