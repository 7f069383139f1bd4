"""Listens on an address: for the probes, for the API, and for a page about a file."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import web

from muster.web.api_access import ApiAccess
from muster.web.api_server import ApiServer


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
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        await _listen(runner, address, context)
        host, port = runner.addresses[0][:2]
        yield host, port
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
    host, port = address
    try:
        site = (
            web.TCPSite(runner, host, port, ssl_context=context)
            if host
            else web.SockSite(runner, _socket_on_all_addresses(port), ssl_context=context)
        )
        await site.start()
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
