"""Writes status updates when no effect on a pod is in flight: all of one object in one patch, and only where it changes something.

An update that could not be written is kept and retried later, unless a newer one replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView
from muster.kube.watch.client import CONFLICT, INVALID, NOT_FOUND, ApiError
from muster.kube.write.api_writer import STRATEGIC_PATCH_KINDS, ApiWriter, NotLeading, is_retryable
from muster.kube.write.effect_writes import ApiWrite
from muster.kube.write.keyed_queue import KeyedQueue
from muster.kube.write.status_updates import StatusWrite, UpdatesByKey, add_updates, updates_patch
from muster.kube.write.write_cache import WriteCache

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 6
_RETRY_PAUSE_S = 0.5
"""After a batch of which some updates are retried."""
_FLUSH_POLL_S = 0.02


class StatusWriter:
    """`until_idle` is awaited before each batch: it ends when no effect on a pod is in flight."""

    def __init__(
        self,
        api_writer: ApiWriter,
        cache: WriteCache,
        queue: KeyedQueue,
        *,
        now: Callable[[], float],
        until_idle: Callable[[], Awaitable[None]],
        concurrency: int = 8,
    ) -> None:
        self._api_writer = api_writer
        self._cache = cache
        self._queue = queue
        self._now = now
        self._until_idle = until_idle
        self._concurrency = concurrency
        self._pending: dict[ApiObjectRef, UpdatesByKey] = {}
        self._attempts: dict[ApiObjectRef, int] = {}
        self._has_pending = asyncio.Event()
        self._in_flight = 0

    @property
    def pending(self) -> int:
        return len(self._pending) + self._in_flight

    def add(self, status_writes: Iterable[StatusWrite]) -> None:
        add_updates(self._pending, status_writes)
        if self._pending:
            self._has_pending.set()

    def pending_patch(self, ref: ApiObjectRef, present: ManifestView) -> Manifest | None:
        """The pending updates of an object that is about to be patched. Once they are in that patch, they change nothing more."""
        return updates_patch(self._pending.get(ref, {}), present, now=self._now())

    async def flush(self, *, timeout_s: float) -> None:
        """Until nothing is pending, or the timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self.pending and loop.time() < until:
            await asyncio.sleep(_FLUSH_POLL_S)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_pending.wait()
            await self._until_idle()
            if not await self._write_batch(self._next_batch()):
                await asyncio.sleep(_RETRY_PAUSE_S)

    def _next_batch(self) -> dict[ApiObjectRef, UpdatesByKey]:
        """The next objects, in the order in which they were first added."""
        batch = {ref: self._pending.pop(ref) for ref in list(self._pending)[: 8 * self._concurrency]}
        if not self._pending:
            self._has_pending.clear()
        self._in_flight = len(batch)
        return batch

    async def _write_batch(self, batch: dict[ApiObjectRef, UpdatesByKey]) -> bool:
        """Is nothing of it to be retried?"""
        outcomes = await asyncio.gather(*(self._write(ref, updates) for ref, updates in batch.items()), return_exceptions=True)
        self._in_flight = 0
        failed = {ref: error for ref, error in zip(batch, outcomes, strict=True) if error is not None}
        retried = [ref for ref, error in failed.items() if self._should_retry(ref, error)]
        for ref in retried:
            # Updates that were added since are newer.
            self._pending[ref] = {**batch[ref], **self._pending.get(ref, {})}
            self._has_pending.set()
        for ref in batch.keys() - set(retried):
            self._attempts.pop(ref, None)
        return not retried

    def _should_retry(self, ref: ApiObjectRef, error: BaseException) -> bool:
        if isinstance(error, NotLeading):
            return True
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            return False
        attempts = self._attempts[ref] = self._attempts.get(ref, 0) + 1
        retryable = isinstance(error, ApiError) and (is_retryable(error) or error.status == CONFLICT)
        if not retryable or attempts >= MAX_ATTEMPTS:
            log.warning("status update failed", kind=ref.kind, name=ref.full_name, error=str(error), attempts=attempts)
        return retryable and attempts < MAX_ATTEMPTS

    async def _write(self, ref: ApiObjectRef, updates: UpdatesByKey) -> None:
        async with self._queue.enqueue(ref):
            present = self._cache.peek(ref)
            patch = None if present is None else updates_patch(updates, present, now=self._now())
            if patch is None:
                return
            try:
                await self._send(ref, patch)
            except ApiError as error:
                if error.status == CONFLICT:
                    await self._api_writer.refresh(ref, uid=self._cache.uid_of(ref))
                if error.status != INVALID or len(patch["status"]) < 2:
                    raise
                await self._send_fields(ref, patch["status"])

    async def _send_fields(self, ref: ApiObjectRef, status: Manifest) -> None:
        """Each field by itself: those that the object's definition does not allow must not lose the others."""
        for field, value in status.items():
            try:
                await self._send(ref, {"status": {field: value}})
            except ApiError as error:
                if error.status != INVALID:
                    raise
                log.warning("status field refused", kind=ref.kind, name=ref.full_name, field=field, error=str(error))

    async def _send(self, ref: ApiObjectRef, patch: Manifest) -> None:
        uid, exact = self._cache.uid_of(ref), ref[:2] not in STRATEGIC_PATCH_KINDS
        await self._api_writer.write(ApiWrite("patch", ref, uid, patch, "write a status update", exact=exact))
