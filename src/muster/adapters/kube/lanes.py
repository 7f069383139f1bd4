"""One lane for each object: writes onto it keep the order in which they were asked for, whatever happens to those before."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType


class Lanes:
    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    def place(self, *whom: Hashable) -> Place:
        """A place in the lanes of these objects, behind all who asked before. Who takes one must enter it, some day."""
        done = asyncio.get_running_loop().create_future()
        before = [self._last[one] for one in whom if one in self._last]
        for one in whom:
            self._last[one] = done
        return Place(self, whom, before, done)

    def __len__(self) -> int:
        return len(self._last)

    def leave(self, whom: tuple[Hashable, ...], done: asyncio.Future[None]) -> None:
        for one in whom:
            if self._last.get(one) is done:
                del self._last[one]
        if not done.done():
            done.set_result(None)


class Place:
    """Entered when all before it have left."""

    def __init__(
        self, lanes: Lanes, whom: tuple[Hashable, ...], before: list[asyncio.Future[None]], done: asyncio.Future[None]
    ) -> None:
        self._lanes = lanes
        self._whom = whom
        self._before = before
        self._done = done

    @property
    def has_to_wait(self) -> bool:
        """Is somebody before it who has not left?"""
        return any(not one.done() for one in self._before)

    async def __aenter__(self) -> None:
        try:
            while self._before:
                await asyncio.shield(self._before[-1])
                self._before.pop()
        except asyncio.CancelledError:
            self._lanes.leave(self._whom, self._done)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lanes.leave(self._whom, self._done)
