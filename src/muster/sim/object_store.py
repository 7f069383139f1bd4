"""The API server's memory: objects by kind, namespace and name, their versions, and what changed.

It knows how objects come, change and go (UIDs, versions, preconditions, grace periods, finalizers) and nothing of what they mean.
The same calls in the same order give the same objects, UIDs and versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView
from muster.kube.write.merge_patch import copied, merged
from muster.kube.write.patch_bodies import rfc3339
from muster.sim.api_kinds import KINDS, ref_of, with_string_annotations
from muster.sim.virtual_clock import VirtualClock

DEFAULT_GRACE_S = 30


class StoreError(Exception):
    """The API server says no."""


class NotFound(StoreError):
    pass


class Conflict(StoreError):
    """It exists already, or is not the one that the caller meant."""


class ChangeType(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class ObjectChange(NamedTuple):
    """One entry of the watch log. The manifest is that version of the object and never changes."""

    what: ChangeType
    ref: ApiObjectRef
    manifest: ManifestView


class ObjectStore:
    def __init__(self, clock: VirtualClock) -> None:
        self.version = 0
        """Of the last change, of whatever object."""
        self._clock = clock
        self._objects: dict[tuple[str, str], dict[ApiObjectRef, ManifestView]] = {kind: {} for kind in KINDS}
        self._brought_uids: set[str] = set()
        self._uids_made = 0
        self._changes: list[ObjectChange] = []

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def get(self, ref: ApiObjectRef) -> Manifest:
        """A copy, the caller's own."""
        copy: Manifest = copied(self._require(ref, uid=""))
        return copy

    def listed(self, kind: tuple[str, str]) -> list[Manifest]:
        return [copied(manifest) for _, manifest in self.scan(kind)]

    def peek(self, ref: ApiObjectRef) -> ManifestView | None:
        """The stored version itself: to look at, never to change."""
        return self._objects[ref[:2]].get(ref)

    def scan(self, kind: tuple[str, str]) -> Iterator[tuple[ApiObjectRef, ManifestView]]:
        """All objects of a kind by namespace and name, to look at."""
        found = self._objects[kind]
        return ((ref, found[ref]) for ref in sorted(found))

    def drain(self) -> list[ObjectChange]:
        """The watch log since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    # -- changing --------------------------------------------------------------------------------------------------------------

    def create(self, manifest: ManifestView) -> ManifestView:
        ref = ref_of(manifest)
        if self.peek(ref) is not None:
            raise Conflict(f"{ref.kind} {ref.full_name} exists already")
        made: Manifest = with_string_annotations(copied(manifest))
        metadata = made["metadata"] = {**made["metadata"], "generation": 1}
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        else:
            metadata.pop("namespace", None)
        metadata["uid"] = self._new_uid(metadata.get("uid"))
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or rfc3339(self._clock.now)
        return self._put(ChangeType.ADDED, ref, made)

    def patch(self, ref: ApiObjectRef, patch: ManifestView, *, uid: str = "") -> ManifestView:
        """Merge a patch in (RFC 7386). One that changes nothing makes no version and no entry in the log."""
        old = self._require(ref, uid=uid)
        new = merged(old, patch)
        return old if new is old else self._replace(ref, old, with_string_annotations(dict(new)))

    def would_change(self, ref: ApiObjectRef, patch: ManifestView) -> bool:
        old = self._require(ref, uid="")
        return merged(old, patch) is not old

    def delete(self, ref: ApiObjectRef, *, uid: str = "", grace_s: int | None = None) -> None:
        """Ask it to go. It is gone at once, unless a grace period or a finalizer keeps it."""
        old = self._require(ref, uid=uid)
        metadata = old["metadata"]
        grace_s = _grace_s(ref, old, requested=grace_s)
        if not grace_s and not metadata.get("finalizers"):
            self._remove(ref, old)
            return
        if metadata.get("deletionTimestamp") and _grace_left_s(metadata) <= grace_s:
            return
        terminating = {"deletionTimestamp": rfc3339(self._clock.now + grace_s), "deletionGracePeriodSeconds": grace_s}
        self._put(ChangeType.MODIFIED, ref, {**old, "metadata": {**metadata, **terminating}})

    # -- helpers ---------------------------------------------------------------------------------------------------------------

    def _require(self, ref: ApiObjectRef, *, uid: str) -> ManifestView:
        found = self.peek(ref)
        if found is None:
            raise NotFound(f"{ref.kind} {ref.full_name} does not exist")
        if uid and found["metadata"]["uid"] != uid:
            raise Conflict(f"{ref.kind} {ref.full_name} is now another one: UID {found['metadata']['uid']}, not {uid}")
        return found

    def _replace(self, ref: ApiObjectRef, old: ManifestView, new: Manifest) -> ManifestView:
        """What the API server alone may set stays; a deleted object whose last finalizer went away is gone."""
        before, after = old["metadata"], dict(new["metadata"])
        for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
            after.pop(field, None)
            if field in before:
                after[field] = before[field]
        respecified = new.get("spec") != old.get("spec")
        after["generation"] = before["generation"] + respecified
        new["metadata"] = after
        if after.get("deletionTimestamp") and not _grace_left_s(after) and not after.get("finalizers"):
            return self._remove(ref, new)
        return self._put(ChangeType.MODIFIED, ref, new)

    def _put(self, what: ChangeType, ref: ApiObjectRef, manifest: Manifest) -> ManifestView:
        kept = self._versioned(manifest)
        self._objects[ref[:2]][ref] = kept
        self._changes.append(ObjectChange(what, ref, kept))
        return kept

    def _remove(self, ref: ApiObjectRef, manifest: ManifestView) -> ManifestView:
        del self._objects[ref[:2]][ref]
        last = self._versioned(manifest)
        self._changes.append(ObjectChange(ChangeType.DELETED, ref, last))
        return last

    def _versioned(self, manifest: ManifestView) -> ManifestView:
        self.version += 1
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version)}}

    def _new_uid(self, wanted: Any) -> str:
        """The UID that the manifest brings, if no object ever had it; else the next one. None is ever used twice."""
        if isinstance(wanted, str) and wanted and wanted not in self._brought_uids and not self._was_made(wanted):
            self._brought_uids.add(wanted)
            return wanted
        uid = ""
        while not uid or uid in self._brought_uids:
            self._uids_made += 1
            uid = _made_uid(self._uids_made)
        return uid

    def _was_made(self, uid: str) -> bool:
        made = _MADE_UID.fullmatch(uid)
        return made is not None and int(made[1], 16) <= self._uids_made and uid == _made_uid(int(made[1], 16))


_MADE_UID = re.compile("([0-9a-f]{8,12})-.*")


def _made_uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def _grace_left_s(metadata: ManifestView) -> int:
    return metadata.get("deletionGracePeriodSeconds") or 0


def _grace_s(ref: ApiObjectRef, manifest: ManifestView, *, requested: int | None) -> int:
    """Only a pod that runs somewhere is given time to go."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    if ref.kind != "Pod" or not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if requested is not None:
        return requested
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S))
