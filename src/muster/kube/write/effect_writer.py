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

from muster.kube.read.object_references import GroupKind, pod_ref
from muster.kube.watch.client import ApiError, Client
from muster.kube.write import event_recorder, patch_builder
from muster.kube.write.api_writer import WRITE_TIMEOUT_S, ApiWriter, NotLeading
from muster.kube.write.backoff import REPORT_BACKOFF, FailureBackoff
from muster.kube.write.event_recorder import EventRecorder
from muster.kube.write.keyed_queue import KeyedQueue, QueueEntry
from muster.kube.write.patch_builder import EvictionWrite, GangPods, ReservationEffect, WriteBatch
from muster.kube.write.pod_writes import EvictionRefusal, PodWriter
from muster.kube.write.status_writer import StatusWriter
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import Bind, CancelEviction, Effect, Evict, Release
from muster.model.events import BindFailed, Event, EvictFailed, ReservationFailed

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """How fast, and how patiently. `events_per_s` 0: no events are written."""

    pod_write_concurrency: int = 32
    status_write_concurrency: int = 8
    timeout_s: float = WRITE_TIMEOUT_S
    release_timeout_s: float = 10.0
    """Nobody waits longer than this for what comes before it in its round, evictions apart."""
    stall_timeout_s: float = 2.0
    """Words do not wait longer than this for deeds that get nowhere."""
    max_status_delay_s: float = 10.0
    """Nor longer than this for deeds that do."""
    volume_wait_s: float = 120.0
    events_per_s: float = 50.0


DEFAULT_WRITE_LIMITS = WriteLimits()


class EffectWriter:
    """`on_failure` is called in the event loop with what failed; `gang_pods` in the thread that submits, to know the
    members of a gang."""

    def __init__(
        self,
        client: Client,
        cache: WriteCache,
        *,
        on_failure: Callable[[Event], None],
        may_write: Callable[[], bool],
        gang_pods: GangPods,
        version_of: Callable[[GroupKind], str],
        now: Callable[[], float],
        limits: WriteLimits = DEFAULT_WRITE_LIMITS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._gathered = gang_pods
        self._limits = limits
        self._queue = KeyedQueue()
        self._failure_backoff = FailureBackoff(REPORT_BACKOFF)
        self.delayed_failures = 0
        """Failures that the scheduler has yet to be told of."""
        self._submitted: deque[tuple[WriteBatch, event_recorder.GangObjects]] = deque()
        """What was submitted, and was not begun with."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finished = 0
        """Deeds that came to an end."""
        self._binds: deque[tuple[Bind, QueueEntry]] = deque()
        """Those that nobody has begun with: there may be thousands, and each of them as a task would only wait."""
        self._blocked = 0
        """Tasks that wait for somebody else, who may take long."""
        self._idle = asyncio.Event()
        self._idle.set()

        def api_writer(concurrency: int) -> ApiWriter:
            return ApiWriter(
                client, version_of=version_of, may_write=may_write, concurrency=concurrency, timeout_s=limits.timeout_s
            )

        status_api_writer = api_writer(limits.status_write_concurrency)
        self._recorder = EventRecorder(status_api_writer, cache, now=now, per_second=limits.events_per_s)
        self._status_writer = StatusWriter(
            status_api_writer, cache, self._queue, now=now, until_idle=self._until_idle, concurrency=limits.status_write_concurrency
        )
        pending_patch = self._status_writer.pending_patch
        self._pod_writer = PodWriter(
            api_writer(limits.pod_write_concurrency),
            cache,
            now=now,
            volume_wait_s=limits.volume_wait_s,
            on_blocked=self._add_blocked,
            on_retry=self._start_bind_worker,
            pending_patch=pending_patch,
        )

    # -- in --------------------------------------------------------------------------------------------------------------------

    def submit(self, effects: Iterable[Effect]) -> None:
        """From any thread. Returns at once."""
        effects = tuple(effects)
        if effects:
            ordered = patch_builder.order_writes(effects, gang_pods=self._gathered)
            self._submitted.append((ordered, event_recorder.gang_objects(effects, gang_pods=self._gathered)))
            self._loop.call_soon_threadsafe(self._start_batch)

    async def run(self) -> None:
        """Speak when there is something to say, until cancelled."""
        await asyncio.gather(self._status_writer.run(), self._recorder.run(until_idle=self._until_flushed))

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
        return self._queued_pod_writes() + len(self._tasks) + self._status_writer.pending

    @property
    def active_writes(self) -> int:
        """Deeds that are under way or will be as soon as others are done, those left aside that wait for somebody else."""
        return self._queued_pod_writes() + len(self._tasks) - self._blocked

    def _queued_pod_writes(self) -> int:
        return len(self._binds) + sum(one.size for one, _ in tuple(self._submitted))

    @property
    def events_dropped(self) -> int:
        return self._recorder.dropped

    # -- one round -------------------------------------------------------------------------------------------------------------

    def _start_batch(self) -> None:
        ordered, gang_objects = self._submitted.popleft()
        # Places are taken now, all at once: what a later round writes onto a pod comes after what this one does.
        cancellations = [(one, self._queue.enqueue(pod_ref(one.pod))) for one in ordered.cancellations]
        releases = [(one, self._queue.enqueue(pod_ref(one.pod))) for one in ordered.releases]
        placements = [(one, self._queue.enqueue(pod_ref(one.pod))) for one in ordered.placements]
        evictions = [(one, self._queue.enqueue(pod_ref(one.effect.pod))) for one in ordered.evictions]
        if cancellations or releases or placements or evictions:
            self._spawn(self._write_batch(cancellations, releases, placements, evictions, gang_objects))
        self._status_writer.add(ordered.status_updates)
        self._recorder.add(event_recorder.refusal_events(ordered.status_updates, gang_objects))

    async def _write_batch(
        self,
        cancellations: list[tuple[CancelEviction, QueueEntry]],
        releases: list[tuple[Release, QueueEntry]],
        placements: list[tuple[Bind | ReservationEffect, QueueEntry]],
        evictions: list[tuple[EvictionWrite, QueueEntry]],
        gang_objects: event_recorder.GangObjects,
    ) -> None:
        for some in (cancellations, releases):
            first = [self._spawn(self._release(one, entry)) for one, entry in some]
            if first:
                # One that still goes on does no harm: what it leaves behind is judged anew after a restart.
                await asyncio.wait(first, timeout=self._limits.release_timeout_s)
        claims: dict[str, asyncio.Task[bool]] = {}
        for one, entry in placements:
            if isinstance(one, Bind):
                self._binds.append((one, entry))
            else:
                claims[one.uid] = self._spawn(self._reserve(one, entry))
        for _ in range(self._limits.pod_write_concurrency):
            self._start_bind_worker()
        for eviction, entry in evictions:
            without_pods = [claims[uid] for uid in eviction.after]
            self._spawn(self._evict(eviction.effect, entry, claims=without_pods, gang_objects=gang_objects))

    async def _release(self, effect: Release | CancelEviction, entry: QueueEntry) -> None:
        async with entry:
            done = await _or_error(lambda: self._pod_writer.release(effect), on_error=lambda _: False)
        if done:
            self._recorder.add_effect(effect)

    def _start_bind_worker(self) -> None:
        """One more who binds, one pod after the other, while there are any. Whoever has to wait for something calls another."""
        if self._binds:
            self._spawn(self._bind_worker())

    async def _bind_worker(self) -> None:
        while self._binds:
            effect, entry = self._binds.popleft()
            if entry.must_wait or effect.volumes:
                # It will wait, perhaps for long.
                self._spawn(self._bind(effect, entry))
            else:
                # Where we may not write any more, the others are let go of in the same way.
                with contextlib.suppress(NotLeading):
                    await self._bind(effect, entry)
                self._finished += 1

    async def _bind(self, effect: Bind, entry: QueueEntry) -> None:
        async with entry:
            why = await _or_error(
                lambda: self._pod_writer.bind(effect), on_error=lambda said: f"pod {effect.pod} was not bound: {said}"
            )
        if why:
            self._report_failure(BindFailed(effect.uid, effect.node, why))
        else:
            self._failure_backoff.clear(BindFailed, effect.uid)
            self._recorder.add_effect(effect)

    async def _reserve(self, effect: ReservationEffect, entry: QueueEntry) -> bool:
        """Is it written?"""
        async with entry:
            why = await _or_error(lambda: self._pod_writer.reserve(effect), on_error=lambda said: said)
        if why:
            self._report_failure(ReservationFailed(effect.uid, effect.node, effect.since, why))
        else:
            self._failure_backoff.clear(ReservationFailed, effect.uid)
            self._recorder.add_effect(effect)
        return not why

    def _report_failure(self, failed: BindFailed | ReservationFailed) -> None:
        if delay_s := self._failure_backoff.delay_s(failed):
            self.delayed_failures += 1
            self._loop.call_later(delay_s, self._report_delayed, failed)
        else:
            self._on_failure(failed)

    def _report_delayed(self, failed: BindFailed | ReservationFailed) -> None:
        self.delayed_failures -= 1
        self._on_failure(failed)

    async def _evict(
        self, effect: Evict, entry: QueueEntry, *, claims: list[asyncio.Task[bool]], gang_objects: event_recorder.GangObjects
    ) -> None:
        async with entry:
            missing = (await asyncio.gather(*claims)).count(False)
            if missing:
                why = f"{missing} of {len(claims)} claims for {effect.for_gang} could not be written"
                refusal: EvictionRefusal | None = EvictionRefusal(f"pod {effect.pod} was not evicted: {why}")
            else:
                refusal = await _or_error(lambda: self._pod_writer.evict(effect), on_error=EvictionRefusal)
        if refusal is None:
            self._recorder.add(event_recorder.eviction_events(effect, gang_objects))
        else:
            self._on_failure(EvictFailed(effect.uid, refusal.why, refusal.budget))

    # -- keeping count ---------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._task_done)
        return task

    def _add_blocked(self, more: int) -> None:
        self._blocked += more
        self._update_idle()

    def _update_idle(self) -> None:
        if len(self._tasks) > self._blocked or self._binds:
            self._idle.clear()
        else:
            self._idle.set()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._finished += 1
        self._update_idle()
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, NotLeading):
            return
        log.error("a write broke off", exc_info=error)
        self._start_bind_worker()

    async def _until_idle(self) -> None:
        """Until no deed is under way, or for as long as words have patience: longer where deeds get done than where none does."""
        until = self._loop.time() + self._limits.max_status_delay_s
        done = -1
        while not self._idle.is_set() and self._finished != done and self._loop.time() < until:
            done = self._finished
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, self._loop.time() + self._limits.stall_timeout_s)):
                    await self._idle.wait()

    async def _until_flushed(self) -> None:
        """The same for those who speak last."""
        await self._until_idle()
        await self._status_writer.flush(timeout_s=self._limits.stall_timeout_s)


async def _or_error(work: Callable[[], Awaitable[T]], *, on_error: Callable[[str], T]) -> T:
    """Whatever goes wrong with one deed is a sentence, and the others go on."""
    try:
        return await work()
    except NotLeading:
        raise
    except ApiError as error:
        log.warning("the API server refused a write", error=str(error))
        return on_error(str(error))
    except Exception as error:
        log.exception("a write failed")
        return on_error(f"{type(error).__name__}: {error}")
