"""The HTTP endpoints /healthz, /readyz and /metrics. They are read-only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import GroupKind
from muster.service.prometheus_metrics import Metrics, ServiceState
from muster.web.api_access import is_local, names_this_machine
from muster.web.http_server import served

MAX_LOOP_AGE_S: Final = 60.0
"""Without an iteration for this long, the scheduling loop counts as hung."""
_OK, _UNAVAILABLE = 200, 503


class ProbeServer:
    """`queue_metrics`: metrics of queues for everybody who can connect, and not only from the same machine. `add_routes`: of the
    API and the page."""

    def __init__(
        self,
        state: ServiceState,
        metrics: Metrics,
        *,
        queue_metrics: bool = False,
        add_routes: Callable[[web.Application], None] | None = None,
    ) -> None:
        self._add_routes = add_routes
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
        if self._add_routes is not None:
            self._add_routes(app)
        async with served(app, address) as listening:
            yield listening

    async def _health(self, _: web.Request) -> web.Response:
        return _response(*self.health())

    async def _ready(self, _: web.Request) -> web.Response:
        return _response(*self.readiness())

    async def _render_metrics(self, request: web.Request) -> web.Response:
        queues = self._queue_metrics or (is_local(request.remote or "") and names_this_machine(request.host))
        return web.Response(body=self._metrics.page(queues=queues), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _is_optional(kind: GroupKind) -> bool:
    return resource_of(*kind).optional


def _response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
