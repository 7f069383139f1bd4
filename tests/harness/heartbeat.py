"""Heartbeats of nodes, as kubelets send them: renewals of a Lease, and at times of the Ready condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from muster.kube.read.api_resources import LEASE, resource_of
from muster.kube.read.object_references import NODE
from muster.kube.watch.client import ApiError, Client
from muster.kube.write.patch_bodies import rfc3339

log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-node-lease"
LEASE_DURATION_S: Final = 40
_BEATS_PER_STATUS_UPDATE = 30
_BATCHES = 10
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_NOT_FOUND = 404


class Heartbeat:
    """`interval_s`: between two heartbeats of a node; `unreachable`: nodes that send none.

    A tenth of the nodes send theirs at a time, so that the load is even.
    """

    def __init__(self, client: Client, *, now: Callable[[], float], interval_s: float, unreachable: Container[str]) -> None:
        self._client = client
        self._now = now
        self._interval_s = interval_s
        self._unreachable = unreachable
        self._beat_counts: dict[str, int] = {}

    def on_change(self, node: str, *, gone: bool) -> None:
        if gone:
            self._beat_counts.pop(node, None)
        else:
            self._beat_counts.setdefault(node, 0)

    async def run(self) -> None:
        batch = 0
        while True:
            await asyncio.sleep(self._interval_s / _BATCHES)
            due = [node for i, node in enumerate(self._beat_counts) if i % _BATCHES == batch and node not in self._unreachable]
            await asyncio.gather(*(self._beat(node) for node in due))
            batch = (batch + 1) % _BATCHES

    async def _beat(self, node: str) -> None:
        count = self._beat_counts.get(node)
        if count is None:
            return
        self._beat_counts[node] = count + 1
        try:
            await self._renew(node)
            if count % _BEATS_PER_STATUS_UPDATE == _BEATS_PER_STATUS_UPDATE - 1:
                await self._patch_ready(node)
        except ApiError as error:
            # The next heartbeat tries again; a lease tolerates a missed one.
            log.debug("heartbeat failed", node=node, error=str(error))

    async def _renew(self, node: str) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": _micro_time(self._now())}
        path = LEASE.path("v1", namespace=NAMESPACE, name=node)
        try:
            await self._client.request("PATCH", path, body={"spec": spec}, content_type=_MERGE_PATCH)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            lease = {"apiVersion": LEASE.api_version("v1"), "kind": "Lease", "metadata": {"name": node}, "spec": spec}
            await self._client.request("POST", LEASE.path("v1", namespace=NAMESPACE), body=lease)

    async def _patch_ready(self, node: str) -> None:
        path = resource_of(*NODE).path("v1", name=node)
        found: dict[str, Any] = msgspec.json.decode(await self._client.request("GET", path))
        ready = next((entry for entry in found["status"].get("conditions") or [] if entry["type"] == "Ready"), None)
        if ready is not None:
            beat = {"conditions": [{**ready, "lastHeartbeatTime": rfc3339(self._now())}]}
            await self._client.request("PATCH", f"{path}/status", body={"status": beat}, content_type=_STRATEGIC_MERGE)


def _micro_time(when: float) -> str:
    """The format of times in Leases, with microseconds."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
