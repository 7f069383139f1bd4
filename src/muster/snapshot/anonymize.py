"""Replaces names. Each name has one alias wherever it occurs, so that all references still hold; and aliases sort as the names did,
so that ties are broken as before.

Well-known names (`default`, `kube-system`) stay, and so do keys of well-known labels, names of resources and of schedulers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from muster.kube.read import names
from muster.kube.read.object_references import HYPERNODE, NODE, Manifest
from muster.state.patterns import BadPattern, matching

_NAME_FIELDS: Final = frozenset(
    {
        "name",
        "namespace",
        "nodeName",
        "nominatedNodeName",
        "queue",
        "parent",
        "priorityClassName",
        "claimName",
        "volumeName",
        "storageClassName",
        "podGroupName",
        "tierName",
        "highestTierName",
        "volumeHandle",
        "driver",
        "provisioner",
        "value",
        "values",
    }
)
"""Fields with a name or the value of a label, or a list of them."""
_LABEL_KEY_FIELDS: Final = frozenset({"key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"})
_LABEL_MAPS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_NAME_KEYED_MAPS: Final = frozenset({"minTaskMember"})

_NAME_ANNOTATIONS: Final = frozenset(
    {
        names.VOLCANO_GROUP_NAME,
        names.VOLCANO_GROUP_NAME_ALIAS,
        names.VOLCANO_QUEUE_NAME,
        names.VOLCANO_TASK,
        names.GANG_NAME,
        names.GANG_GROUPS,
        names.GANG_GROUPS_ALIAS,
        names.PIPELINED_NODE,
        names.SELECTED_NODE,
        names.BETA_STORAGE_CLASS,
        names.QUOTA_NAMESPACES,
        names.VGPU_NODE,
    }
)
"""Annotations that contain names."""
_WELL_KNOWN: Final = frozenset(
    {
        "",
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "system-cluster-critical",
        "system-node-critical",
        "true",
        "false",
        "muster",
        names.ROOT_VOLCANO_QUEUE,
        names.ROOT_QUOTA,
    }
)
_WELL_KNOWN_DOMAINS: Final = (
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "volcano.sh",
    "koordinator.sh",
    "muster.dev",
    "nvidia.com",
    "amd.com",
)
_NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?")
_NUMBER_PATTERN = re.compile(r"-?\d+")

Alias = Callable[[str], str]


def anonymize(objects: Iterable[Manifest]) -> list[Manifest]:
    plain = _expand_all(list(objects))
    found: dict[str, None] = {}

    def collect(name: str) -> str:
        found[name] = None
        return name

    collector = _Renamer(collect, _collector(collect))
    for each in plain:
        collector.mapping(each)
    width = len(str(len(found)))
    aliases = {name: f"x{number:0{width}d}" for number, name in enumerate(sorted(found))}

    def in_text(key: str, text: str) -> str:
        return _NAME_PATTERN.sub(lambda match: aliases.get(match[0], match[0]), _without_message(key, text))

    renamer = _Renamer(aliases.__getitem__, in_text)
    return [renamer.mapping(each) for each in plain]


# -- names that are not written out ------------------------------------------------------------------------------------------------


def _expand_all(objects: list[Manifest]) -> list[Manifest]:
    """Name patterns become the names that they match, and claims that are named after a pod get their full name."""
    nodes = [str(each["metadata"]["name"]) for each in objects if _group_kind(each) == NODE]
    domains = [str(each["metadata"]["name"]) for each in objects if _group_kind(each) == HYPERNODE]
    return [_expanded(each, {"Node": nodes, "HyperNode": domains}) for each in objects]


def _group_kind(manifest: Manifest) -> tuple[str, str]:
    return str(manifest["apiVersion"]).rpartition("/")[0], str(manifest["kind"])


def _expanded(manifest: Manifest, known: dict[str, list[str]]) -> Manifest:
    spec = manifest.get("spec") or {}
    if _group_kind(manifest) == HYPERNODE:
        members = [one for member in spec.get("members", ()) for one in _matched(member, known)]
        return {**manifest, "spec": {**spec, "members": members}}
    if any("ephemeral" in volume for volume in spec.get("volumes", ())):
        pod = manifest["metadata"]["name"]
        return {**manifest, "spec": {**spec, "volumes": [_with_claim_name(volume, pod=pod) for volume in spec["volumes"]]}}
    return manifest


def _matched(member: Manifest, known: dict[str, list[str]]) -> list[Manifest]:
    pattern, kind = ((member.get("selector") or {}).get("regexMatch") or {}).get("pattern"), member.get("type", "Node")
    if not pattern:
        return [member]
    try:
        found = matching(pattern, known.get(kind, ()))
    except BadPattern:
        return []
    return [{"type": kind, "selector": {"exactMatch": {"name": name}}} for name in sorted(found)]


def _with_claim_name(volume: Manifest, *, pod: str) -> Manifest:
    if "ephemeral" not in volume:
        return volume
    return {"name": volume["name"], "persistentVolumeClaim": {"claimName": f"{pod}-{volume['name']}"}}


def _without_message(key: str, text: str) -> str:
    """The annotation of a soft eviction names other gangs in free text; only its time is kept."""
    if key != names.SOFT_EVICTION:
        return text
    try:
        request = json.loads(text)
    except ValueError:
        return "{}"
    return json.dumps({"timestamp": request["timestamp"]}) if isinstance(request, dict) and "timestamp" in request else "{}"


# -- traversal of an object --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Renamer:
    """Applies `name` to each name that is not well known, and `text` to each annotation."""

    name: Alias
    text: Callable[[str, str], str]

    def mapping(self, value: Manifest, *, field: str = "") -> Manifest:
        if field == "annotations":
            return {key: self.text(key, part) for key, part in value.items()}
        if field in _LABEL_MAPS:
            return {self._label_key(key): self._name(part) for key, part in value.items()}
        if field in _NAME_KEYED_MAPS:
            return {self._name(key): part for key, part in value.items()}
        return {key: self._value(part, field=key) for key, part in value.items()}

    def _value(self, value: Any, *, field: str) -> Any:
        if isinstance(value, dict):
            return self.mapping(value, field=field)
        if isinstance(value, list | tuple):
            return [self._value(item, field=field) for item in value]
        if isinstance(value, str) and field in _LABEL_KEY_FIELDS:
            return self._label_key(value)
        return self._name(value) if field in _NAME_FIELDS else value

    def _name(self, value: Any) -> Any:
        return self.name(value) if isinstance(value, str) and not _is_well_known(value) else value

    def _label_key(self, key: str) -> str:
        return key if _is_well_known_key(key) else self.name(key)


def _collector(collect: Alias) -> Callable[[str, str], str]:
    def collected(key: str, text: str) -> str:
        if key in _NAME_ANNOTATIONS:
            for found in _NAME_PATTERN.findall(text):
                if not _is_well_known(found):
                    collect(found)
        return text

    return collected


def _is_well_known(name: str) -> bool:
    return name in _WELL_KNOWN or _NUMBER_PATTERN.fullmatch(name) is not None


def _is_well_known_key(key: str) -> bool:
    """`metadata.name` is the only field of node selectors."""
    domain, slash, _ = key.rpartition("/")
    return key in ("", "metadata.name", names.SIGS_POD_GROUP) or (
        bool(slash) and any(domain == known or domain.endswith(f".{known}") for known in _WELL_KNOWN_DOMAINS)
    )
