"""The objects of a real API server, for the wheels of the embedded cluster: its kubelets and controllers turn here unchanged.

What they read is what the server told, and over it what they wrote themselves and the server has not answered yet: so nobody
does a thing twice because the news of it is on its way. Writes on one object go out one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from muster.kube.read.object_references import BUDGET, ApiObjectRef, GroupKind, Manifest, ManifestView
from muster.kube.watch.api_resources import resource_of
from muster.kube.watch.client import ApiError, Client
from muster.kube.write.merge_patch import merged
from muster.sim.api_kinds import KINDS, ref_of
from muster.sim.object_store import ChangeType, Conflict, ObjectChange, ObjectStore
from muster.sim.virtual_clock import VirtualClock

log = structlog.get_logger(__name__)

# Its lists of conditions are merged by type: those that others write meanwhile stay.
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_MAX_ATTEMPTS = 5
_INITIAL_BACKOFF_S = 0.1
_STALE_STATUSES = frozenset({404, 409})
"""Answers of a world that moved on meanwhile."""
_FINAL_STATUSES = _STALE_STATUSES | {400, 403, 422}
"""Answers that asking again would not change."""


@dataclass(frozen=True, slots=True)
class _Write:
    method: str
    path: str
    body: Manifest
    content_type: str = "application/json"


@dataclass(slots=True)
class _ObjectWrites:
    """What is under way for one object: writes, how it looks once they are done, and what was heard of it meanwhile."""

    writes: deque[_Write] = field(default_factory=deque)
    expected: ManifestView | None = None
    deferred: list[tuple[ChangeType, ManifestView]] = field(default_factory=list)


class RemoteStore(ObjectStore):
    """Kinds of Kubernetes itself, in version v1. `decode` makes an object of what the server sent; `on_change` is called when
    there is something to react to."""

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

    # -- looking ---------------------------------------------------------------------------------------------------------------

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
        """Nothing is on its way to the server."""
        return not self._pending

    def versions(self, kind: GroupKind) -> dict[str, str]:
        """Of each object that the server told of, by UID."""
        found = (manifest["metadata"] for manifest in self._observed[kind].values())
        return {metadata["uid"]: metadata["resourceVersion"] for metadata in found}

    # -- hearing ---------------------------------------------------------------------------------------------------------------

    def observe(self, kind: GroupKind, what: ChangeType, raw: bytes) -> None:
        """What the server says of an object. It waits while we write on that object ourselves."""
        manifest = self._decode(raw)
        metadata = manifest["metadata"]
        ref = ApiObjectRef(*kind, metadata.get("namespace") or "", metadata["name"])
        pending = self._pending.get(ref)
        if pending is not None:
            pending.deferred.append((what, manifest))
        else:
            self._apply(ref, what, manifest)

    def _apply(self, ref: ApiObjectRef, what: ChangeType, manifest: ManifestView) -> None:
        told = self._observed[ref[:2]]
        before = told.get(ref)
        if before is not None and before["metadata"]["uid"] == manifest["metadata"]["uid"]:
            if what is ChangeType.DELETED:
                del told[ref]
                # After a gap only the name of what is gone is told; what it was is known here.
                self._append_change(ChangeType.DELETED, ref, before if "spec" not in manifest else manifest)
            elif _resource_version(manifest) > _resource_version(before):
                told[ref] = manifest
                self._append_change(ChangeType.MODIFIED, ref, manifest)
        elif what is not ChangeType.DELETED:
            if before is not None:
                self._append_change(ChangeType.DELETED, ref, before)
            told[ref] = manifest
            self._append_change(ChangeType.ADDED, ref, manifest)

    def _append_change(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        self._change_log.append(ObjectChange(what, ref, manifest))
        self._on_change()

    # -- changing --------------------------------------------------------------------------------------------------------------

    def create(self, manifest: ManifestView) -> ManifestView:
        ref = ref_of(manifest)
        if self.peek(ref) is not None:
            raise Conflict(f"{ref.kind} {ref.full_name} exists already")
        made = merged(manifest, {"metadata": {"uid": None, "resourceVersion": None, "creationTimestamp": None}})
        path = resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace)
        unborn = merged(made, {"metadata": {"uid": "", "resourceVersion": "0", "generation": 1}})
        self._send(ref, _Write("POST", path, dict(made)), expected=unborn)
        return unborn

    def patch(self, ref: ApiObjectRef, patch: ManifestView, *, uid: str = "") -> ManifestView:
        old = self._require(ref, uid=uid)
        new = merged(old, patch)
        if new is old:
            return old
        metadata = {"uid": old["metadata"]["uid"]} if old["metadata"]["uid"] else {}
        if ref[:2] == BUDGET:
            # Evictions count on the status as well; what they wrote since must not be written over.
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        for subresource, part in _by_subresource(patch, old=old):
            body = merged(part, {"metadata": metadata})
            self._send(ref, _Write("PATCH", _path(ref, subresource=subresource), dict(body), _STRATEGIC_MERGE), expected=new)
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
        """Send nothing more, and wait for the answers to what was sent."""
        for pending in self._pending.values():
            pending.writes.clear()
        await asyncio.gather(*self._tasks)

    async def _write_all(self, ref: ApiObjectRef, pending: _ObjectWrites) -> None:
        deferred: list[tuple[ChangeType, ManifestView]] = []
        while pending.writes:
            write = pending.writes.popleft()
            try:
                answer = await self._send_retrying(write)
                if answer is not None:
                    deferred.append((ChangeType.MODIFIED, answer))
            except ApiError as error:
                tell = log.debug if error.status in _STALE_STATUSES else log.warning
                tell("write refused", method=write.method, path=write.path, error=str(error))
        del self._pending[ref]
        for what, manifest in (*deferred, *pending.deferred):
            self._apply(ref, what, manifest)
        # Also where nothing was heard: whoever waits for this to be over looks again.
        self._on_change()

    async def _send_retrying(self, write: _Write) -> ManifestView | None:
        """The object as it is now; None after a deletion, of which the watch tells. Trouble that may pass is waited out."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                raw = await self._client.request(write.method, write.path, body=write.body, content_type=write.content_type)
            except ApiError as error:
                if error.status in _FINAL_STATUSES or attempt == _MAX_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_INITIAL_BACKOFF_S * 2**attempt)
            else:
                return None if write.method == "DELETE" else self._decode(raw)
        raise AssertionError("the last attempt returns or raises")


def _path(ref: ApiObjectRef, *, subresource: str = "") -> str:
    return resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace, name=ref.name, subresource=subresource)


def _by_subresource(patch: ManifestView, *, old: ManifestView) -> Iterator[tuple[str, ManifestView]]:
    """The status has a door of its own, and what is not status another one."""
    rest = {key: value for key, value in patch.items() if key != "status"}
    if rest:
        yield "", rest
    if "status" in patch:
        yield "status", {"status": _changed_conditions(patch["status"], old=old.get("status") or {})}


def _changed_conditions(status: ManifestView, *, old: ManifestView) -> ManifestView:
    """A condition that is as it was may have been changed by others since: it is not sent."""
    if "conditions" not in status:
        return status
    known: list[Any] = old.get("conditions") or []
    return {**status, "conditions": [entry for entry in status["conditions"] if entry not in known]}


def _resource_version(manifest: ManifestView) -> int:
    return int(manifest["metadata"].get("resourceVersion") or 0)
