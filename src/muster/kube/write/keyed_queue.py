"""A queue for each object: writes onto one object keep the order in which they were queued, whether those before succeed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType


class KeyedQueue:
    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    def enqueue(self, key: Hashable) -> QueueEntry:
        """An entry in the queue of this object, behind all earlier ones. The caller must enter it at last."""
        return QueueEntry(self._last, key)


class QueueEntry:
    """Entered when the entry before it has left."""

    def __init__(self, last: dict[Hashable, asyncio.Future[None]], key: Hashable) -> None:
        self._last = last
        self._key = key
        self._before = last.get(key)
        self._left = last[key] = asyncio.get_running_loop().create_future()

    @property
    def must_wait(self) -> bool:
        """Is there an earlier entry that has not left?"""
        return self._before is not None and not self._before.done()

    async def __aenter__(self) -> None:
        if self._before is not None:
            try:
                await asyncio.shield(self._before)
            except asyncio.CancelledError:
                self._leave()
                raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._last.get(self._key) is self._left:
            del self._last[self._key]
        self._left.set_result(None)
