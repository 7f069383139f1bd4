"""The only door to the network: requests to one API server, bounded, paced and timed.

A `Client` belongs to one event loop. It decides nothing: an answer that is no success becomes an `ApiError`, and whoever asked
knows what to do about it. Only "too many requests" is repeated here, since the server itself says when.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import msgspec

from muster import __version__
from muster.adapters.kube import tls
from muster.adapters.kube.access import Access, AccessError

UNREACHED: Final = 0
"""The status of a request without an answer: the server may or may not have done what was asked."""
BUSY: Final = 429
UNAUTHORIZED: Final = 401
READS: Final = frozenset({"GET", "HEAD"})
LEASE_OVER: Final = "LeaseOver"
"""The reason of a write that was not sent, because we may not write any more."""

_MOST_TRIES = 5
_LONGEST_WAIT_S = 10.0
_FIRST_WAIT_S = 0.25
_CONNECT_S = 5.0
_KEEP_S = 30.0
"""Shorter than any server keeps an idle connection, so that no write goes out on one that was just closed."""
_UNSAID = 500
_QUOTED = 200
_LEAKS_TLS = sys.version_info < (3, 12, 8) or (3, 13, 0) <= sys.version_info < (3, 13, 1)
"""These Pythons forget TLS connections that are closed in the middle of an exchange; the library then ends them for good."""
_CHUNK = 2**19
"""How much of a watch may lie unread before the server is made to wait."""

Observe = Callable[[str, str, int, float], None]


class ApiError(Exception):
    """The server did not do it. `status` is 0 where it gave no answer at all."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.details: Mapping[str, Any] = details or {}

    def __str__(self) -> str:
        head = str(self.status) if self.status != UNREACHED else "no answer"
        return ": ".join(part for part in (f"{head} {self.reason}".strip(), self.message) if part)


class Client:
    """Requests to one API server. `may_write` is asked at the last moment before each write, after all waiting."""

    def __init__(
        self,
        access: Access,
        *,
        concurrency: int = 64,
        qps: float | None = None,
        timeout_s: float = 10.0,
        observe: Observe | None = None,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self._access = access
        self._room = asyncio.Semaphore(concurrency)
        self._rate = _Rate(qps) if qps else None
        self._timeout_s = timeout_s
        self._observe = observe
        self._may_write = may_write
        self._session: aiohttp.ClientSession | None = None
        self._ears: set[TransportSocket] = set()
        """The sockets of the watches."""
        self._gulp = 1
        self._renewing = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        retry_busy: bool = True,
    ) -> bytes:
        """The body of a good answer; anything else raises ApiError.

        The time counts from the moment of sending, not from that of asking. An eviction that a budget refuses is "too many
        requests" as well: who asks for one says `retry_busy=False`.
        """
        payload = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = (("Content-Type", content_type),) if payload is not None else ()
        sent = _Request(method, path, _bounded(method, params, timeout_s or self._timeout_s), payload, headers)
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                return await self._answered(sent, timeout_s=timeout_s or self._timeout_s)
            except ApiError as error:
                if error.status != BUSY or not retry_busy or attempt == _MOST_TRIES:
                    raise
                await asyncio.sleep(_wait_s(error.retry_after_s, attempt=attempt))
        raise AssertionError("the last attempt returns or raises")

    async def stream(self, path: str, *, params: Mapping[str, str], quiet_s: float = 120.0) -> AsyncIterator[bytes]:
        """The lines of a watch, one by one."""
        async with aclosing(self.batches(path, params=params, quiet_s=quiet_s)) as batches:
            async for lines in batches:
                for line in lines:
                    yield line

    async def batches(self, path: str, *, params: Mapping[str, str], quiet_s: float = 120.0) -> AsyncGenerator[list[bytes], None]:
        """The lines of a watch as they come in, many at once where many came, until the server ends it.

        A stream on which nothing at all was heard for `quiet_s` is given up with an ApiError. Half a line at the end is dropped.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=quiet_s)
        sent = _Request("GET", path, params or {}, None, ())
        async with self._exchange(sent, timeout=timeout) as response, self._ear(response):
            try:
                half: list[bytes] = []
                async for chunk in response.content.iter_any():
                    *lines, rest = chunk.split(b"\n")
                    if lines and half:
                        lines[0] = b"".join([*half, lines[0]])
                        half.clear()
                    if rest:
                        half.append(rest)
                    if lines:
                        yield [line for line in lines if line]
            finally:
                _cut(response)

    def listen(self, gulp: int) -> None:
        """Read a watch only when so many bytes of it have come in, or its connection has ended: until then they wait in the kernel,
        and nobody is woken. Whoever asks for more than 1 says 1 again soon, and what has come in is read at once. Only Linux can
        do this; elsewhere watches are read as ever."""
        self._gulp = gulp
        for ear in self._ears:
            _read_by(ear, gulp)

    @asynccontextmanager
    async def _ear(self, response: aiohttp.ClientResponse) -> AsyncIterator[None]:
        """The socket of a watch listens as the others do, until it becomes one of many again."""
        transport = response.connection.transport if response.connection is not None else None
        ear = transport.get_extra_info("socket") if transport is not None else None
        if ear is None:
            yield
            return
        self._ears.add(ear)
        _read_by(ear, self._gulp)
        try:
            yield
        finally:
            self._ears.discard(ear)
            _read_by(ear, 1)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answered(self, sent: _Request, *, timeout_s: float) -> bytes:
        async with self._room:
            if self._rate is not None:
                await self._rate.turn()
            limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s))
            async with self._exchange(sent, timeout=limit) as response:
                return await response.read()

    @asynccontextmanager
    async def _exchange(self, sent: _Request, *, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request and its answer. Whatever goes wrong on the way, up to the last byte, is an ApiError."""
        began, status = time.monotonic(), UNREACHED
        try:
            async with await self._sent(sent, timeout=timeout) as response:
                status = response.status
                if status >= 300:
                    raise _refusal(response, await response.read())
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            status = UNREACHED
            raise ApiError(UNREACHED, type(error).__name__, f"{sent.method} {sent.path}: {error}") from error
        finally:
            if self._observe is not None:
                method = "WATCH" if "watch" in sent.params else sent.method
                self._observe(method, path_kind(sent.path), status, time.monotonic() - began)

    async def _sent(self, sent: _Request, *, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The head of the answer. Credentials that the server does not take are read again, once."""
        header = await self._header()
        response = await self._posted(sent, header=header, timeout=timeout)
        if response.status != UNAUTHORIZED or self._access.renewed is None:
            return response
        response.release()
        return await self._posted(sent, header=await self._header(stale=header), timeout=timeout)

    async def _posted(self, sent: _Request, *, header: str, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        # No await lies between this question and the request: what may be written now is begun now.
        if sent.method not in READS and self._may_write is not None and not self._may_write():
            raise ApiError(UNREACHED, LEASE_OVER, f"{sent.method} {sent.path} was not sent: the lease is over")
        return await self._opened().request(
            sent.method,
            self._access.server + sent.path,
            params=sent.params,
            data=sent.payload,
            headers=[*sent.headers, *([("Authorization", header)] if header else []), *self._access.credentials.acting_as],
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._access.server_name or None,
            proxy=self._access.proxy or None,
        )

    async def _header(self, *, stale: str | None = None) -> str:
        """Who we are. Many may find at once that it must be renewed; one does it for all."""
        if self._is_old(stale):
            async with self._renewing:
                if self._is_old(stale):
                    await self._renew()
        return self._access.credentials.header

    def _is_old(self, stale: str | None) -> bool:
        return self._access.is_due or (stale is not None and self._access.credentials.header == stale)

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._access.renew()
        except AccessError as error:
            raise ApiError(UNREACHED, "NoCredentials", str(error)) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Watches need a connection each and requests are bounded by `concurrency`, so the pool itself has no limit.
            # Packing costs more than it saves on the short way to a server.
            tls.mend()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_KEEP_S, ssl=self._access.context or True, enable_cleanup_closed=_LEAKS_TLS
                ),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"muster/{__version__}"},
                read_bufsize=_CHUNK,
            )
        return self._session


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    params: Mapping[str, str]
    payload: bytes | None
    headers: tuple[tuple[str, str], ...]


class _Rate:
    """At most so many requests in a second, with a second's worth at once after a pause."""

    def __init__(self, qps: float) -> None:
        self._gap_s = 1.0 / qps
        self._burst_s = 1.0
        self._next = 0.0

    async def turn(self) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - self._burst_s) + self._gap_s
        if self._next > now:
            await asyncio.sleep(self._next - now)


def _bounded(method: str, params: Mapping[str, str] | None, timeout_s: float) -> Mapping[str, str]:
    """A write that we have given up must not be done later: the server is told how long it may take."""
    if method in READS:
        return params or {}
    return {**(params or {}), "timeout": f"{max(1, int(timeout_s * 1000))}ms"}


def _wait_s(asked_s: float | None, *, attempt: int) -> float:
    """How long to wait for a busy server: as long as it says, spread a little so that not all come back at once."""
    wanted = asked_s if asked_s is not None else _FIRST_WAIT_S * 2**attempt
    return min(_LONGEST_WAIT_S, wanted) * random.uniform(1.0, 1.25)


class _Status(msgspec.Struct, rename="camel"):
    """The API's own way to say no."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


def refusal_in(raw: bytes | msgspec.Raw, *, status: int = UNREACHED, retry_after: str = "") -> ApiError:
    """What a Status object says, as an answer's body or inside of a watch. What is no Status is quoted."""
    try:
        said = msgspec.json.decode(raw, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _Status(message=bytes(raw)[:_QUOTED].decode(errors="replace"))
    details = said.details or {}
    asked = retry_after or str(details.get("retryAfterSeconds") or "")
    return ApiError(status or said.code or _UNSAID, said.reason, said.message, retry_after_s=_seconds(asked), details=details)


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    error = refusal_in(body, status=response.status, retry_after=response.headers.get("Retry-After", ""))
    error.reason = error.reason or response.reason or ""
    return error


def _cut(response: aiohttp.ClientResponse) -> None:
    """End a watch that is given up at once: the polite way over TLS would outlive the client. One that ended itself is let be."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None:
        transport.abort()


def _read_by(ear: TransportSocket, gulp: int) -> None:
    if sys.platform == "linux":
        # One that was cut has nothing to say any more.
        with suppress(OSError):
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, gulp)


def _seconds(text: str) -> float | None:
    """Retry-After: seconds, or a date."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def path_kind(path: str) -> str:
    """What a path is about, without names: `pods/binding`, `podgroups.scheduling.volcano.sh/status`."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
    rest = parts[3:] if group else parts[2:]
    # A namespace is only where something stands, unless it is asked for itself.
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    if not rest:
        return path.strip("/")
    plural = f"{rest[0]}.{group}" if group else rest[0]
    return f"{plural}/{rest[2]}" if len(rest) > 2 else plural
