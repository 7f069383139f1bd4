"""Views of the running scheduler, made when somebody asks and seldom enough: 1 % of the time goes into them, and as
much into what questions are answered from.

A copy of the world is taken between two cycles (`SchedulingLoop.copy`), everything else happens in other threads. However many
readers there are, they get the same view.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from muster.service.past_views import INTERVAL_S, PastViews
from muster.service.scheduling_loop import SchedulingLoop
from muster.web.cluster_view import ClusterView, view_of
from muster.web.view_source import NotReady, encode_state

MIN_INTERVAL_S: Final = 1.0
IDLE_RATIO: Final = 100
"""A view is not made anew before this multiple of the time that the last one took."""
_NOT_READY_S: Final = 10.0

T = TypeVar("T")


@dataclass(slots=True)
class _Fresh(Generic[T]):
    """A value, the version that it was made of, and until when it is good whatever happens."""

    value: T
    version: int
    loop: SchedulingLoop
    until: float


class _MadeOnce(Generic[T]):
    """One value for all who ask at once, made in another thread."""

    def __init__(self, make: Callable[[SchedulingLoop], T]) -> None:
        self._make = make
        self._kept: _Fresh[T] | None = None
        self._making: asyncio.Future[_Fresh[T]] | None = None

    async def value(self, loop: SchedulingLoop) -> T:
        kept = self._kept
        if kept is not None and kept.loop is loop and (kept.version == loop.cycles or time.monotonic() < kept.until):
            return kept.value
        if self._making is None or self._making.done():
            self._making = asyncio.ensure_future(asyncio.to_thread(self._made, loop))
        self._kept = await asyncio.shield(self._making)
        return self._kept.value

    def _made(self, loop: SchedulingLoop) -> _Fresh[T]:
        version, began = loop.cycles, time.thread_time()
        value = self._make(loop)
        cost_s = time.thread_time() - began
        return _Fresh(value, version, loop, time.monotonic() + max(MIN_INTERVAL_S, IDLE_RATIO * cost_s))


class LiveViews:
    """`current`: the loop that runs now, if any."""

    def __init__(self, current: Callable[[], SchedulingLoop | None]) -> None:
        self._current = current
        self.past = PastViews()
        self._view = _MadeOnce(self._made_view)
        self._state = _MadeOnce(_encoded_state)

    async def view(self, at: float | None = None) -> ClusterView:
        newest = await self._of_loop(self._view.value)
        return newest if at is None else await asyncio.to_thread(self.past.view, at, newest)

    async def keep_pictures(self, interval_s: float = INTERVAL_S) -> None:
        """Until cancelled: what the page can be dragged back to."""
        while True:
            pause_s = interval_s
            try:
                await asyncio.to_thread(self.past.keep, await self.view())
            except NotReady:
                pause_s = min(interval_s, _NOT_READY_S)
            await asyncio.sleep(pause_s)

    def entries(self, gang: str) -> list[dict[str, Any]]:
        loop = self._current()
        return [] if loop is None else loop.entries(gang)

    async def question_state(self) -> bytes:
        return await self._of_loop(self._state.value)

    def _made_view(self, loop: SchedulingLoop) -> ClusterView:
        view = view_of(loop.copy())
        view.timeline["times"] = [*(time for time in self.past.times() if time < view.time), view.time]
        return view

    async def _of_loop(self, ask: Callable[[SchedulingLoop], Awaitable[T]]) -> T:
        loop = self._current()
        if loop is None or not loop.is_ready:
            raise NotReady("this replica does not schedule: it is a standby, or has not read the cluster yet")
        return await ask(loop)


def _encoded_state(loop: SchedulingLoop) -> bytes:
    objects, now, policy = loop.objects()
    return encode_state(objects, now=now, policy=policy)
