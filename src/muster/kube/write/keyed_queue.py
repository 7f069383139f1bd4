"""A queue for each object: writes onto one object keep the order in which they were queued, whether those before succeed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType


class KeyedQueue:
    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    def enqueue(self, *keys: Hashable) -> QueueEntry:
        """An entry in the queues of these objects, behind all earlier ones. The caller must enter it at last."""
        done = asyncio.get_running_loop().create_future()
        before = [self._last[key] for key in keys if key in self._last]
        for key in keys:
            self._last[key] = done
        return QueueEntry(self, keys, before, done)

    def __len__(self) -> int:
        return len(self._last)

    def release(self, keys: tuple[Hashable, ...], done: asyncio.Future[None]) -> None:
        for key in keys:
            if self._last.get(key) is done:
                del self._last[key]
        if not done.done():
            done.set_result(None)


class QueueEntry:
    """Entered when all earlier entries have left."""

    def __init__(
        self, queue: KeyedQueue, keys: tuple[Hashable, ...], before: list[asyncio.Future[None]], done: asyncio.Future[None]
    ) -> None:
        self._queue = queue
        self._keys = keys
        self._before = before
        self._done = done

    @property
    def must_wait(self) -> bool:
        """Is there an earlier entry that has not left?"""
        return any(not one.done() for one in self._before)

    async def __aenter__(self) -> None:
        try:
            while self._before:
                await asyncio.shield(self._before[-1])
                self._before.pop()
        except asyncio.CancelledError:
            self._queue.release(self._keys, self._done)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._queue.release(self._keys, self._done)
