"""Of each object what a writer must know, and nothing more: 50,000 pods must fit into little memory.

Fed by watches and by the answers to our own writes, whichever comes first; it never goes back to an older version. What was done
by a request whose answer shows no object (a bind, an eviction) is noted down at once. It belongs to the event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from muster.adapters.kube import names
from muster.adapters.kube.encode import CLAIM_ANNOTATIONS, MARKING_LABELS, POD_SCHEDULED, VALID
from muster.adapters.kube.pool import Pool
from muster.adapters.kube.reflector import What
from muster.adapters.kube.refs import (
    GROUP_KIND,
    HYPERNODE,
    NODE,
    POD,
    QUEUE,
    QUOTAS,
    VOLUME,
    VOLUME_CLAIM,
    KindKey,
    Manifest,
    Ref,
    Stored,
)
from muster.adapters.kube.resources import WATCHED
from muster.adapters.kube.values import read_version

CLAIM_NOTES = frozenset(CLAIM_ANNOTATIONS)
DISRUPTION_TARGET = "DisruptionTarget"
"""Type of the condition on a pod that somebody is about to delete on purpose."""


class Head(NamedTuple):
    """Whom a notice is about."""

    ref: Ref
    uid: str
    version: int


class Mirror:
    def __init__(self) -> None:
        self._copies: dict[KindKey, dict[Ref, _Copy]] = {resource.key: {} for resource in WATCHED}

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def peek(self, ref: Ref) -> Stored | None:
        """The object as far as it is known here."""
        found = self._copies[ref[:2]].get(ref)
        return None if found is None else found.shown()

    def version_of(self, ref: Ref) -> str:
        """Its resourceVersion, to write only onto what was seen; empty where it is not known."""
        found = self._copies[ref[:2]].get(ref)
        return str(found.version) if found is not None and found.version else ""

    def uid_of(self, ref: Ref) -> str:
        found = self._copies[ref[:2]].get(ref)
        return found.uid if found is not None else ""

    def bears_claim(self, ref: Ref, *, uid: str) -> bool:
        """Does the pod say anything that a bind leaves to be cleared? Most that are bound never had a claim."""
        found = self._pod(ref, uid)
        return found is not None and bool(found.nominated or (found.notes and not CLAIM_NOTES.isdisjoint(found.notes)))

    def __len__(self) -> int:
        return sum(len(some) for some in self._copies.values())

    # -- news ------------------------------------------------------------------------------------------------------------------

    def take(self, kind: KindKey, what: What, raw: bytes) -> Head:
        """What a watch tells."""
        copy, head = _read(kind, raw)
        copies = self._copies[kind]
        known = copies.get(head.ref)
        if what is What.GONE:
            if known is not None and known.uid == head.uid:
                del copies[head.ref]
        elif copy is not None:
            _keep(copies, head.ref, known, copy)
        return head

    def learn(self, kind: KindKey, raw: bytes) -> None:
        """What the server answered. One whom no watch told of yet, or told to be gone, is left to the watch."""
        copy, head = _read(kind, raw)
        known = self._copies[kind].get(head.ref)
        if copy is not None and known is not None and head.version > known.version:
            _keep(self._copies[kind], head.ref, known, copy)

    def forget(self, ref: Ref, *, uid: str) -> None:
        """The server says that it is gone."""
        if self.uid_of(ref) == uid:
            del self._copies[ref[:2]][ref]

    def note_bound(self, ref: Ref, *, uid: str, node: str) -> None:
        found = self._pod(ref, uid)
        if found is not None:
            found.node = _word(node)

    def note_leaving(self, ref: Ref, *, uid: str) -> None:
        found = self._pod(ref, uid)
        if found is not None:
            found.leaving = True

    def _pod(self, ref: Ref, uid: str) -> _Pod | None:
        found = self._copies[POD].get(ref)
        return found if isinstance(found, _Pod) and found.uid == uid else None


# --- Copies -------------------------------------------------------------------------------------------------------------------


class _Condition(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = ""


class _Copy(msgspec.Struct, gc=False):
    """Any object of which it is enough to know that it is there."""

    uid: str
    version: int

    def shown(self) -> Manifest:
        return {"metadata": {"uid": self.uid, "resourceVersion": str(self.version)}, "spec": {}, "status": {}}


class _Other(_Copy, gc=False):
    """An object whose status we write."""

    status: Mapping[str, Any]

    def shown(self) -> Manifest:
        return {**_Copy.shown(self), "status": self.status}


class _Node(_Copy, gc=False):
    conditions: tuple[_Condition, ...] = ()

    def shown(self) -> Manifest:
        return {**_Copy.shown(self), "status": _with_conditions({}, self.conditions)}


class _Volume(_Copy, gc=False):
    """A PersistentVolume or a claim on one."""

    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    phase: str

    def shown(self) -> Manifest:
        shown = _Copy.shown(self)
        shown["metadata"]["annotations"] = self.annotations
        return {**shown, "spec": self.spec, "status": {"phase": self.phase}}


class _Pod(_Copy, gc=False):
    phase: str
    node: str
    nominated: str
    gated: bool
    leaving: bool
    labels: Mapping[str, str] | None
    """Those that we write, None for the many that have none."""
    notes: Mapping[str, str] | None
    """The annotations that we write."""
    conditions: tuple[_Condition, ...]

    def shown(self) -> Manifest:
        metadata: Manifest = {"uid": self.uid, "resourceVersion": str(self.version)}
        spec: Manifest = {}
        status: Manifest = {"phase": self.phase}
        if self.labels:
            metadata["labels"] = self.labels
        if self.notes:
            metadata["annotations"] = self.notes
        if self.leaving:
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


def _keep(copies: dict[Ref, _Copy], ref: Ref, known: _Copy | None, copy: _Copy) -> None:
    if known is not None and known.uid == copy.uid:
        if copy.version < known.version:
            return
        if isinstance(known, _Pod) and isinstance(copy, _Pod):
            # Neither is ever undone: an older picture that comes late must not say otherwise.
            copy.node = copy.node or known.node
            copy.leaving = copy.leaving or known.leaving
    copies[ref] = copy


# --- Reading ------------------------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
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


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta


class _Gate(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_name: str = ""
    scheduling_gates: list[_Gate] | None = None


class _PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[_Condition] | None = None


class _WrittenPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: list[_Condition] | None = None


class _WrittenNode(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta
    status: _NodeStatus = _NodeStatus()


class _VolumeSpec(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    volume_name: str = ""
    claim_ref: dict[str, Any] | None = None


class _VolumeStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _WrittenVolume(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


class _WrittenOther(msgspec.Struct, frozen=True, gc=False):
    metadata: _ShortMeta
    status: dict[str, Any] | None = None


_words: Pool[str, str] = Pool()
_no_status: Mapping[str, Any] = {}
_WAITING = frozenset({POD_SCHEDULED, VALID, DISRUPTION_TARGET})
_BOUND = frozenset({VALID, DISRUPTION_TARGET})
"""What a pod says about its scheduling is of no use once it has a node."""
_VOLUME_NOTES = frozenset({names.SELECTED_NODE, names.BOUND_BY_CONTROLLER})


def _word(text: str) -> str:
    """Names of nodes and namespaces stand on many objects: one of each is enough."""
    return _words.share(text, text)


def _head(kind: KindKey, meta: _Meta | _ShortMeta) -> Head:
    ref = Ref(*kind, _word(meta.namespace) if meta.namespace else "", meta.name)
    return Head(ref, meta.uid, read_version(meta.resource_version))


def _read(kind: KindKey, raw: bytes) -> tuple[_Copy | None, Head]:
    """Raises what msgspec raises where not even a name can be read."""
    try:
        return _READERS[kind](kind, raw)
    except msgspec.ValidationError:
        # Custom objects may have anything for a status. It is none, then, and may be written over.
        head = _head(kind, _named.decode(raw).metadata)
        return _Copy(head.uid, head.version), head


_pods = msgspec.json.Decoder(_WrittenPod)
_nodes = msgspec.json.Decoder(_WrittenNode)
_volumes = msgspec.json.Decoder(_WrittenVolume)
_others = msgspec.json.Decoder(_WrittenOther)
_named = msgspec.json.Decoder(_Named)


def _read_pod(kind: KindKey, raw: bytes) -> tuple[_Copy, Head]:
    written = _pods.decode(raw)
    meta, spec, status = written.metadata, written.spec, written.status
    head = _head(kind, meta)
    copy = _Pod(
        uid=head.uid,
        version=head.version,
        phase=_word(status.phase),
        node=_word(spec.node_name),
        nominated=_word(status.nominated_node_name),
        gated=bool(spec.scheduling_gates),
        leaving=meta.deletion_timestamp is not None,
        labels=_chosen(meta.labels, MARKING_LABELS),
        notes=_chosen(meta.annotations, names.WRITTEN),
        conditions=_own(status.conditions, _BOUND if spec.node_name else _WAITING),
    )
    return copy, head


def _read_node(kind: KindKey, raw: bytes) -> tuple[_Copy, Head]:
    written = _nodes.decode(raw)
    head = _head(kind, written.metadata)
    return _Node(head.uid, head.version, _own(written.status.conditions, frozenset({VALID}))), head


def _read_volume(kind: KindKey, raw: bytes) -> tuple[_Copy, Head]:
    written = _volumes.decode(raw)
    head = _head(kind, written.metadata)
    notes = _chosen(written.metadata.annotations, _VOLUME_NOTES)
    return _Volume(head.uid, head.version, notes or {}, msgspec.to_builtins(written.spec), written.status.phase), head


def _read_other(kind: KindKey, raw: bytes) -> tuple[_Copy, Head]:
    written = _others.decode(raw)
    head = _head(kind, written.metadata)
    return _Other(head.uid, head.version, written.status or _no_status), head


def _read_name(kind: KindKey, raw: bytes) -> tuple[None, Head]:
    return None, _head(kind, _named.decode(raw).metadata)


def _chosen(texts: Mapping[str, str] | None, wanted: frozenset[str]) -> Mapping[str, str] | None:
    if not texts:
        return None
    return {key: texts[key] for key in texts if key in wanted} or None


def _own(conditions: list[_Condition] | None, wanted: frozenset[str]) -> tuple[_Condition, ...]:
    return tuple(one for one in conditions if one.type in wanted) if conditions else ()


_Reader = Callable[[KindKey, bytes], tuple[_Copy | None, Head]]

_READERS: dict[KindKey, _Reader] = {resource.key: _read_name for resource in WATCHED}
_READERS |= {POD: _read_pod, NODE: _read_node, VOLUME: _read_volume, VOLUME_CLAIM: _read_volume}
_READERS |= dict.fromkeys((HYPERNODE, QUEUE, *QUOTAS), _read_other)
_READERS |= {resource.key: _read_other for resource in WATCHED if resource.kind == GROUP_KIND}
