"""Listens on an address: for the probes, for the API, and for a page about a file.

Whoever asks shares the process with the scheduler, and its descriptors: connections are bounded in number and in time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from muster.web.api_access import ApiAccess
from muster.web.api_server import ApiServer

MAX_CONNECTIONS: Final = 300
MAX_IDLE_S: Final = 15.0
"""For so long a connection may be without a request, or in the middle of the first lines of one."""
MAX_STUCK_S: Final = 60.0
"""For so long a reader may take nothing of what is sent to her."""
_HANDSHAKE_TIMEOUT_S = 10.0
_CHECK_INTERVAL_S = 1.0


_LOG: Final = logging.getLogger("muster.web")
# What is no HTTP gets a 400. A traceback would let anybody fill the log, with headers that may be a token.
_LOG.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


class BadAddress(ValueError):
    """Not an address to listen on."""


def read_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:10259`, `[::1]:10259`, or `:10259` for all addresses."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadAddress(f"{text!r} is not an address to listen on; write for example 127.0.0.1:10259")
    return host.strip("[]"), int(port)


def serving_api(
    api: ApiServer, access: ApiAccess, address: tuple[str, int], context: ssl.SSLContext | None = None
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """The API and the page alone."""
    app = web.Application()
    api.add_routes(app, access)
    return served(app, address, context)


@asynccontextmanager
async def served(
    app: web.Application, address: tuple[str, int], context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """Serve until the block ends; yields the address, with the actual port where it was 0."""
    runner = web.AppRunner(
        app, access_log=None, logger=_LOG, shutdown_timeout=1.0, handler_cancellation=True, keepalive_timeout=MAX_IDLE_S
    )
    await runner.setup()
    assert runner.server is not None
    connections = _Connections(runner.server)
    watching = asyncio.create_task(connections.watch())
    try:
        server = await _listen(connections.accepted, address, context)
        try:
            host, port = server.sockets[0].getsockname()[:2]
            yield host, port
        finally:
            server.close()
    finally:
        watching.cancel()
        await runner.cleanup()


class _Connections:
    """Those of one server. Where there are too many, the oldest goes of the address that has most: so a probe always gets in."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._stuck: dict[asyncio.Transport, tuple[int, float]] = {}
        """How much could not be sent, and since when it has been as much."""

    def accepted(self) -> asyncio.Protocol:
        self._make_room(1)
        return self._server()

    async def watch(self) -> None:
        """Ends connections whose reader takes nothing, and those that were too many as they were accepted at once."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self._make_room(0)
            now, before, self._stuck = time.monotonic(), self._stuck, {}
            for handler in self._server.connections:
                transport = handler.transport
                unsent = transport.get_write_buffer_size() if transport is not None else 0
                if transport is not None and unsent:
                    size, since = before.get(transport, (unsent, now))
                    self._stuck[transport] = (unsent, since if size == unsent else now)
                    if now - self._stuck[transport][1] > MAX_STUCK_S:
                        transport.abort()

    def _make_room(self, places: int) -> None:
        transports = [each.transport for each in self._server.connections]
        known = [each for each in transports if each is not None and not each.is_closing()]
        while len(known) + places > MAX_CONNECTIONS:
            most, _ = Counter(map(_peer, known)).most_common(1)[0]
            oldest = next(each for each in known if _peer(each) == most)
            known.remove(oldest)
            oldest.abort()


def _peer(transport: asyncio.Transport) -> str:
    peer: Any = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


async def _listen(
    accepted: Callable[[], asyncio.Protocol], address: tuple[str, int], context: ssl.SSLContext | None
) -> asyncio.Server:
    host, port = address
    loop = asyncio.get_running_loop()
    handshake_s = _HANDSHAKE_TIMEOUT_S if context is not None else None
    try:
        if host:
            return await loop.create_server(accepted, host, port, ssl=context, ssl_handshake_timeout=handshake_s)
        everywhere = _socket_on_all_addresses(port)
        return await loop.create_server(accepted, sock=everywhere, ssl=context, ssl_handshake_timeout=handshake_s)
    except OSError as error:
        raise BadAddress(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _socket_on_all_addresses(port: int) -> socket.socket:
    """Of IPv6 and IPv4 alike; of IPv4 alone on a machine without IPv6."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return socket.create_server(("0.0.0.0", port))
