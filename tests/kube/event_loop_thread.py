"""An event loop in a thread of its own, for tests that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

_CALL_S = 60.0
_LAST_ITERATIONS_S = 0.05


class BackgroundLoop:
    """A context manager. Whatever was started in it must be stopped before it ends."""

    def __enter__(self) -> BackgroundLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="background", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Connections that were closed a moment ago end in the next iterations of the loop.
        self.run(asyncio.sleep(_LAST_ITERATIONS_S))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float = _CALL_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
