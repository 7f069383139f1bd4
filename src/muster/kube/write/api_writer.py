"""Single writes: the path, body and preconditions of each. One request, one response, no retries.

Pods and nodes take strategic merge patches, so that conditions of others are never overwritten. Custom resources take plain merge
patches, which replace a list whole: those have the resourceVersion as a precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from muster.kube.read.object_references import NODE, POD, VOLUME, VOLUME_CLAIM, ApiObjectRef, GroupKind, Manifest
from muster.kube.watch.api_resources import resource_of
from muster.kube.watch.client import LEASE_EXPIRED, NO_RESPONSE, ApiError, Client

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY_REQUESTS: Final = 429

WRITE_TIMEOUT_S: Final = 5.0
"""The lease duration exceeds the renew deadline by at least this: a write that starts in time ends in time."""


class NotLeading(Exception):
    """This process is not the leader any more."""


def is_retryable(error: ApiError) -> bool:
    """May the same request succeed later? The server was busy or failed, or there was no response: it may even be carried out."""
    return error.status in (NO_RESPONSE, TOO_MANY_REQUESTS) or error.status >= 500


class ApiWriter:
    """At most `concurrency` writes are in flight at once."""

    def __init__(
        self,
        client: Client,
        *,
        version_of: Callable[[GroupKind], str],
        may_write: Callable[[], bool],
        concurrency: int = 32,
        timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._client = client
        self._version_of = version_of
        self._may_write = may_write
        self._semaphore = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s
        self._without_status_subresource: set[GroupKind] = set()
        """Kinds whose CRD has no status subresource."""

    async def get(self, ref: ApiObjectRef) -> bytes:
        return await self._client.request("GET", self.path(ref), timeout_s=self._timeout_s)

    async def bind(self, ref: ApiObjectRef, binding: Manifest) -> None:
        await self._send("POST", self.path(ref, subresource="binding"), binding)

    async def evict(self, ref: ApiObjectRef, *, uid: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": options,
        }
        await self._send("POST", self.path(ref, subresource="eviction"), body)

    async def delete(self, ref: ApiObjectRef, *, uid: str) -> None:
        await self._send("DELETE", self.path(ref), {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})

    async def patch(self, ref: ApiObjectRef, patch: Manifest, *, uid: str, version: str = "") -> bytes:
        """The patched object. A conflict if the object has another UID, or another resourceVersion where one is given."""
        metadata = {**patch.get("metadata", {}), "uid": uid}
        if version:
            metadata["resourceVersion"] = version
        body = {**patch, "metadata": metadata}
        kind = ref[:2]
        if kind in _OBJECT_PATCH_KINDS:
            return await self._send("PATCH", self.path(ref), body, content_type=MERGE_PATCH)
        if kind in _STRATEGIC_PATCH_KINDS:
            return await self._send("PATCH", self.path(ref, subresource="status"), body, content_type=STRATEGIC_MERGE_PATCH)
        return await self._patch_custom(ref, body)

    async def _patch_custom(self, ref: ApiObjectRef, body: Manifest) -> bytes:
        kind = ref[:2]
        if kind not in self._without_status_subresource:
            try:
                return await self._send("PATCH", self.path(ref, subresource="status"), body, content_type=MERGE_PATCH)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
        # Either the object does not exist, and this fails as well, or its CRD has no status subresource.
        answer = await self._send("PATCH", self.path(ref), body, content_type=MERGE_PATCH)
        self._without_status_subresource.add(kind)
        return answer

    async def create_event(self, namespace: str, event: Manifest) -> None:
        await self._send("POST", f"/api/v1/namespaces/{namespace}/events", event)

    async def patch_event(self, namespace: str, name: str, patch: Manifest) -> None:
        await self._send("PATCH", f"/api/v1/namespaces/{namespace}/events/{name}", patch, content_type=MERGE_PATCH)

    def path(self, ref: ApiObjectRef, *, subresource: str = "") -> str:
        kind = ref[:2]
        return resource_of(*kind).path(self._version_of(kind), namespace=ref.namespace, name=ref.name, subresource=subresource)

    def api_version(self, ref: ApiObjectRef) -> str:
        kind = ref[:2]
        return resource_of(*kind).api_version(self._version_of(kind))

    async def _send(self, method: str, path: str, body: Any, *, content_type: str = "application/json") -> bytes:
        payload = msgspec.json.encode(body)
        async with self._semaphore:
            if not self._may_write():
                raise NotLeading
            try:
                return await self._client.request(
                    method, path, body=payload, content_type=content_type, timeout_s=self._timeout_s, retry_throttled=False
                )
            except ApiError as error:
                if error.reason == LEASE_EXPIRED:
                    raise NotLeading from None
                raise


_OBJECT_PATCH_KINDS: Final = frozenset({VOLUME, VOLUME_CLAIM})
"""The fields that are written of these are not in the status."""
_STRATEGIC_PATCH_KINDS: Final = frozenset({POD, NODE})
