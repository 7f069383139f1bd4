"""The pulse of nodes: a Lease for each that is renewed, and now and then the time in its Ready condition, as kubelets do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.encode import stamp
from muster.adapters.kube.refs import NODE
from muster.adapters.kube.resources import LEASE, resource_of

log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-node-lease"
LEASE_S: Final = 40
_BEATS_TO_A_STATUS = 30
_SLICES = 10
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_ABSENT = 404


class Heartbeat:
    """`every_s`: from one beat of a node to its next; `silent`: nodes that are there and do not answer.

    A tenth of the nodes beat at a time, so that the load is even.
    """

    def __init__(self, client: Client, *, now: Callable[[], float], every_s: float, silent: Container[str]) -> None:
        self._client = client
        self._now = now
        self._every_s = every_s
        self._silent = silent
        self._beats: dict[str, int] = {}

    def react(self, node: str, *, gone: bool) -> None:
        if gone:
            self._beats.pop(node, None)
        else:
            self._beats.setdefault(node, 0)

    async def run(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(self._every_s / _SLICES)
            mine = [node for i, node in enumerate(self._beats) if i % _SLICES == turn and node not in self._silent]
            await asyncio.gather(*(self._beat(node) for node in mine))
            turn = (turn + 1) % _SLICES

    async def _beat(self, node: str) -> None:
        count = self._beats.get(node)
        if count is None:
            return
        self._beats[node] = count + 1
        try:
            await self._renew(node)
            if count % _BEATS_TO_A_STATUS == _BEATS_TO_A_STATUS - 1:
                await self._say_ready(node)
        except ApiError as error:
            # The next beat tries again; one that is missed is what a lease is for.
            log.debug("beat lost", node=node, error=str(error))

    async def _renew(self, node: str) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": LEASE_S, "renewTime": _micro(self._now())}
        path = LEASE.path("v1", namespace=NAMESPACE, name=node)
        try:
            await self._client.request("PATCH", path, body={"spec": spec}, content_type=_MERGE)
        except ApiError as error:
            if error.status != _ABSENT:
                raise
            made = {"apiVersion": LEASE.api_version("v1"), "kind": "Lease", "metadata": {"name": node}, "spec": spec}
            await self._client.request("POST", LEASE.path("v1", namespace=NAMESPACE), body=made)

    async def _say_ready(self, node: str) -> None:
        path = resource_of(*NODE).path("v1", name=node)
        found: dict[str, Any] = msgspec.json.decode(await self._client.request("GET", path))
        ready = next((entry for entry in found["status"].get("conditions") or [] if entry["type"] == "Ready"), None)
        if ready is not None:
            beat = {"conditions": [{**ready, "lastHeartbeatTime": stamp(self._now())}]}
            await self._client.request("PATCH", f"{path}/status", body={"status": beat}, content_type=_STRATEGIC)


def _micro(when: float) -> str:
    """Leases keep their times to the microsecond."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
