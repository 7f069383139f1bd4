"""Carries out the effects of cycles on a real cluster: in the order of `write_order`, concurrently within a stage, and never twice.

A batch is what one cycle decided. Status updates and Kubernetes events wait until no effect on a pod is in flight. Batches may
overlap; writes onto one object never do. What fails comes back as an event, and no failure stops other writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from muster.kube.read import names
from muster.kube.read.object_references import GroupKind
from muster.kube.watch.client import Client
from muster.kube.write import event_recorder
from muster.kube.write.api_writer import WRITE_TIMEOUT_S, ApiWriter, NotLeading
from muster.kube.write.backoff import FailureBackoff
from muster.kube.write.effect_writes import PLAN_NOT_SAVED, EffectWrites, FailureEvent, WrittenEffect, failure_event
from muster.kube.write.event_recorder import EventRecorder, GangObjects
from muster.kube.write.keyed_queue import KeyedQueue, QueueEntry
from muster.kube.write.pod_writes import PodWriter
from muster.kube.write.status_updates import GangPods
from muster.kube.write.status_writer import StatusWriter
from muster.kube.write.write_cache import WriteCache
from muster.kube.write.write_order import EffectWrite, WriteBatch, order_writes
from muster.model.effects import Bind, Effect, PodEffect, SavePlan
from muster.model.events import Event

log = structlog.get_logger(__name__)

T = TypeVar("T")

QueuedWrite = tuple[EffectWrite, QueueEntry]


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Concurrency and timeouts. `events_per_s` 0: no Kubernetes events are written."""

    pod_write_concurrency: int = 32
    status_write_concurrency: int = 8
    timeout_s: float = WRITE_TIMEOUT_S
    release_timeout_s: float = 10.0
    """The longest wait of a stage for the stage before it."""
    stall_timeout_s: float = 2.0
    """The longest wait of status updates while no effect on a pod completes."""
    max_status_delay_s: float = 10.0
    """The longest wait of status updates in any case."""
    volume_wait_s: float = 120.0
    events_per_s: float = 50.0


DEFAULT_WRITE_LIMITS = WriteLimits()
_POLL_S = 0.01


class EffectWriter:
    """`on_failure` is called in the event loop with what failed; `gang_pods` in the thread that submits."""

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
        namespace: str = names.MUSTER_NAMESPACE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._gang_pods = gang_pods
        self._limits = limits
        self._queue = KeyedQueue()
        self._failure_backoff = FailureBackoff()
        self.delayed_failures = 0
        """Failures that are not reported yet."""
        self._submitted: deque[tuple[WriteBatch, GangObjects]] = deque()
        """Batches that are not started yet."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finished = 0
        """Effects that were carried out or failed."""
        self._binds: deque[tuple[Bind, QueueEntry]] = deque()
        """Binds that are not started yet: there may be thousands, and each of them as a task would only wait."""
        self._blocked = 0
        """Tasks that wait for other controllers."""

        def api_writer(concurrency: int) -> ApiWriter:
            return ApiWriter(
                client,
                cache,
                version_of=version_of,
                may_write=may_write,
                concurrency=concurrency,
                timeout_s=limits.timeout_s,
            )

        status_api_writer = api_writer(limits.status_write_concurrency)
        self._recorder = EventRecorder(status_api_writer, cache, now=now, per_second=limits.events_per_s)
        self._status_writer = StatusWriter(
            status_api_writer, cache, self._queue, now=now, until_idle=self._until_idle, concurrency=limits.status_write_concurrency
        )
        self._effect_writes = EffectWrites(cache, now=now, pending_status=self._status_writer.pending_patch, namespace=namespace)
        self._pod_writer = PodWriter(
            api_writer(limits.pod_write_concurrency),
            self._effect_writes,
            volume_wait_s=limits.volume_wait_s,
            on_blocked=self._add_blocked,
            on_retry=self._start_bind_worker,
        )

    # -- submitting ------------------------------------------------------------------------------------------------------------

    def submit(self, effects: Iterable[Effect]) -> None:
        """From any thread. Returns at once."""
        effects = tuple(effects)
        if effects:
            batch = order_writes(effects, gang_pods=self._gang_pods)
            self._submitted.append((batch, event_recorder.gang_objects(effects, gang_pods=self._gang_pods)))
            self._loop.call_soon_threadsafe(self._start_batch)

    async def run(self) -> None:
        """Write status updates and Kubernetes events, until cancelled."""
        await asyncio.gather(self._status_writer.run(), self._recorder.run(until_idle=self._until_flushed))

    async def drain(self, *, timeout_s: float) -> bool:
        """Until all that was submitted is written, Kubernetes events apart; False at the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Cancel all that is in flight."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def pending(self) -> int:
        """Effects on pods that are not carried out, and objects with pending status updates."""
        return self._queued_pod_writes() + len(self._tasks) + self._status_writer.pending

    @property
    def active_writes(self) -> int:
        """Effects on pods that are in flight or queued, without those that wait for other controllers."""
        return self._queued_pod_writes() + len(self._tasks) - self._blocked

    def _queued_pod_writes(self) -> int:
        return len(self._binds) + sum(batch.size for batch, _ in tuple(self._submitted))

    @property
    def events_dropped(self) -> int:
        return self._recorder.dropped

    # -- one batch -------------------------------------------------------------------------------------------------------------

    def _start_batch(self) -> None:
        batch, gang_objects = self._submitted.popleft()
        # Entries are queued now, all at once: what a later batch writes onto a pod comes after what this one does.
        stages = [[(one, self._queue.enqueue(self._effect_writes.target(one.effect))) for one in stage] for stage in batch.stages]
        if stages:
            self._spawn(self._write_batch(stages, gang_objects))
        self._status_writer.add(batch.status_writes)
        self._recorder.add(event_recorder.refusal_events(batch.status_writes, gang_objects))

    async def _write_batch(self, stages: list[list[QueuedWrite]], gang_objects: GangObjects) -> None:
        *earlier, last = stages
        saving: dict[str, asyncio.Task[bool]] = {}
        for stage in earlier:
            # A write that takes longer does no harm: what it leaves behind is recovered after a restart.
            await asyncio.wait(self._start_stage(stage, gang_objects, saving), timeout=self._limits.release_timeout_s)
        self._start_stage(last, gang_objects, saving)

    def _start_stage(
        self, stage: list[QueuedWrite], gang_objects: GangObjects, saving: dict[str, asyncio.Task[bool]]
    ) -> list[asyncio.Task[bool]]:
        """The tasks of the stage; binds are queued for the bind workers. `saving`: those that save plans, by gang."""
        tasks: list[asyncio.Task[bool]] = []
        for (effect, plans), entry in stage:
            if isinstance(effect, Bind):
                self._binds.append((effect, entry))
                if len(self._binds) <= self._limits.pod_write_concurrency:
                    self._start_bind_worker()
            else:
                saved = [saving[gang] for gang in plans if gang in saving]
                tasks.append(self._spawn(self._carry_out(effect, entry, gang_objects=gang_objects, saved=saved)))
                if isinstance(effect, SavePlan):
                    saving[effect.plan.gang] = tasks[-1]
        return tasks

    def _start_bind_worker(self) -> None:
        """A worker binds one pod after the other. One that has to wait starts another in its place."""
        if self._binds:
            self._spawn(self._bind_worker())

    async def _bind_worker(self) -> None:
        while self._binds:
            effect, entry = self._binds.popleft()
            if entry.must_wait or effect.volumes:
                # A task of its own: it may wait long.
                self._spawn(self._carry_out(effect, entry))
            else:
                # After the lease is lost, each of the others fails in the same way.
                with contextlib.suppress(NotLeading):
                    await self._carry_out(effect, entry)
                self._finished += 1

    async def _carry_out(
        self,
        effect: WrittenEffect,
        entry: QueueEntry,
        *,
        gang_objects: GangObjects = event_recorder.NO_GANG_OBJECTS,
        saved: Sequence[asyncio.Task[bool]] = (),
    ) -> bool:
        """Is it done? `saved` are the tasks of the plans that have to be saved first."""
        async with entry:
            is_saved = all([await one for one in saved])
            failed = await self._pod_writer.carry_out(effect) if is_saved else PLAN_NOT_SAVED
        if failed is None:
            self._failure_backoff.clear(effect)
            if isinstance(effect, PodEffect):
                self._recorder.add_effect(effect, gang_objects)
        elif (event := failure_event(effect, failed)) is not None:
            self._report_failure(event)
        return failed is None

    def _report_failure(self, failed: FailureEvent) -> None:
        if delay_s := self._failure_backoff.delay_s(failed):
            self.delayed_failures += 1
            self._loop.call_later(delay_s, self._report_delayed, failed)
        else:
            self._on_failure(failed)

    def _report_delayed(self, failed: FailureEvent) -> None:
        self.delayed_failures -= 1
        self._on_failure(failed)

    # -- tasks in flight -------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _add_blocked(self, more: int) -> None:
        self._blocked += more

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._finished += 1
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, NotLeading):
            return
        log.error("write task failed", exc_info=error)
        self._start_bind_worker()

    async def _until_idle(self) -> None:
        """Until no effect on a pod is in flight, or none completes in `stall_timeout_s`, or `max_status_delay_s` have passed."""
        now = self._loop.time()
        until, stalled_at, finished = now + self._limits.max_status_delay_s, now + self._limits.stall_timeout_s, self._finished
        while self.active_writes and now < min(until, stalled_at):
            await asyncio.sleep(_POLL_S)
            now = self._loop.time()
            if finished != self._finished:
                stalled_at, finished = now + self._limits.stall_timeout_s, self._finished

    async def _until_flushed(self) -> None:
        """Also until no status update is pending."""
        await self._until_idle()
        await self._status_writer.flush(timeout_s=self._limits.stall_timeout_s)
