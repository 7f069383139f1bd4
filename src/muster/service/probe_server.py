"""The HTTP endpoints /healthz, /readyz and /metrics. They are read-only."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import GroupKind
from muster.service.prometheus_metrics import Metrics, ServiceState

MAX_LOOP_AGE_S: Final = 60.0
"""Without an iteration for this long, the scheduling loop counts as hung."""
_OK, _UNAVAILABLE = 200, 503


class BadAddress(ValueError):
    """Not an address to listen on."""


def read_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:10259`, `[::1]:10259`, or `:10259` for all addresses."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadAddress(f"{text!r} is not an address to listen on; write for example 127.0.0.1:10259")
    return host.strip("[]"), int(port)


class ProbeServer:
    """`queue_metrics`: metrics of queues for everybody who can connect, and not only from the same machine."""

    def __init__(self, state: ServiceState, metrics: Metrics, *, queue_metrics: bool = False) -> None:
        self._state = state
        self._metrics = metrics
        self._queue_metrics = queue_metrics

    def health(self) -> tuple[int, str]:
        """Liveness: whether the scheduling loop still iterates."""
        age_s = self._state.loop_age_s()
        if age_s > MAX_LOOP_AGE_S:
            return _UNAVAILABLE, f"no iteration of the scheduling loop for {age_s:.0f} s"
        return _OK, "ok"

    def readiness(self) -> tuple[int, str]:
        """Readiness: whether it schedules, or would as soon as it leads. A standby is ready."""
        if not self._state.is_leader():
            return _OK, "standby: another replica holds the lease"
        if forbidden := sorted(
            kind[1] for kind, health in self._state.health().items() if health.forbidden and not _is_optional(kind)
        ):
            return _UNAVAILABLE, f"leading, not allowed to read: {', '.join(forbidden)}"
        if not self._state.is_synced():
            return _UNAVAILABLE, "leading, caches not synced"
        return _OK, "leading"

    @asynccontextmanager
    async def served(self, address: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
        """Serve until the block ends; yields the address, with the actual port where it was 0."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._render_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await _listen(runner, address)
            host, port = runner.addresses[0][:2]
            yield host, port
        finally:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return _response(*self.health())

    async def _ready(self, _: web.Request) -> web.Response:
        return _response(*self.readiness())

    async def _render_metrics(self, request: web.Request) -> web.Response:
        queues = self._queue_metrics or is_local(request.remote or "")
        return web.Response(body=self._metrics.page(queues=queues), headers={"Content-Type": CONTENT_TYPE_LATEST})


def is_local(address: str) -> bool:
    """Is it an address of this machine, of the pod in a cluster? `kubectl port-forward` comes from there, and needs rights."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


async def _listen(runner: web.AppRunner, address: tuple[str, int]) -> None:
    host, port = address
    try:
        site = web.TCPSite(runner, host, port) if host else web.SockSite(runner, _socket_on_all_addresses(port))
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


def _is_optional(kind: GroupKind) -> bool:
    return resource_of(*kind).optional


def _response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
