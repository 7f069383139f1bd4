"""API objects as plain values: which kinds there are, and what a manifest must have.

Stored manifests are never changed in place. A patch makes a new one that shares all that it did not touch, so that every version
of an object costs only what is new in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from muster.kube.read import names
from muster.kube.read.api_resources import LEASE, WATCHED
from muster.kube.read.lenient_decoding import as_text
from muster.kube.read.object_references import ApiObjectRef, Manifest

DEFAULT_NAMESPACE = "default"

_NAMESPACED = {resource.key: resource.namespaced for resource in (*WATCHED, LEASE)}
KINDS = tuple(_NAMESPACED)
"""In the order in which they are listed: what others refer to comes first."""

# Documents write `apiVersion: v1alpha1` for these two, without a group.
_DEFAULT_GROUPS = {"PodGroup": names.SIGS_GROUP, "ElasticQuota": names.SIGS_GROUP}


class BadManifest(ValueError):
    """An API server would refuse it. The message names the field."""


def kinds_named(kind: str) -> list[tuple[str, str]]:
    """The kinds with the name `PodGroup`, or `PodGroup.scheduling.volcano.sh` where it must be clear."""
    plain, _, group = kind.partition(".")
    found = [known for known in KINDS if known[1] == plain and group in ("", known[0])]
    if not found:
        raise BadManifest(f"kind: {kind!r} is unknown{suggestion(kind, [known for _, known in KINDS])}")
    return found


def is_namespaced(kind: tuple[str, str]) -> bool:
    return _NAMESPACED[kind]


def ref_of(manifest: Mapping[Any, Any]) -> ApiObjectRef:
    """Which object a manifest describes. Raises BadManifest where no API server could tell."""
    group, kind = _kind_of(manifest)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        raise BadManifest(f"metadata: the {kind} has none; write for example {{name: a}}")
    name, namespace = metadata.get("name"), metadata.get("namespace") or DEFAULT_NAMESPACE
    if not isinstance(name, str) or not name:
        raise BadManifest(f"metadata.name: {name!r} of the {kind} is no name; write for example a")
    if not isinstance(namespace, str):
        raise BadManifest(f"metadata.namespace: {namespace!r} of {kind} {name} is no name; write for example default")
    return ApiObjectRef(group, kind, namespace if _NAMESPACED[group, kind] else "", name)


def _kind_of(manifest: Mapping[Any, Any]) -> tuple[str, str]:
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadManifest(f"kind: {kind!r} is no kind; write for example Pod")
    if not isinstance(api_version, str) or not api_version:
        raise BadManifest(f"apiVersion: {api_version!r} of the {kind} is no version; write for example v1")
    group = api_version.rpartition("/")[0] or _DEFAULT_GROUPS.get(kind, names.CORE_GROUP)
    if (group, kind) not in _NAMESPACED:
        known = [_kind_text(found) for found in KINDS if found[1] == kind] or [found for _, found in KINDS]
        raise BadManifest(f"kind: {kind!r} of {api_version!r} is unknown{suggestion(kind, known)}")
    return group, kind


def _kind_text(kind: tuple[str, str]) -> str:
    return f"{kind[1]} of {kind[0] or 'v1'}"


def suggestion(word: str, known: list[str]) -> str:
    """The end of a message about an unknown word: the nearest one that is known."""
    close = get_close_matches(word, known, n=1) or sorted(set(known))
    return f"; write for example {close[0]}"


def with_string_annotations(manifest: Manifest) -> Manifest:
    """Annotations as the API has them, which are texts: a number, a boolean or a list becomes its JSON."""
    annotations = manifest["metadata"].get("annotations")
    if not isinstance(annotations, Mapping) or all(isinstance(value, str) for value in annotations.values()):
        return manifest
    texts = {str(key): as_text(value) for key, value in annotations.items()}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": texts}}
