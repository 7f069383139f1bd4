"""The objects of one watched resource: which updates follow from a list, an event or a deletion that was missed.

Only names, UIDs and versions are kept, so that after a relist only what changed is passed on.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from muster.kube.read.api_resources import ApiResource
from muster.kube.read.object_references import ApiObjectRef, GroupKind


class UpdateType(Enum):
    UPSERT = "upsert"
    DELETE = "delete"
    SYNCED = "synced"
    """All existing objects were passed on."""


class WatchUpdate(NamedTuple):
    """One update of one object; SYNCED is one of its kind. A DELETE that is found by a relist has the metadata only."""

    update_type: UpdateType
    ref: ApiObjectRef
    uid: str = ""
    version: str = ""
    raw: bytes = b""

    @property
    def kind(self) -> GroupKind:
        return self.ref[:2]


class ObjectTracker:
    """`found` are the objects of a list so far, None where there is no list; `updates` gets what has to be passed on."""

    def __init__(self, resource: ApiResource) -> None:
        self.known: dict[str, tuple[str, str]] = {}
        """UID and version of each object."""
        self.version = resource.versions[0]
        """In which it is read."""
        self.synced = WatchUpdate(UpdateType.SYNCED, ApiObjectRef(*resource.key, "", ""))
        self._resource = resource

    def upsert(self, raw: msgspec.Raw, *, found: set[str] | None, updates: list[WatchUpdate]) -> str:
        """The resourceVersion of the object."""
        head = _HEAD_DECODER.decode(raw)
        meta = head.metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.add(key)
        known = self.known.get(key)
        if known is None or known != (meta.uid, meta.resource_version):
            if known is not None and known[0] != meta.uid:
                updates.append(self._missed_delete(key))
            self.known[key] = (meta.uid, meta.resource_version)
            manifest = bytes(raw) if head.kind else self._with_type_meta(raw)
            updates.append(WatchUpdate(UpdateType.UPSERT, self._ref(meta.namespace, meta.name), *self.known[key], manifest))
        return meta.resource_version

    def delete(self, raw: msgspec.Raw, *, found: set[str] | None, updates: list[WatchUpdate]) -> str:
        """The resourceVersion of the deletion."""
        meta = _HEAD_DECODER.decode(raw).metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.discard(key)
        known = self.known.get(key)
        if known is not None and known[0] == meta.uid:
            del self.known[key]
            ref = self._ref(meta.namespace, meta.name)
            updates.append(WatchUpdate(UpdateType.DELETE, ref, meta.uid, meta.resource_version, bytes(raw)))
        return meta.resource_version

    def finish_list(self, found: set[str], *, updates: list[WatchUpdate]) -> None:
        """The list is complete: objects that are not in it were deleted."""
        updates.extend(self._missed_delete(key) for key in [key for key in self.known if key not in found])
        updates.append(self.synced)

    def _missed_delete(self, key: str) -> WatchUpdate:
        """A deletion that happened while there was no watch."""
        namespace, _, name = key.partition("/")
        uid, version = self.known.pop(key)
        manifest = {
            "apiVersion": self._resource.api_version(self.version),
            "kind": self._resource.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version},
        }
        return WatchUpdate(UpdateType.DELETE, self._ref(namespace, name), uid, version, msgspec.json.encode(manifest))

    def _ref(self, namespace: str, name: str) -> ApiObjectRef:
        return ApiObjectRef(*self._resource.key, sys.intern(namespace), name)

    def _with_type_meta(self, raw: msgspec.Raw) -> bytes:
        """The items of a list have no apiVersion and kind."""
        type_meta = f'{{"apiVersion":"{self._resource.api_version(self.version)}","kind":"{self._resource.kind}",'
        return type_meta.encode() + bytes(raw).lstrip()[1:]


class _ObjectHeadMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _ObjectHead(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    metadata: _ObjectHeadMeta = _ObjectHeadMeta()


_HEAD_DECODER: Final = msgspec.json.Decoder(_ObjectHead)
