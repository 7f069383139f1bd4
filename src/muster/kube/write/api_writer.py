"""Single writes: the path, body and preconditions of each. One request, one response, no retries.

A response updates the write cache. Pods and nodes take strategic merge patches, so that conditions of others are never overwritten.
Custom resources take plain merge patches, which replace a list whole: those have the resourceVersion as a precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import NODE, POD, VOLUME, VOLUME_CLAIM, ApiObjectRef, GroupKind, Manifest
from muster.kube.read.saved_objects import HISTORY, PLAN
from muster.kube.watch.client import LEASE_EXPIRED, NO_RESPONSE, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, Client
from muster.kube.write.effect_writes import ApiWrite
from muster.kube.write.status_updates import conditions
from muster.kube.write.write_cache import WriteCache

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

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
        cache: WriteCache,
        *,
        version_of: Callable[[GroupKind], str],
        may_write: Callable[[], bool],
        concurrency: int = 32,
        timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._client = client
        self._cache = cache
        self._version_of = version_of
        self._may_write = may_write
        self._semaphore = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s
        self._without_status_subresource: set[GroupKind] = set()
        """Kinds whose CRD has no status subresource."""

    async def write(self, write: ApiWrite) -> None:
        ref, uid = write.ref, write.uid
        match write.verb:
            case "create":
                self._cache.put(ref, await self._send("POST", self._path(ref._replace(name="")), write.body))
            case "patch":
                self._cache.apply_response(ref, await self._patch(write))
            case "bind":
                await self._send("POST", self._path(ref, subresource="binding"), write.body)
                self._cache.mark_bound(ref, uid=uid, node=write.body["target"]["name"])
            case "delete":
                await self._send("DELETE", self._path(ref), _delete_options(write))
                if ref[:2] in _OWN_KINDS:
                    self._cache.forget(ref, uid=uid)
                else:
                    self._cache.mark_terminating(ref, uid=uid)
            case "evict":
                metadata, options = {"name": ref.name, "namespace": ref.namespace}, _delete_options(write)
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
                await self._send("POST", self._path(ref, subresource="eviction"), body)
                self._cache.mark_terminating(ref, uid=uid)

    async def refresh(self, ref: ApiObjectRef, *, uid: str) -> None:
        """Read the object again. Without an answer, the cached state stays."""
        try:
            answer = await self._client.request("GET", self._path(ref), timeout_s=self._timeout_s)
            # The watch need not have shown an object that this process created.
            (self._cache.put if ref[:2] in _OWN_KINDS else self._cache.apply_response)(ref, answer)
        except ApiError as error:
            if error.status == NOT_FOUND:
                self._cache.forget(ref, uid=uid or self._cache.uid_of(ref))

    async def create_event(self, namespace: str, event: Manifest) -> None:
        await self._send("POST", f"/api/v1/namespaces/{namespace}/events", event)

    async def patch_event(self, namespace: str, name: str, patch: Manifest) -> None:
        await self._send("PATCH", f"/api/v1/namespaces/{namespace}/events/{name}", patch, content_type=MERGE_PATCH)

    def api_version(self, ref: ApiObjectRef) -> str:
        kind = ref[:2]
        return resource_of(*kind).api_version(self._version_of(kind))

    async def _patch(self, write: ApiWrite) -> bytes:
        """The patched object. A conflict if the object has another UID, or another resourceVersion where the write is exact."""
        ref, kind = write.ref, write.ref[:2]
        metadata = {**write.body.get("metadata", {}), "uid": write.uid}
        if write.exact and (version := self._cache.version_of(ref)):
            metadata["resourceVersion"] = version
        body = {**write.body, "metadata": metadata}
        if kind in _OBJECT_PATCH_KINDS:
            return await self._send("PATCH", self._path(ref), body, content_type=MERGE_PATCH)
        if kind in STRATEGIC_PATCH_KINDS:
            body = self._only_changed_conditions(ref, body)
            return await self._send("PATCH", self._path(ref, subresource="status"), body, content_type=STRATEGIC_MERGE_PATCH)
        return await self._patch_custom(ref, body)

    def _only_changed_conditions(self, ref: ApiObjectRef, patch: Manifest) -> Manifest:
        """A strategic merge patch merges conditions by type: those that are there already are left out, for others may change
        them."""
        status = patch.get("status") or {}
        if "conditions" not in status:
            return patch
        known = conditions(self._cache.peek(ref))
        return {**patch, "status": {**status, "conditions": [one for one in status["conditions"] if one not in known]}}

    async def _patch_custom(self, ref: ApiObjectRef, body: Manifest) -> bytes:
        kind = ref[:2]
        if kind not in self._without_status_subresource:
            try:
                return await self._send("PATCH", self._path(ref, subresource="status"), body, content_type=MERGE_PATCH)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
        # Either the object does not exist, and this fails as well, or its CRD has no status subresource.
        answer = await self._send("PATCH", self._path(ref), body, content_type=MERGE_PATCH)
        self._without_status_subresource.add(kind)
        return answer

    def _path(self, ref: ApiObjectRef, *, subresource: str = "") -> str:
        kind = ref[:2]
        return resource_of(*kind).path(self._version_of(kind), namespace=ref.namespace, name=ref.name, subresource=subresource)

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


def _delete_options(write: ApiWrite) -> Manifest:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": write.uid}, **write.body}


_OWN_KINDS: Final = frozenset({PLAN, HISTORY})
_OBJECT_PATCH_KINDS: Final = frozenset({VOLUME, VOLUME_CLAIM}) | _OWN_KINDS
"""The fields that are written of these are not in the status."""
STRATEGIC_PATCH_KINDS: Final = frozenset({POD, NODE})
