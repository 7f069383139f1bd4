"""The only module that uses the network: requests to one API server with bounded concurrency and timeouts.

A `Client` belongs to one event loop. A response that is no success becomes an `ApiError`, which the caller handles. Only "too many
requests" is retried here, because the server itself gives the delay.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from muster import __version__
from muster.kube.watch import tls
from muster.kube.watch.access import Access, AccessError

NO_RESPONSE: Final = 0
"""The status of a request without a response: the server may or may not have carried it out."""
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID, TOO_MANY_REQUESTS = 401, 403, 404, 409, 422, 429
READ_METHODS: Final = frozenset({"GET", "HEAD"})
LEASE_EXPIRED: Final = "LeaseExpired"
"""The reason of a write that was not sent, because this process is not the leader any more."""

_MAX_ATTEMPTS = 5
_MAX_BACKOFF_S = 10.0
_INITIAL_BACKOFF_S = 0.25
_CONNECT_TIMEOUT_S = 5.0
_KEEPALIVE_S = 30.0
"""Shorter than servers keep idle connections, so that no write is sent on one that was just closed."""
_INTERNAL_SERVER_ERROR = 500
_MAX_QUOTED_BYTES = 200
_LEAKS_TLS = sys.version_info < (3, 12, 8) or (3, 13, 0) <= sys.version_info < (3, 13, 1)
"""These Pythons leak TLS connections that are closed in the middle of an exchange; aiohttp then aborts them."""
_READ_BUFFER_BYTES = 2**19
"""How much of a watch may be unread before the connection stops reading."""

RequestObserver = Callable[[str, str, int, float], None]


class ApiError(Exception):
    """A request failed. `status` is 0 where there was no response."""

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
        head = str(self.status) if self.status != NO_RESPONSE else "no response"
        return ": ".join(part for part in (f"{head} {self.reason}".strip(), self.message) if part)


class Client:
    """Requests to one API server. `may_write` is called immediately before each write, after all waiting."""

    def __init__(
        self,
        access: Access,
        *,
        concurrency: int = 64,
        timeout_s: float = 10.0,
        observe: RequestObserver | None = None,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self._access = access
        self._semaphore = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s
        self._observe = observe
        self._may_write = may_write
        self._session: aiohttp.ClientSession | None = None
        self._watch_sockets: set[TransportSocket] = set()
        self._min_read_bytes = 1
        self._refresh_lock = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        retry_throttled: bool = True,
    ) -> bytes:
        """The body of a successful response; anything else raises ApiError.

        The timeout starts when the request is sent, not when it is queued. An eviction that a PodDisruptionBudget refuses is "too
        many requests" as well: callers of the Eviction API pass `retry_throttled=False`.
        """
        payload = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = (("Content-Type", content_type),) if payload is not None else ()
        request_spec = _Request(method, path, _with_server_timeout(method, params, timeout_s or self._timeout_s), payload, headers)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._request_once(request_spec, timeout_s=timeout_s or self._timeout_s)
            except ApiError as error:
                if error.status != TOO_MANY_REQUESTS or not retry_throttled or attempt == _MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(_backoff_s(error.retry_after_s, attempt=attempt))
        raise AssertionError("the last attempt returns or raises")

    async def watch_batches(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float = 120.0
    ) -> AsyncGenerator[list[bytes], None]:
        """The lines of a watch in the batches in which they are received, until the server ends it.

        After `idle_timeout_s` without any bytes it raises ApiError. An incomplete line at the end is dropped.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=idle_timeout_s)
        request_spec = _Request("GET", path, params or {}, None, ())
        async with self._exchange(request_spec, timeout=timeout) as response, self._watch_socket(response):
            try:
                incomplete: list[bytes] = []
                async for chunk in response.content.iter_any():
                    *lines, rest = chunk.split(b"\n")
                    if lines and incomplete:
                        lines[0] = b"".join([*incomplete, lines[0]])
                        incomplete.clear()
                    if rest:
                        incomplete.append(rest)
                    if lines:
                        yield [line for line in lines if line]
            finally:
                _abort_watch(response)

    def set_min_read_bytes(self, min_bytes: int) -> None:
        """Read watches only when so many bytes are received, or the connection has ended: until then they stay in the kernel, and
        the event loop is not woken. A caller that sets more than 1 must set 1 again soon: then all received bytes are read at
        once. Only on Linux; elsewhere this does nothing."""
        self._min_read_bytes = min_bytes
        for watch_socket in self._watch_sockets:
            _set_min_read_bytes(watch_socket, min_bytes)

    @asynccontextmanager
    async def _watch_socket(self, response: aiohttp.ClientResponse) -> AsyncIterator[None]:
        """The socket of a watch has the same minimum as the others while the watch lasts."""
        transport = response.connection.transport if response.connection is not None else None
        watch_socket = transport.get_extra_info("socket") if transport is not None else None
        if watch_socket is None:
            yield
            return
        self._watch_sockets.add(watch_socket)
        _set_min_read_bytes(watch_socket, self._min_read_bytes)
        try:
            yield
        finally:
            self._watch_sockets.discard(watch_socket)
            _set_min_read_bytes(watch_socket, 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request_once(self, request_spec: _Request, *, timeout_s: float) -> bytes:
        async with self._semaphore:
            limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_TIMEOUT_S, timeout_s))
            async with self._exchange(request_spec, timeout=limit) as response:
                return await response.read()

    @asynccontextmanager
    async def _exchange(self, request_spec: _Request, *, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request and its response. Any failure up to the last byte is an ApiError."""
        began, status = time.monotonic(), NO_RESPONSE
        try:
            async with await self._send(request_spec, timeout=timeout) as response:
                status = response.status
                if status >= 300:
                    raise _error_of_response(response, await response.read())
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            status = NO_RESPONSE
            raise ApiError(NO_RESPONSE, type(error).__name__, f"{request_spec.method} {request_spec.path}: {error}") from error
        finally:
            if self._observe is not None:
                method = "WATCH" if "watch" in request_spec.params else request_spec.method
                self._observe(method, resource_of_path(request_spec.path), status, time.monotonic() - began)

    async def _send(self, request_spec: _Request, *, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The head of the response. Credentials that the server refuses are read again, once."""
        header = await self._authorization()
        response = await self._send_as(request_spec, header=header, timeout=timeout)
        if response.status != UNAUTHORIZED or self._access.reload is None:
            return response
        response.release()
        return await self._send_as(request_spec, header=await self._authorization(stale=header), timeout=timeout)

    async def _send_as(self, request_spec: _Request, *, header: str, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        # No await between this check and the request: a write that is allowed now is started now.
        if request_spec.method not in READ_METHODS and self._may_write is not None and not self._may_write():
            raise ApiError(
                NO_RESPONSE, LEASE_EXPIRED, f"{request_spec.method} {request_spec.path} was not sent: the lease has expired"
            )
        return await self._open_session().request(
            request_spec.method,
            self._access.server + request_spec.path,
            params=request_spec.params,
            data=request_spec.payload,
            headers=[
                *request_spec.headers,
                *([("Authorization", header)] if header else []),
                *self._access.credentials.impersonation,
            ],
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._access.server_name or None,
            proxy=self._access.proxy or None,
        )

    async def _authorization(self, *, stale: str | None = None) -> str:
        """The Authorization header. If several requests find it stale at once, one of them renews it."""
        if self._must_refresh(stale):
            async with self._refresh_lock:
                if self._must_refresh(stale):
                    await self._refresh_credentials()
        return self._access.credentials.header

    def _must_refresh(self, stale: str | None) -> bool:
        return self._access.is_due or (stale is not None and self._access.credentials.header == stale)

    async def _refresh_credentials(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._access.renew()
        except AccessError as error:
            raise ApiError(NO_RESPONSE, "NoCredentials", str(error)) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Watches need a connection each and requests are bounded by `concurrency`, so the pool itself has no limit.
            # Compression costs more time than it saves within a cluster.
            tls.fix_double_abort()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_KEEPALIVE_S, ssl=self._access.context or True, enable_cleanup_closed=_LEAKS_TLS
                ),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"muster/{__version__}"},
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._session


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    params: Mapping[str, str]
    payload: bytes | None
    headers: tuple[tuple[str, str], ...]


def _with_server_timeout(method: str, params: Mapping[str, str] | None, timeout_s: float) -> Mapping[str, str]:
    """A write that has timed out here must not be carried out later: the server gets the same timeout."""
    if method in READ_METHODS:
        return params or {}
    return {**(params or {}), "timeout": f"{max(1, int(timeout_s * 1000))}ms"}


def _backoff_s(requested_s: float | None, *, attempt: int) -> float:
    """How long to wait for a busy server: as long as it requests, with jitter."""
    wait_s = requested_s if requested_s is not None else _INITIAL_BACKOFF_S * 2**attempt
    return min(_MAX_BACKOFF_S, wait_s) * random.uniform(1.0, 1.25)


class _Status(msgspec.Struct, rename="camel"):
    """A Kubernetes Status object."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


def api_error_of_status(raw: bytes | msgspec.Raw, *, status: int = NO_RESPONSE, retry_after: str = "") -> ApiError:
    """The error of a Status object, in the body of a response or in a watch. What is no Status is quoted."""
    try:
        body = msgspec.json.decode(raw, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = _Status(message=bytes(raw)[:_MAX_QUOTED_BYTES].decode(errors="replace"))
    details = body.details or {}
    requested = retry_after or str(details.get("retryAfterSeconds") or "")
    return ApiError(
        status or body.code or _INTERNAL_SERVER_ERROR,
        body.reason,
        body.message,
        retry_after_s=_retry_after_seconds(requested),
        details=details,
    )


def _error_of_response(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    error = api_error_of_status(body, status=response.status, retry_after=response.headers.get("Retry-After", ""))
    error.reason = error.reason or response.reason or ""
    return error


def _abort_watch(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a watch at once: a TLS shutdown would outlive the client. A connection that has ended has none."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None:
        transport.abort()


def _set_min_read_bytes(watch_socket: TransportSocket, min_bytes: int) -> None:
    if sys.platform == "linux":
        # The connection may be closed already.
        with suppress(OSError):
            watch_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min_bytes)


def _retry_after_seconds(text: str) -> float | None:
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


def resource_of_path(path: str) -> str:
    """The resource and subresource of a path, without names: `pods/binding`, `podgroups.scheduling.volcano.sh/status`."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
    rest = parts[3:] if group else parts[2:]
    # A namespace in front is skipped, unless it is the object itself.
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    if not rest:
        return path.strip("/")
    plural = f"{rest[0]}.{group}" if group else rest[0]
    return f"{plural}/{rest[2]}" if len(rest) > 2 else plural
