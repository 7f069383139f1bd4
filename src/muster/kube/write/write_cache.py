"""The fields of each object that the writer needs, and no more: 50,000 pods must fit into little memory.

Updated by watches and by the responses to writes, whichever comes first; it never returns to an older version. Writes whose
response has no object (a bind, an eviction) are applied at once. It belongs to the event loop alone.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from muster.kube.read import names
from muster.kube.read.api_resources import WATCHED
from muster.kube.read.object_references import (
    COMPOSITE_KIND,
    HYPERNODE,
    NODE,
    POD,
    POD_GROUP_KIND,
    QUEUE,
    QUOTAS,
    VOLUME,
    VOLUME_CLAIM,
    ApiObjectRef,
    GroupKind,
    Manifest,
    ManifestView,
)
from muster.kube.read.saved_objects import HISTORY, PLAN
from muster.kube.read.text_values import read_version
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.write.patch_bodies import DISRUPTION_TARGET, POD_SCHEDULED, SCHEDULER_LABELS, VALID


class WriteCache:
    def __init__(self) -> None:
        self._objects: dict[GroupKind, dict[ApiObjectRef, _Cached]] = {resource.key: {} for resource in WATCHED}

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def peek(self, ref: ApiObjectRef) -> ManifestView | None:
        """The object with the fields that are cached."""
        found = self._objects[ref[:2]].get(ref)
        if found is None:
            return None
        manifest: Manifest = msgspec.to_builtins(found)
        return manifest

    def version_of(self, ref: ApiObjectRef) -> str:
        """Its resourceVersion, as a precondition of a write; empty where it is not known."""
        found = self._objects[ref[:2]].get(ref)
        return found.metadata.resource_version if found is not None else ""

    def uid_of(self, ref: ApiObjectRef) -> str:
        found = self._objects[ref[:2]].get(ref)
        return found.metadata.uid if found is not None else ""

    def __len__(self) -> int:
        return sum(len(some) for some in self._objects.values())

    # -- updates ---------------------------------------------------------------------------------------------------------------

    def apply_watch(self, update: WatchUpdate) -> None:
        """An update from a watch. Raises the error of msgspec where it is not JSON."""
        objects = self._objects[update.kind]
        known = objects.get(update.ref)
        if update.update_type is UpdateType.DELETE:
            if known is not None and known.metadata.uid == update.uid:
                del objects[update.ref]
        elif (cached := _read(update.kind, update.raw, uid=update.uid, version=update.version)) is not None:
            _store_newer(objects, update.ref, known, cached)

    def apply_response(self, ref: ApiObjectRef, raw: bytes) -> None:
        """The response to a write. An object that no watch has added, or that one has deleted, is left to the watch."""
        objects = self._objects[ref[:2]]
        known = objects.get(ref)
        cached = None if known is None else _read(ref[:2], raw, uid=known.metadata.uid)
        if known is not None and cached is not None and _version(cached) > _version(known):
            _store_newer(objects, ref, known, cached)

    def put(self, ref: ApiObjectRef, raw: bytes) -> None:
        """An object of the scheduler's own, as the server responded: nobody else writes it."""
        objects, cached = self._objects[ref[:2]], _read(ref[:2], raw, uid="")
        if cached is not None:
            _store_newer(objects, ref, objects.get(ref), cached)

    def forget(self, ref: ApiObjectRef, *, uid: str) -> None:
        """The server responded that it does not exist."""
        if uid and self.uid_of(ref) == uid:
            del self._objects[ref[:2]][ref]

    def mark_bound(self, ref: ApiObjectRef, *, uid: str, node: str) -> None:
        if (found := self._cached_pod(ref, uid)) is not None:
            found.spec.node_name = sys.intern(node)

    def mark_terminating(self, ref: ApiObjectRef, *, uid: str) -> None:
        if (found := self._cached_pod(ref, uid)) is not None:
            found.metadata.deletion_timestamp = "not known yet"
            found.metadata.deletion_grace_period_seconds = None

    def _cached_pod(self, ref: ApiObjectRef, uid: str) -> _CachedObject | None:
        found = self._objects[POD].get(ref)
        return found if isinstance(found, _CachedObject) and found.metadata.uid == uid else None


# --- Cached objects ------------------------------------------------------------------------------------------------------------


class _ShortMeta(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    uid: str = ""
    resource_version: str = ""


class _FullMeta(_ShortMeta, rename="camel", omit_defaults=True, gc=False):
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _CachedCondition(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = ""


class _CachedGate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A scheduling gate; only its presence matters."""


class _CachedSpec(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Fields of pods, volumes and claims."""

    node_name: str = ""
    scheduling_gates: list[_CachedGate] | None = None
    termination_grace_period_seconds: int | None = None
    volume_name: str = ""
    claim_ref: dict[str, Any] | None = None


class _CachedStatus(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[_CachedCondition] | None = None


class _CustomObject(msgspec.Struct, gc=False):
    """A custom resource: the scheduler writes its status."""

    metadata: _ShortMeta
    status: dict[str, Any] | None = None


class _CachedPlanSpec(msgspec.Struct, gc=False):
    parts: list[str] | None = None


class _CachedPlan(msgspec.Struct, gc=False):
    """A plan that is too large for one object has parts."""

    metadata: _ShortMeta
    spec: _CachedPlanSpec = msgspec.field(default_factory=_CachedPlanSpec)


class _CachedNode(msgspec.Struct, gc=False):
    metadata: _ShortMeta
    status: _CachedStatus = msgspec.field(default_factory=_CachedStatus)


class _CachedObject(msgspec.Struct, gc=False):
    """A pod, a volume or a claim."""

    metadata: _FullMeta
    spec: _CachedSpec = msgspec.field(default_factory=_CachedSpec)
    status: _CachedStatus = msgspec.field(default_factory=_CachedStatus)


_Cached = _CustomObject | _CachedPlan | _CachedNode | _CachedObject


def _store_newer(objects: dict[ApiObjectRef, _Cached], ref: ApiObjectRef, known: _Cached | None, cached: _Cached) -> None:
    if known is not None and known.metadata.uid == cached.metadata.uid:
        if _version(cached) < _version(known):
            return
        if isinstance(known, _CachedObject) and isinstance(cached, _CachedObject):
            # Neither is ever reset, so an outdated response must not do it.
            cached.spec.node_name = cached.spec.node_name or known.spec.node_name
            cached.metadata.deletion_timestamp = cached.metadata.deletion_timestamp or known.metadata.deletion_timestamp
    objects[ref] = cached


def _version(cached: _Cached) -> int:
    return read_version(cached.metadata.resource_version)


# --- Decoding -----------------------------------------------------------------------------------------------------------------

_ANNOTATIONS = names.WRITTEN_ANNOTATIONS | {names.SELECTED_NODE, names.BOUND_BY_CONTROLLER}
_BOUND_CONDITIONS = frozenset({VALID, DISRUPTION_TARGET})
_UNBOUND_CONDITIONS = _BOUND_CONDITIONS | {POD_SCHEDULED}
"""The PodScheduled condition is not needed once the pod has a node."""

_DECODERS: dict[GroupKind, msgspec.json.Decoder[_Cached]] = {
    NODE: msgspec.json.Decoder(_CachedNode),
    PLAN: msgspec.json.Decoder(_CachedPlan),
    **dict.fromkeys((POD, VOLUME, VOLUME_CLAIM), msgspec.json.Decoder(_CachedObject)),
    **dict.fromkeys(
        (HYPERNODE, QUEUE, HISTORY, *QUOTAS, *(one.key for one in WATCHED if one.kind in (POD_GROUP_KIND, COMPOSITE_KIND))),
        msgspec.json.Decoder(_CustomObject),
    ),
}
"""Of the kinds that are cached."""


def _read(kind: GroupKind, raw: bytes, *, uid: str, version: str = "") -> _Cached | None:
    """The object with the fields that are kept, or None where its kind is not cached."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        cached = decoder.decode(raw)
    except msgspec.ValidationError:
        # Custom objects may have any value as their status. It is ignored, and may be overwritten.
        return _CustomObject(_ShortMeta(uid, version), {})
    if isinstance(cached, _CachedObject):
        _keep_fields(cached)
    elif isinstance(cached, _CachedNode):
        cached.status.conditions = _selected_conditions(cached.status.conditions, _BOUND_CONDITIONS)
    elif isinstance(cached, _CustomObject):
        cached.status = cached.status or {}
    return cached


def _keep_fields(cached: _CachedObject) -> None:
    meta, spec, status = cached.metadata, cached.spec, cached.status
    meta.labels = _selected(meta.labels, SCHEDULER_LABELS)
    meta.annotations = _selected(meta.annotations, _ANNOTATIONS)
    # Names of nodes are in many objects: one string of each is kept.
    spec.node_name = sys.intern(spec.node_name)
    status.phase = sys.intern(status.phase)
    status.nominated_node_name = sys.intern(status.nominated_node_name)
    status.conditions = _selected_conditions(status.conditions, _BOUND_CONDITIONS if spec.node_name else _UNBOUND_CONDITIONS)


def _selected(texts: dict[str, str] | None, wanted: frozenset[str]) -> dict[str, str] | None:
    return ({key: texts[key] for key in texts if key in wanted} or None) if texts else None


def _selected_conditions(conditions: list[_CachedCondition] | None, wanted: frozenset[str]) -> list[_CachedCondition] | None:
    return ([one for one in conditions if one.type in wanted] or None) if conditions else None
