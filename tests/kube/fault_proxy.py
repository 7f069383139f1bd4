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

from muster.kube.watch.access import Access, read_access


class ProxyFault(Enum):
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


WRITE_FAULTS: Final = (
    (
        ProxyFault.CONFLICT,
        ProxyFault.BUSY,
        ProxyFault.BROKEN,
        ProxyFault.BROKEN_DONE,
        ProxyFault.LOST,
        ProxyFault.LOST_DONE,
        ProxyFault.HANGS,
        ProxyFault.HANGS_DONE,
        ProxyFault.SLOW,
    ),
    (3, 2, 2, 2, 2, 2, 1, 1, 3),
)
READ_FAULTS: Final = ((ProxyFault.BUSY, ProxyFault.BROKEN, ProxyFault.LOST, ProxyFault.SLOW), (1, 1, 1, 1))
WATCH_FAULTS: Final = (
    (ProxyFault.CUT, ProxyFault.STALE, ProxyFault.SLOW, ProxyFault.EXPIRED, ProxyFault.BROKEN, ProxyFault.BUSY),
    (4, 2, 2, 1, 1, 1),
)
FAULT_SHARE: Final = {"write": 0.2, "read": 0.05, "watch": 0.3}
HANGS_S: Final = 2.0
_NO_TIMEOUT: Final = aiohttp.ClientTimeout()
_WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(sock_read=HANGS_S)
"""Whoever reads a silent watch has given it up by then. Watches that nobody reads would be left to the server by the hundred."""
_REASONS: Final = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_HOP_BY_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


class FaultProxy:
    """A context manager with a thread of its own. `injected` counts what befell whom."""

    def __init__(self, kubeconfig: Path, *, seed: int) -> None:
        self.injected: Counter[tuple[str, ProxyFault]] = Counter()
        self.is_off = False
        self._kubeconfig = kubeconfig
        self._seed = seed
        self._asked: Counter[str] = Counter()

    def __enter__(self) -> "FaultProxy":
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
        fault = None if self.is_off or chance.random() >= FAULT_SHARE[kind] else _draw_fault(kind, chance)
        if fault is not None:
            self.injected[kind, fault] += 1
        if kind == "watch":
            return await self._watch(request, fault, chance)
        return await self._answer_request(request, fault, chance)

    def _chance(self, request: web.Request) -> Random:
        asked = f"{request.method} {request.path}"
        self._asked[asked] += 1
        return Random(f"{self._seed} {asked} {self._asked[asked]}")

    async def _answer_request(self, request: web.Request, fault: ProxyFault | None, chance: Random) -> web.StreamResponse:
        raw = await request.read()
        if fault in (ProxyFault.CONFLICT, ProxyFault.BUSY, ProxyFault.BROKEN):
            return _refusal(int(fault.value), chance)
        if fault is ProxyFault.SLOW:
            await asyncio.sleep(chance.uniform(0.02, 0.2))
        if fault is ProxyFault.LOST:
            return _cut(request)
        if fault is ProxyFault.HANGS:
            await asyncio.sleep(HANGS_S)
            return _cut(request)
        async with self._forward(request, raw) as answer:
            body, status, headers = await answer.read(), answer.status, _end_to_end_headers(answer.headers)
        if fault is ProxyFault.BROKEN_DONE:
            return _refusal(500, chance)
        if fault is ProxyFault.LOST_DONE:
            return _cut(request)
        if fault is ProxyFault.HANGS_DONE:
            await asyncio.sleep(HANGS_S)
            return _cut(request)
        return web.Response(status=status, body=body, headers=headers)

    async def _watch(self, request: web.Request, fault: ProxyFault | None, chance: Random) -> web.StreamResponse:
        if fault in (ProxyFault.EXPIRED, ProxyFault.BROKEN, ProxyFault.BUSY):
            return _refusal(int(fault.value), chance)
        pieces_left = chance.randrange(1, 30) if fault in (ProxyFault.CUT, ProxyFault.STALE) else -1
        async with self._forward(request, b"", timeout=_WATCH_TIMEOUT) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end_headers(answer.headers))
            await response.prepare(request)
            write: Callable[[bytes], Awaitable[None]] = response.write
            try:
                async for piece in answer.content.iter_any():
                    pieces_left -= 1
                    if pieces_left == 0 and fault is ProxyFault.CUT:
                        await write(piece[: len(piece) // 2])
                        return _cut(request)
                    if pieces_left == 0:
                        # The reader has to find out by itself.
                        await asyncio.sleep(10 * HANGS_S)
                        return _cut(request)
                    if fault is ProxyFault.SLOW:
                        await asyncio.sleep(chance.uniform(0.0, 0.1))
                    await write(piece)
            except (OSError, aiohttp.ClientError):
                return _cut(request)
        return response

    def _forward(self, request: web.Request, raw: bytes, *, timeout: aiohttp.ClientTimeout = _NO_TIMEOUT) -> Any:
        url = URL(self._access.server + request.raw_path, encoded=True)
        headers = _end_to_end_headers(request.headers)
        return self._session.request(request.method, url, data=raw or None, headers=headers, timeout=timeout)


def _draw_fault(kind: str, chance: Random) -> ProxyFault:
    ills, weights = {"write": WRITE_FAULTS, "read": READ_FAULTS, "watch": WATCH_FAULTS}[kind]
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


def _end_to_end_headers(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
