"""The objects of a real API server behind the interface of the simulator's store, so that its controllers run on both.

A read returns the last observed state, overlaid with writes that the server has not acknowledged yet, so that nothing is written
twice. Writes to one object are sent one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import BUDGET, ApiObjectRef, GroupKind, Manifest, ManifestView
from muster.kube.watch.client import CONFLICT, NOT_FOUND, ApiError, Client
from muster.kube.write.api_writer import STRATEGIC_MERGE_PATCH, is_retryable
from muster.kube.write.merge_patch import merged
from muster.sim.api_kinds import KINDS, ref_of
from muster.sim.object_store import ChangeType, Conflict, ObjectChange, ObjectStore
from muster.sim.virtual_clock import VirtualClock

log = structlog.get_logger(__name__)

_MAX_ATTEMPTS = 5
_INITIAL_BACKOFF_S = 0.1


@dataclass(frozen=True, slots=True)
class _Write:
    method: str
    path: str
    body: Manifest
    content_type: str = "application/json"


@dataclass(slots=True)
class _ObjectWrites:
    """Pending writes of one object, its expected state after them, and updates that arrived meanwhile."""

    writes: deque[_Write] = field(default_factory=deque)
    expected: ManifestView | None = None
    deferred: list[tuple[ChangeType, ManifestView]] = field(default_factory=list)


class RemoteStore(ObjectStore):
    """Kinds of Kubernetes itself, in version v1. `decode` parses an object; `on_change` is called when there are changes."""

    def __init__(
        self, clock: VirtualClock, client: Client, *, decode: Callable[[bytes], ManifestView], on_change: Callable[[], None]
    ) -> None:
        super().__init__(clock)
        self._client = client
        self._decode = decode
        self._on_change = on_change
        self._observed: dict[GroupKind, dict[ApiObjectRef, ManifestView]] = {kind: {} for kind in KINDS}
        self._pending: dict[ApiObjectRef, _ObjectWrites] = {}
        self._change_log: list[ObjectChange] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def peek(self, ref: ApiObjectRef) -> ManifestView | None:
        pending = self._pending.get(ref)
        return pending.expected if pending is not None and pending.expected is not None else self._observed[ref[:2]].get(ref)

    def scan(self, kind: GroupKind) -> Iterator[tuple[ApiObjectRef, ManifestView]]:
        found = self._observed[kind]
        return ((ref, self.peek(ref) or found[ref]) for ref in sorted(found))

    def drain(self) -> list[ObjectChange]:
        changes, self._change_log = self._change_log, []
        return changes

    def has_changes(self) -> bool:
        return bool(self._change_log)

    @property
    def is_idle(self) -> bool:
        """No write is pending."""
        return not self._pending

    def observed(self, kind: GroupKind) -> Iterable[ManifestView]:
        """The objects as the server last sent them."""
        return self._observed[kind].values()

    # -- watching --------------------------------------------------------------------------------------------------------------

    def observe(self, kind: GroupKind, what: ChangeType, raw: bytes) -> None:
        """An update from a watch. It is deferred while writes to the object are pending."""
        manifest = self._decode(raw)
        metadata = manifest["metadata"]
        ref = ApiObjectRef(*kind, metadata.get("namespace") or "", metadata["name"])
        pending = self._pending.get(ref)
        if pending is not None:
            pending.deferred.append((what, manifest))
        else:
            self._apply(ref, what, manifest)

    def _apply(self, ref: ApiObjectRef, what: ChangeType, manifest: ManifestView) -> None:
        observed = self._observed[ref[:2]]
        before = observed.get(ref)
        if before is not None and before["metadata"]["uid"] == manifest["metadata"]["uid"]:
            if what is ChangeType.DELETED:
                del observed[ref]
                # After a relist only the name of a deleted object is known; its last state is here.
                self._append_change(ChangeType.DELETED, ref, before if "spec" not in manifest else manifest)
            elif _resource_version(manifest) > _resource_version(before):
                observed[ref] = manifest
                self._append_change(ChangeType.MODIFIED, ref, manifest)
        elif what is not ChangeType.DELETED:
            if before is not None:
                self._append_change(ChangeType.DELETED, ref, before)
            observed[ref] = manifest
            self._append_change(ChangeType.ADDED, ref, manifest)

    def _append_change(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        self._change_log.append(ObjectChange(what, ref, manifest))
        self._on_change()

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def create(self, manifest: ManifestView) -> ManifestView:
        ref = ref_of(manifest)
        if self.peek(ref) is not None:
            raise Conflict(f"{ref.kind} {ref.full_name} exists already")
        created = merged(manifest, {"metadata": {"uid": None, "resourceVersion": None, "creationTimestamp": None}})
        path = resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace)
        expected = merged(created, {"metadata": {"uid": "", "resourceVersion": "0", "generation": 1}})
        self._send(ref, _Write("POST", path, dict(created)), expected=expected)
        return expected

    def patch(self, ref: ApiObjectRef, patch: ManifestView, *, uid: str = "") -> ManifestView:
        old = self._require(ref, uid=uid)
        new = merged(old, patch)
        if new is old:
            return old
        metadata = {"uid": old["metadata"]["uid"]} if old["metadata"]["uid"] else {}
        if ref[:2] == BUDGET:
            # The eviction API writes this status as well; its writes must not be overwritten.
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        for subresource, part in _by_subresource(patch, old=old):
            body = merged(part, {"metadata": metadata})
            self._send(ref, _Write("PATCH", _path(ref, subresource=subresource), dict(body), STRATEGIC_MERGE_PATCH), expected=new)
        return new

    def delete(self, ref: ApiObjectRef, *, uid: str = "", grace_s: int | None = None) -> None:
        old = self._require(ref, uid=uid)
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if known := uid or old["metadata"]["uid"]:
            options["preconditions"] = {"uid": known}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._send(ref, _Write("DELETE", _path(ref), options), expected=None)

    # -- sending ---------------------------------------------------------------------------------------------------------------

    def _send(self, ref: ApiObjectRef, write: _Write, *, expected: ManifestView | None) -> None:
        pending = self._pending.get(ref)
        is_new = pending is None
        pending = self._pending.setdefault(ref, _ObjectWrites())
        pending.writes.append(write)
        pending.expected = expected if expected is not None else pending.expected
        if is_new:
            task = asyncio.get_running_loop().create_task(self._write_all(ref, pending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop pending writes, and wait for the responses to those in flight."""
        for pending in self._pending.values():
            pending.writes.clear()
        await asyncio.gather(*self._tasks)

    async def _write_all(self, ref: ApiObjectRef, pending: _ObjectWrites) -> None:
        deferred: list[tuple[ChangeType, ManifestView]] = []
        while pending.writes:
            write = pending.writes.popleft()
            try:
                written = await self._send_retrying(write)
                if written is not None:
                    deferred.append((ChangeType.MODIFIED, written))
            except ApiError as error:
                # The object has changed or is gone.
                log_line = log.debug if error.status in (NOT_FOUND, CONFLICT) else log.warning
                log_line("write refused", method=write.method, path=write.path, error=str(error))
        del self._pending[ref]
        for what, manifest in (*deferred, *pending.deferred):
            self._apply(ref, what, manifest)
        # Also without changes: the end of the writes may be waited for.
        self._on_change()

    async def _send_retrying(self, write: _Write) -> ManifestView | None:
        """The object after the write; None after a deletion, which the watch reports. Transient errors are retried."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                raw = await self._client.request(write.method, write.path, body=write.body, content_type=write.content_type)
            except ApiError as error:
                if not is_retryable(error) or attempt == _MAX_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_INITIAL_BACKOFF_S * 2**attempt)
            else:
                return None if write.method == "DELETE" else self._decode(raw)
        raise AssertionError("the last attempt returns or raises")


def _path(ref: ApiObjectRef, *, subresource: str = "") -> str:
    return resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace, name=ref.name, subresource=subresource)


def _by_subresource(patch: ManifestView, *, old: ManifestView) -> Iterator[tuple[str, ManifestView]]:
    """The status is written through its subresource, everything else through the object."""
    rest = {key: value for key, value in patch.items() if key != "status"}
    if rest:
        yield "", rest
    if "status" in patch:
        yield "status", {"status": _changed_conditions(patch["status"], old=old.get("status") or {})}


def _changed_conditions(status: ManifestView, *, old: ManifestView) -> ManifestView:
    """Unchanged conditions are not sent: another writer may have changed them since."""
    if "conditions" not in status:
        return status
    known: list[Any] = old.get("conditions") or []
    return {**status, "conditions": [entry for entry in status["conditions"] if entry not in known]}


def _resource_version(manifest: ManifestView) -> int:
    return int(manifest["metadata"].get("resourceVersion") or 0)
