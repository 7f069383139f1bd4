"""A gate on loopback between schedulers and their API server: it sees every request, counts the writes, and can let one hang.

Each scheduler has a listener of its own, which is closed for good when that scheduler dies: what it sent with its last
breath, and the gate has not passed on yet, never reaches the server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from tests.kube.fork_server import SENT_AT
from yarl import URL

from muster.kube.read import names
from muster.kube.watch.access import Access

_LEAKS_TLS = sys.version_info < (3, 12, 8) or (3, 13, 0) <= sys.version_info < (3, 13, 1)
"""These Pythons forget TLS connections that are closed in the middle of an exchange; the library then ends them for good."""
_WRITES: Final = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_UNCOUNTED_PATHS: Final = ("/events", "/selfsubjectreviews", "/selfsubjectaccessreviews", "/selfsubjectrulesreviews")
_LEASES: Final = "/leases"
_HOP_BY_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length", "authorization", "keep-alive"})
"""Headers that are about a connection, or about who came to the gate, and not about what was asked."""


@dataclass(slots=True, eq=False)
class ProxiedRequest:
    """One request. `status` is what the server answered, whether or not the scheduler was told; None before that."""

    listener: str
    method: str
    path: str
    body: Any = None
    number: int = 0
    """Which write it is, from 1 on; 0: none that counts."""
    status: int | None = None
    at: float = 0.0
    """When it was received here."""
    sent_at: float = 0.0
    """When it was sent, by the clock of the scheduler."""
    answered_at: float = 0.0
    answer: Any = None
    """The body of the answer, of requests about a lease."""

    @property
    def is_lease(self) -> bool:
        return _LEASES in self.path

    @property
    def is_write(self) -> bool:
        """A write that changes something which a scheduler decides by."""
        return self.method in _WRITES and not self.is_lease and not any(word in self.path for word in _UNCOUNTED_PATHS)

    @property
    def verb(self) -> str:
        if self.method == "POST" and self.path.endswith(("/binding", "/eviction")):
            return "bind" if self.path.endswith("/binding") else "evict"
        if f"/{names.MUSTER_GROUP}/" in self.path:
            return "save"
        if self.method == "PATCH" and _labels(self.body).get(names.SOFT_EVICTION):
            return "mark"
        return self.method.lower()

    @property
    def object(self) -> str:
        """Namespace and name, where it has both."""
        parts = self.path.strip("/").split("/")
        at = parts.index("namespaces") if "namespaces" in parts else -1
        return f"{parts[at + 1]}/{parts[at + 3]}" if 0 <= at < len(parts) - 3 else parts[-1]

    @property
    def uid(self) -> str:
        """Of the object it is meant for, where the request says so."""
        body = self.body if isinstance(self.body, dict) else {}
        options = body.get("deleteOptions") or body
        found: str = (options.get("preconditions") or {}).get("uid") or (body.get("metadata") or {}).get("uid") or ""
        return found

    @property
    def is_done(self) -> bool:
        return self.status is not None and self.status < 300


def _labels(body: Any) -> dict[str, Any]:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return (metadata or {}).get("labels") or {}


Hook = Callable[[ProxiedRequest], Awaitable[bool]]
"""May it go on? If not, it hangs until its listener is closed. A hook may take its time."""


async def _always(_: ProxiedRequest) -> bool:
    return True


class _Listener:
    def __init__(self, name: str, runner: web.AppRunner) -> None:
        self.name = name
        self.runner = runner
        self.closed = asyncio.Event()
        self.forwarding: set[asyncio.Task[web.StreamResponse]] = set()


class RecordingProxy:
    """Lives in one event loop. `one_by_one`: no write begins before the one ahead of it was answered.

    `before` is asked before a request goes to the server, `after` before the scheduler gets the answer.
    """

    def __init__(self, access: Access, *, one_by_one: bool = False) -> None:
        self.writes: list[ProxiedRequest] = []
        self.leases: list[ProxiedRequest] = []
        """Writes of a lease."""
        self.lease_reads: list[ProxiedRequest] = []
        self.before: Hook = _always
        self.after: Hook = _always
        self.last_at = 0.0
        self._access = access
        self._turn = asyncio.Lock() if one_by_one else None
        self._listeners: dict[str, _Listener] = {}

    def completed(self, verb: str) -> list[ProxiedRequest]:
        """All that the server did of this kind so far."""
        return [write for write in list(self.writes) if write.verb == verb and write.is_done]

    def count_by_object(self, verb: str) -> dict[str, int]:
        """How often it did that to each object, by name."""
        return dict(Counter(write.object.rpartition("/")[2] for write in self.completed(verb)))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RecordingProxy]:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.context or True, enable_cleanup_closed=_LEAKS_TLS)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout()) as session:
            self._session = session
            try:
                yield self
            finally:
                for name in list(self._listeners):
                    await self.close(name)

    async def listener(self, name: str) -> str:
        """The URL of a new listener."""
        app = web.Application(client_max_size=2**24)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
        listener = self._listeners[name] = _Listener(name, runner)

        async def enter(request: web.Request) -> web.StreamResponse:
            return await self._handle(listener, request)

        app.router.add_route("*", "/{path:.*}", enter)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    def block(self, name: str) -> None:
        """Nothing more gets through, from this moment on."""
        self._listeners[name].closed.set()

    async def close(self, name: str) -> None:
        self.block(name)
        listener = self._listeners.pop(name)
        await asyncio.gather(*listener.forwarding, return_exceptions=True)
        await listener.runner.cleanup()

    # -- one request ---------------------------------------------------------------------------------------------------------------

    async def _handle(self, listener: _Listener, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        proxied = ProxiedRequest(listener.name, request.method, request.path, _read(raw))
        proxied.sent_at = float(request.headers.get(SENT_AT, 0.0))
        if "watch" in request.query:
            return await self._watch(listener, request, proxied)
        # It goes on without whoever sent it: a write that is held up may land when its scheduler is long gone.
        forwarding = asyncio.create_task(self._forward_in_turn(listener, request, proxied, raw))
        listener.forwarding.add(forwarding)
        forwarding.add_done_callback(listener.forwarding.discard)
        return await asyncio.shield(forwarding)

    async def _forward_in_turn(
        self, listener: _Listener, request: web.Request, proxied: ProxiedRequest, raw: bytes
    ) -> web.StreamResponse:
        turn = self._turn if proxied.is_write and self._turn is not None else nullcontext()
        async with turn:
            return await self._forward_one(listener, request, proxied, raw)

    async def _forward_one(
        self, listener: _Listener, request: web.Request, proxied: ProxiedRequest, raw: bytes
    ) -> web.StreamResponse:
        if listener.closed.is_set():
            return await self._hang(listener)
        proxied.at = self.last_at = time.monotonic()
        if proxied.is_write:
            self.writes.append(proxied)
            proxied.number = len(self.writes)
        elif proxied.is_lease:
            (self.leases if proxied.method in _WRITES else self.lease_reads).append(proxied)
        if not await self.before(proxied) or listener.closed.is_set():
            return await self._hang(listener)
        async with self._forward(request, raw) as answer:
            proxied.status = answer.status
            body = await answer.read()
            headers = _end_to_end_headers(answer.headers)
        proxied.answered_at = time.monotonic()
        proxied.answer = _read(body) if proxied.is_lease else None
        self.last_at = time.monotonic() if proxied.is_write else self.last_at
        if not await self.after(proxied) or listener.closed.is_set():
            return await self._hang(listener)
        return web.Response(status=proxied.status, body=body, headers=headers)

    async def _watch(self, listener: _Listener, request: web.Request, proxied: ProxiedRequest) -> web.StreamResponse:
        if not await self.before(proxied):
            return await self._hang(listener)
        async with self._forward(request, b"") as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end_headers(answer.headers))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
        return response

    def _forward(self, request: web.Request, raw: bytes) -> aiohttp.client._RequestContextManager:
        url = URL(self._access.server + request.raw_path, encoded=True)
        headers = _end_to_end_headers(request.headers)
        if self._access.credentials.header:
            headers["Authorization"] = self._access.credentials.header
        return self._session.request(request.method, url, data=raw or None, headers=headers)

    async def _hang(self, listener: _Listener) -> web.StreamResponse:
        await listener.closed.wait()
        raise web.HTTPServiceUnavailable


def _read(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError:
        return None


def _end_to_end_headers(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
