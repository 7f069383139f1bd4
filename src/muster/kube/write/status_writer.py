"""What objects are to say, written when nobody else writes: of each object at once, the newest of each topic, and only news.

A word that could not be written is kept and tried again later, unless there is a newer one by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from muster.kube.read.object_references import NODE, POD, ApiObjectRef, Manifest, ManifestView
from muster.kube.watch.client import ApiError
from muster.kube.write.api_writer import CONFLICT, NOT_FOUND, ApiWriter, NotLeading, is_retryable
from muster.kube.write.keyed_queue import KeyedQueue
from muster.kube.write.merge_patch import joined, merged
from muster.kube.write.patch_builder import StatusWrite, status_key, status_patch
from muster.kube.write.pod_writes import only_changed_conditions
from muster.kube.write.write_cache import WriteCache

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 6
_RETRY_PAUSE_S = 0.5
"""After a batch of which something has to be said again."""

UpdatesByKey = dict[str, StatusWrite]


class StatusWriter:
    """`until_idle` is awaited before each batch: it ends when nothing more important is under way."""

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
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._in_flight = 0

    @property
    def pending(self) -> int:
        return len(self._pending) + self._in_flight

    def add(self, status_writes: Iterable[StatusWrite]) -> None:
        for status_write in status_writes:
            self._pending.setdefault(status_write.ref, {})[status_key(status_write)] = status_write
        if self._pending:
            self._has_pending.set()
            self._flushed.clear()

    def pending_patch(self, ref: ApiObjectRef, present: ManifestView) -> Manifest | None:
        """What is to be said of an object that somebody is about to write to. Once that is done, it is no news any more."""
        return self._patch(self._pending.get(ref, {}), present)

    async def flush(self, *, timeout_s: float) -> None:
        """Until nothing is left to say, or so long."""
        if self._flushed.is_set():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._flushed.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """For ever; ends only by being cancelled."""
        while True:
            await self._has_pending.wait()
            await self._until_idle()
            if not await self._write_batch(self._next_batch()):
                await asyncio.sleep(_RETRY_PAUSE_S)

    def _next_batch(self) -> dict[ApiObjectRef, UpdatesByKey]:
        """The next ones to speak of, in the order in which they were first spoken of."""
        some = {ref: self._pending.pop(ref) for ref in list(self._pending)[: 8 * self._concurrency]}
        if not self._pending:
            self._has_pending.clear()
        self._in_flight = len(some)
        return some

    async def _write_batch(self, some: dict[ApiObjectRef, UpdatesByKey]) -> bool:
        """Was all of it said, or is not worth saying any more?"""
        outcomes = await asyncio.gather(*(self._write(ref, updates) for ref, updates in some.items()), return_exceptions=True)
        self._in_flight = 0
        failed = {ref: error for ref, error in zip(some, outcomes, strict=True) if error is not None}
        again = [ref for ref, error in failed.items() if self._should_retry(ref, error)]
        for ref in again:
            # What is to be said since then is newer.
            self._pending[ref] = {**some[ref], **self._pending.get(ref, {})}
            self._has_pending.set()
        for ref in some.keys() - set(again):
            self._attempts.pop(ref, None)
        if not self._pending:
            self._flushed.set()
        return not again

    def _should_retry(self, ref: ApiObjectRef, error: BaseException) -> bool:
        if isinstance(error, NotLeading):
            return True
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            return False
        attempts = self._attempts[ref] = self._attempts.get(ref, 0) + 1
        passing = isinstance(error, ApiError) and (is_retryable(error) or error.status == CONFLICT)
        if not passing or attempts >= MAX_ATTEMPTS:
            log.warning("a status could not be written", kind=ref.kind, name=ref.full_name, error=str(error), attempts=attempts)
        return passing and attempts < MAX_ATTEMPTS

    async def _write(self, ref: ApiObjectRef, updates: UpdatesByKey) -> None:
        async with self._queue.enqueue(ref):
            present = self._cache.peek(ref)
            patch = None if present is None else self._patch(updates, present)
            if present is None or patch is None:
                return
            uid, by_key = self._cache.uid_of(ref), ref[:2] in (POD, NODE)
            version = "" if by_key else self._cache.version_of(ref)
            try:
                answer = await self._api_writer.patch(
                    ref, only_changed_conditions(patch, present) if by_key else patch, uid=uid, version=version
                )
            except ApiError as error:
                if error.status == CONFLICT:
                    self._cache.apply_response(ref[:2], await self._api_writer.get(ref))
                raise
            self._cache.apply_response(ref[:2], answer)

    def _patch(self, updates: UpdatesByKey, present: ManifestView) -> Manifest | None:
        """All that is to be said in one patch; None where nothing of it is new."""
        whole: Manifest = {}
        for status_write in updates.values():
            patch = status_patch(status_write, merged(present, whole), now=self._now())
            whole = joined(whole, patch or {})
        return None if merged(present, whole) is present else whole
