"""API objects as plain values: which kinds there are, what a manifest must have, and how a merge patch changes one.

Stored manifests are never changed in place. A patch makes a new one that shares all that it did not touch, so that every version
of an object costs only what is new in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from typing import Any, NamedTuple

from muster.adapters.kube import names

Manifest = dict[str, Any]
Stored = Mapping[str, Any]
"""A manifest to look at. Whoever wants another one makes it with `merged`."""

DEFAULT_NAMESPACE = "default"

POD = (names.CORE_GROUP, "Pod")
NODE = (names.CORE_GROUP, "Node")
BUDGET = ("policy", "PodDisruptionBudget")

# In the order in which they are listed: what others refer to comes first.
_NAMESPACED: dict[tuple[str, str], bool] = {
    (names.CORE_GROUP, "Namespace"): False,
    (names.NATIVE_GROUP, "PriorityClass"): False,
    NODE: False,
    (names.VOLCANO_TOPOLOGY_GROUP, "HyperNode"): False,
    ("storage.k8s.io", "StorageClass"): False,
    ("storage.k8s.io", "CSINode"): False,
    (names.KOORDINATOR_GROUP, "Device"): False,
    (names.CORE_GROUP, "PersistentVolume"): False,
    (names.CORE_GROUP, "PersistentVolumeClaim"): True,
    (names.VOLCANO_GROUP, "Queue"): False,
    (names.SIGS_GROUP, "ElasticQuota"): True,
    (names.X_K8S_GROUP, "ElasticQuota"): True,
    (names.VOLCANO_GROUP, "PodGroup"): True,
    (names.SIGS_GROUP, "PodGroup"): True,
    (names.X_K8S_GROUP, "PodGroup"): True,
    (names.NATIVE_GROUP, "PodGroup"): True,
    BUDGET: True,
    ("coordination.k8s.io", "Lease"): True,
    POD: True,
}
KINDS = tuple(_NAMESPACED)

# Documents write `apiVersion: v1alpha1` for these two, without a group.
_LEFT_OUT = {"PodGroup": names.SIGS_GROUP, "ElasticQuota": names.SIGS_GROUP}


class BadManifest(ValueError):
    """No API server would take this. The message names the field."""


class Ref(NamedTuple):
    """Which object: one name exists once in each kind and namespace. `namespace` is empty for objects of the whole cluster."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def kinds_called(kind: str) -> list[tuple[str, str]]:
    """The kinds that somebody may mean by `PodGroup`, or by `PodGroup.scheduling.volcano.sh` where it must be clear."""
    plain, _, group = kind.partition(".")
    found = [known for known in KINDS if known[1] == plain and group in ("", known[0])]
    if not found:
        raise BadManifest(f"kind: {kind!r} is unknown{_nearest(kind, [known for _, known in KINDS])}")
    return found


def is_namespaced(kind: tuple[str, str]) -> bool:
    return _NAMESPACED[kind]


def ref_of(manifest: Mapping[Any, Any]) -> Ref:
    """Which object a manifest describes. Raises BadManifest where no API server could tell."""
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadManifest(f"kind: {kind!r} is no kind; write for example Pod")
    if not isinstance(api_version, str) or not api_version:
        raise BadManifest(f"apiVersion: {api_version!r} of the {kind} is no version; write for example v1")
    group = api_version.rpartition("/")[0] or _LEFT_OUT.get(kind, names.CORE_GROUP)
    if (group, kind) not in _NAMESPACED:
        known = [_version(found) for found in KINDS if found[1] == kind] or [found for _, found in KINDS]
        raise BadManifest(f"kind: {kind!r} of {api_version!r} is unknown{_nearest(kind, known)}")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        raise BadManifest(f"metadata: the {kind} has none; write for example {{name: a}}")
    name, namespace = metadata.get("name"), metadata.get("namespace") or DEFAULT_NAMESPACE
    if not isinstance(name, str) or not name:
        raise BadManifest(f"metadata.name: {name!r} of the {kind} is no name; write for example a")
    if not isinstance(namespace, str):
        raise BadManifest(f"metadata.namespace: {namespace!r} of {kind} {name} is no name; write for example default")
    return Ref(group, kind, namespace if _NAMESPACED[group, kind] else "", name)


def _version(kind: tuple[str, str]) -> str:
    return f"{kind[1]} of {kind[0] or 'v1'}"


def _nearest(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1) or sorted(set(known))
    return f"; write for example {close[0]}"


def copied(value: Any) -> Any:
    """The same value, sharing nothing that could be changed."""
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [copied(part) for part in value]
    return value


def with_texts(manifest: Manifest) -> Manifest:
    """Annotations as the API has them, which are texts: a number, a boolean or a list that somebody wrote becomes its JSON."""
    annotations = manifest["metadata"].get("annotations")
    if not isinstance(annotations, Mapping) or all(isinstance(value, str) for value in annotations.values()):
        return manifest
    texts = {str(key): _text(value) for key, value in annotations.items()}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": texts}}


def _text(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    return value if isinstance(value, str) else json.dumps(value, default=str)


def merged(old: Stored, patch: Stored) -> Stored:
    """A JSON merge patch (RFC 7386): null removes, mappings merge, all else replaces. The same object if nothing changes."""
    new: dict[str, Any] | None = None
    for key, value in patch.items():
        before = old.get(key)
        after = _merged_value(before, value)
        if after is before or (after == before and type(after) is type(before)):
            continue
        if new is None:
            new = dict(old)
        if after is None:
            del new[key]
        else:
            new[key] = after
    return old if new is None else new


def _merged_value(before: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return copied(value)
    if isinstance(before, Mapping):
        return merged(before, value)
    fresh = merged({}, value)
    # A mapping that only removes things leaves nothing behind where there was nothing.
    return fresh if fresh or not value or before is not None else None


def annotation(manifest: Stored, name: str) -> str | None:
    found = (manifest["metadata"].get("annotations") or {}).get(name)
    return found if isinstance(found, str) else None
