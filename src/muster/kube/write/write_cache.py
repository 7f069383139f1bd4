"""The fields of each object that the writer needs, and no more: 50,000 pods must fit into little memory.

Updated by watches and by the responses to writes, whichever comes first; it never returns to an older version. Writes whose
response has no object (a bind, an eviction) are applied at once. It belongs to the event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from muster.kube.read import names
from muster.kube.read.interning import Interner
from muster.kube.read.object_references import (
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
from muster.kube.read.text_values import read_version
from muster.kube.watch.api_resources import WATCHED
from muster.kube.watch.reflector import UpdateType
from muster.kube.write.patch_bodies import DISRUPTION_TARGET, POD_SCHEDULED, RESERVATION_ANNOTATIONS, SCHEDULER_LABELS, VALID

RESERVATION_KEYS = frozenset(RESERVATION_ANNOTATIONS)


class ObjectIdentity(NamedTuple):
    """The object of an update."""

    ref: ApiObjectRef
    uid: str
    version: int


class WriteCache:
    def __init__(self) -> None:
        self._objects: dict[GroupKind, dict[ApiObjectRef, _CachedObject]] = {resource.key: {} for resource in WATCHED}

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def peek(self, ref: ApiObjectRef) -> ManifestView | None:
        """The object with the fields that are cached."""
        found = self._objects[ref[:2]].get(ref)
        return None if found is None else found.as_manifest()

    def version_of(self, ref: ApiObjectRef) -> str:
        """Its resourceVersion, as a precondition of a write; empty where it is not known."""
        found = self._objects[ref[:2]].get(ref)
        return str(found.version) if found is not None and found.version else ""

    def uid_of(self, ref: ApiObjectRef) -> str:
        found = self._objects[ref[:2]].get(ref)
        return found.uid if found is not None else ""

    def has_reservation(self, ref: ApiObjectRef, *, uid: str) -> bool:
        """Does the pod have a reservation to be cleared after its bind? Most never had one."""
        found = self._cached_pod(ref, uid)
        return found is not None and bool(
            found.nominated or (found.annotations and not RESERVATION_KEYS.isdisjoint(found.annotations))
        )

    def __len__(self) -> int:
        return sum(len(some) for some in self._objects.values())

    # -- updates ---------------------------------------------------------------------------------------------------------------

    def apply_watch(self, kind: GroupKind, update_type: UpdateType, raw: bytes) -> ObjectIdentity:
        """An update from a watch."""
        cached, identity = _read(kind, raw)
        objects = self._objects[kind]
        known = objects.get(identity.ref)
        if update_type is UpdateType.DELETE:
            if known is not None and known.uid == identity.uid:
                del objects[identity.ref]
        elif cached is not None:
            _store_newer(objects, identity.ref, known, cached)
        return identity

    def apply_response(self, kind: GroupKind, raw: bytes) -> None:
        """The response to a write. An object that no watch has added, or that one has deleted, is left to the watch."""
        cached, identity = _read(kind, raw)
        known = self._objects[kind].get(identity.ref)
        if cached is not None and known is not None and identity.version > known.version:
            _store_newer(self._objects[kind], identity.ref, known, cached)

    def forget(self, ref: ApiObjectRef, *, uid: str) -> None:
        """The server responded that it does not exist."""
        if self.uid_of(ref) == uid:
            del self._objects[ref[:2]][ref]

    def mark_bound(self, ref: ApiObjectRef, *, uid: str, node: str) -> None:
        found = self._cached_pod(ref, uid)
        if found is not None:
            found.node = _intern(node)

    def mark_terminating(self, ref: ApiObjectRef, *, uid: str) -> None:
        found = self._cached_pod(ref, uid)
        if found is not None:
            found.terminating = True

    def _cached_pod(self, ref: ApiObjectRef, uid: str) -> _CachedPod | None:
        found = self._objects[POD].get(ref)
        return found if isinstance(found, _CachedPod) and found.uid == uid else None


# --- Cached objects ------------------------------------------------------------------------------------------------------------


class _Condition(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = ""


class _CachedObject(msgspec.Struct, gc=False):
    """An object of which only the existence matters."""

    uid: str
    version: int

    def as_manifest(self) -> Manifest:
        return {"metadata": {"uid": self.uid, "resourceVersion": str(self.version)}, "spec": {}, "status": {}}


class _CachedStatus(_CachedObject, gc=False):
    """An object whose status the scheduler writes."""

    status: Mapping[str, Any]

    def as_manifest(self) -> Manifest:
        return {**_CachedObject.as_manifest(self), "status": self.status}


class _CachedNode(_CachedObject, gc=False):
    conditions: tuple[_Condition, ...] = ()

    def as_manifest(self) -> Manifest:
        return {**_CachedObject.as_manifest(self), "status": _with_conditions({}, self.conditions)}


class _CachedVolume(_CachedObject, gc=False):
    """A PersistentVolume or a claim on one."""

    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    phase: str

    def as_manifest(self) -> Manifest:
        manifest = _CachedObject.as_manifest(self)
        manifest["metadata"]["annotations"] = self.annotations
        return {**manifest, "spec": self.spec, "status": {"phase": self.phase}}


class _CachedPod(_CachedObject, gc=False):
    phase: str
    node: str
    nominated: str
    gated: bool
    terminating: bool
    labels: Mapping[str, str] | None
    """Those that the scheduler writes; None for most pods."""
    annotations: Mapping[str, str] | None
    """Those that the scheduler writes."""
    conditions: tuple[_Condition, ...]

    def as_manifest(self) -> Manifest:
        metadata: Manifest = {"uid": self.uid, "resourceVersion": str(self.version)}
        spec: Manifest = {}
        status: Manifest = {"phase": self.phase}
        if self.labels:
            metadata["labels"] = self.labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        if self.terminating:
            metadata["deletionTimestamp"] = True
        if self.node:
            spec["nodeName"] = self.node
        if self.gated:
            spec["schedulingGates"] = [{}]
        if self.nominated:
            status["nominatedNodeName"] = self.nominated
        return {"metadata": metadata, "spec": spec, "status": _with_conditions(status, self.conditions)}


def _with_conditions(status: Manifest, conditions: tuple[_Condition, ...]) -> Manifest:
    return {**status, "conditions": [msgspec.to_builtins(one) for one in conditions]} if conditions else status


def _store_newer(
    objects: dict[ApiObjectRef, _CachedObject], ref: ApiObjectRef, known: _CachedObject | None, cached: _CachedObject
) -> None:
    if known is not None and known.uid == cached.uid:
        if cached.version < known.version:
            return
        if isinstance(known, _CachedPod) and isinstance(cached, _CachedPod):
            # Neither is ever reset, so an outdated response must not do it.
            cached.node = cached.node or known.node
            cached.terminating = cached.terminating or known.terminating
    objects[ref] = cached


# --- Decoding -----------------------------------------------------------------------------------------------------------------


class _FullMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _ShortMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _NamedJson(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta


class _SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_name: str = ""
    scheduling_gates: list[_SchedulingGate] | None = None


class _PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[_Condition] | None = None


class _PodJson(msgspec.Struct, frozen=True, gc=False):
    metadata: _FullMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: list[_Condition] | None = None


class _NodeJson(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta
    status: _NodeStatus = _NodeStatus()


class _VolumeSpec(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    volume_name: str = ""
    claim_ref: dict[str, Any] | None = None


class _VolumeStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _VolumeJson(msgspec.Struct, frozen=True, gc=False):
    metadata: _FullMeta
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


class _StatusJson(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta
    status: dict[str, Any] | None = None


_strings: Interner[str, str] = Interner()
_no_status: Mapping[str, Any] = {}
_UNBOUND_CONDITIONS = frozenset({POD_SCHEDULED, VALID, DISRUPTION_TARGET})
_BOUND_CONDITIONS = frozenset({VALID, DISRUPTION_TARGET})
"""The PodScheduled condition is not needed once the pod has a node."""
_VOLUME_ANNOTATIONS = frozenset({names.SELECTED_NODE, names.BOUND_BY_CONTROLLER})


def _intern(text: str) -> str:
    """Names of nodes and namespaces are in many objects: one string of each is kept."""
    return _strings.intern(text, text)


def _identity_of(kind: GroupKind, meta: _FullMeta | _ShortMeta) -> ObjectIdentity:
    ref = ApiObjectRef(*kind, _intern(meta.namespace) if meta.namespace else "", meta.name)
    return ObjectIdentity(ref, meta.uid, read_version(meta.resource_version))


def _read(kind: GroupKind, raw: bytes) -> tuple[_CachedObject | None, ObjectIdentity]:
    """Raises the error of msgspec where not even a name can be decoded."""
    try:
        return _CACHE_READERS[kind](kind, raw)
    except msgspec.ValidationError:
        # Custom objects may have any value as their status. It is ignored, and may be overdecoded.
        identity = _identity_of(kind, _name_decoder.decode(raw).metadata)
        return _CachedObject(identity.uid, identity.version), identity


_pod_decoder = msgspec.json.Decoder(_PodJson)
_node_decoder = msgspec.json.Decoder(_NodeJson)
_volume_decoder = msgspec.json.Decoder(_VolumeJson)
_status_decoder = msgspec.json.Decoder(_StatusJson)
_name_decoder = msgspec.json.Decoder(_NamedJson)


def _read_pod(kind: GroupKind, raw: bytes) -> tuple[_CachedObject, ObjectIdentity]:
    decoded = _pod_decoder.decode(raw)
    meta, spec, status = decoded.metadata, decoded.spec, decoded.status
    identity = _identity_of(kind, meta)
    cached = _CachedPod(
        uid=identity.uid,
        version=identity.version,
        phase=_intern(status.phase),
        node=_intern(spec.node_name),
        nominated=_intern(status.nominated_node_name),
        gated=bool(spec.scheduling_gates),
        terminating=meta.deletion_timestamp is not None,
        labels=_select(meta.labels, SCHEDULER_LABELS),
        annotations=_select(meta.annotations, names.WRITTEN_ANNOTATIONS),
        conditions=_select_conditions(status.conditions, _BOUND_CONDITIONS if spec.node_name else _UNBOUND_CONDITIONS),
    )
    return cached, identity


def _read_node(kind: GroupKind, raw: bytes) -> tuple[_CachedObject, ObjectIdentity]:
    decoded = _node_decoder.decode(raw)
    identity = _identity_of(kind, decoded.metadata)
    return _CachedNode(identity.uid, identity.version, _select_conditions(decoded.status.conditions, frozenset({VALID}))), identity


def _read_volume(kind: GroupKind, raw: bytes) -> tuple[_CachedObject, ObjectIdentity]:
    decoded = _volume_decoder.decode(raw)
    identity = _identity_of(kind, decoded.metadata)
    annotations = _select(decoded.metadata.annotations, _VOLUME_ANNOTATIONS)
    return _CachedVolume(
        identity.uid, identity.version, annotations or {}, msgspec.to_builtins(decoded.spec), decoded.status.phase
    ), identity


def _read_status(kind: GroupKind, raw: bytes) -> tuple[_CachedObject, ObjectIdentity]:
    decoded = _status_decoder.decode(raw)
    identity = _identity_of(kind, decoded.metadata)
    return _CachedStatus(identity.uid, identity.version, decoded.status or _no_status), identity


def _read_name(kind: GroupKind, raw: bytes) -> tuple[None, ObjectIdentity]:
    return None, _identity_of(kind, _name_decoder.decode(raw).metadata)


def _select(texts: Mapping[str, str] | None, wanted: frozenset[str]) -> Mapping[str, str] | None:
    if not texts:
        return None
    return {key: texts[key] for key in texts if key in wanted} or None


def _select_conditions(conditions: list[_Condition] | None, wanted: frozenset[str]) -> tuple[_Condition, ...]:
    return tuple(one for one in conditions if one.type in wanted) if conditions else ()


_CacheReader = Callable[[GroupKind, bytes], tuple[_CachedObject | None, ObjectIdentity]]

_CACHE_READERS: dict[GroupKind, _CacheReader] = {resource.key: _read_name for resource in WATCHED}
_CACHE_READERS |= {POD: _read_pod, NODE: _read_node, VOLUME: _read_volume, VOLUME_CLAIM: _read_volume}
_CACHE_READERS |= dict.fromkeys((HYPERNODE, QUEUE, *QUOTAS), _read_status)
_CACHE_READERS |= {resource.key: _read_status for resource in WATCHED if resource.kind == POD_GROUP_KIND}
