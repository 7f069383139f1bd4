"""A bad way to a good server: a proxy on loopback that refuses, loses, delays and cuts, by a seed.

What befalls a request follows from the seed, from what is asked, and from how often that was asked before. Whatever is answered,
the server behind it is the judge of what was done.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from muster.adapters.kube.access import Access, read_access


class Ill(Enum):
    """What goes wrong. Where it says `done`, the server did what was asked all the same."""

    CONFLICT = "409"
    BUSY = "429"
    BROKEN = "500"
    BROKEN_DONE = "500 and done"
    LOST = "cut before"
    LOST_DONE = "cut after it was done"
    HANGS = "no answer"
    HANGS_DONE = "no answer, and done"
    SLOW = "slow"
    EXPIRED = "410"
    STALE = "a watch that says nothing more"
    CUT = "a watch cut in the middle of a line"


OF_WRITES: Final = (
    (Ill.CONFLICT, Ill.BUSY, Ill.BROKEN, Ill.BROKEN_DONE, Ill.LOST, Ill.LOST_DONE, Ill.HANGS, Ill.HANGS_DONE, Ill.SLOW),
    (3, 2, 2, 2, 2, 2, 1, 1, 3),
)
OF_READS: Final = ((Ill.BUSY, Ill.BROKEN, Ill.LOST, Ill.SLOW), (1, 1, 1, 1))
OF_WATCHES: Final = ((Ill.CUT, Ill.STALE, Ill.SLOW, Ill.EXPIRED, Ill.BROKEN, Ill.BUSY), (4, 2, 2, 1, 1, 1))
SHARE: Final = {"write": 0.2, "read": 0.05, "watch": 0.3}
HANGS_S: Final = 2.0
_REASONS: Final = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_OF_ONE_LEG: Final = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


class Storm:
    """A context manager with a thread of its own. `felt` counts what befell whom."""

    def __init__(self, kubeconfig: Path, *, seed: int) -> None:
        self.felt: Counter[tuple[str, Ill]] = Counter()
        self.calm = False
        self._kubeconfig = kubeconfig
        self._seed = seed
        self._asked: Counter[str] = Counter()

    def __enter__(self) -> "Storm":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="storm", daemon=True)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def access(self) -> Access:
        """The way through the storm."""
        return Access(self.url)

    async def _open(self) -> str:
        self._access = await read_access(self._kubeconfig)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.context or True, enable_cleanup_closed=True)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout())
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=False, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    # -- one request -----------------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = "watch" if "watch" in request.query else "read" if request.method == "GET" else "write"
        chance = self._chance(request)
        ill = None if self.calm or chance.random() >= SHARE[kind] else _drawn(kind, chance)
        if ill is not None:
            self.felt[kind, ill] += 1
        if kind == "watch":
            return await self._watch(request, ill, chance)
        return await self._befallen(request, ill, chance)

    def _chance(self, request: web.Request) -> Random:
        asked = f"{request.method} {request.path}"
        self._asked[asked] += 1
        return Random(f"{self._seed} {asked} {self._asked[asked]}")

    async def _befallen(self, request: web.Request, ill: Ill | None, chance: Random) -> web.StreamResponse:
        raw = await request.read()
        if ill in (Ill.CONFLICT, Ill.BUSY, Ill.BROKEN):
            return _refusal(int(ill.value), chance)
        if ill is Ill.SLOW:
            await asyncio.sleep(chance.uniform(0.02, 0.2))
        if ill is Ill.LOST:
            return _cut(request)
        if ill is Ill.HANGS:
            await asyncio.sleep(HANGS_S)
            return _cut(request)
        async with self._sent(request, raw) as answer:
            body, status, headers = await answer.read(), answer.status, _kept(answer.headers)
        if ill is Ill.BROKEN_DONE:
            return _refusal(500, chance)
        if ill is Ill.LOST_DONE:
            return _cut(request)
        if ill is Ill.HANGS_DONE:
            await asyncio.sleep(HANGS_S)
            return _cut(request)
        return web.Response(status=status, body=body, headers=headers)

    async def _watch(self, request: web.Request, ill: Ill | None, chance: Random) -> web.StreamResponse:
        if ill in (Ill.EXPIRED, Ill.BROKEN, Ill.BUSY):
            return _refusal(int(ill.value), chance)
        pieces_left = chance.randrange(1, 30) if ill in (Ill.CUT, Ill.STALE) else -1
        async with self._sent(request, b"") as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            write: Callable[[bytes], Awaitable[None]] = response.write
            try:
                async for piece in answer.content.iter_any():
                    pieces_left -= 1
                    if pieces_left == 0 and ill is Ill.CUT:
                        await write(piece[: len(piece) // 2])
                        return _cut(request)
                    if pieces_left == 0:
                        # The reader has to find out by itself.
                        await asyncio.sleep(10 * HANGS_S)
                        return _cut(request)
                    if ill is Ill.SLOW:
                        await asyncio.sleep(chance.uniform(0.0, 0.1))
                    await write(piece)
            except (OSError, aiohttp.ClientError):
                return _cut(request)
        return response

    def _sent(self, request: web.Request, raw: bytes) -> Any:
        url = URL(self._access.server + request.raw_path, encoded=True)
        return self._session.request(request.method, url, data=raw or None, headers=_kept(request.headers))


def _drawn(kind: str, chance: Random) -> Ill:
    ills, weights = {"write": OF_WRITES, "read": OF_READS, "watch": OF_WATCHES}[kind]
    return chance.choices(ills, weights)[0]


def _refusal(status: int, chance: Random) -> web.Response:
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": _REASONS[status],
        "message": "storm",
    }
    return web.json_response(said, status=status, headers={"Retry-After": chance.choice(("0", "1"))} if status == 429 else {})


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_LEG}
