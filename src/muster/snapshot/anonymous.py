"""The same cluster under other names. One word becomes one other word wherever it stands, so that all references still hold; and
words keep their order, so that ties are broken as before.

Names that everybody has (`default`, `kube-system`) stay, and so do keys of well-known labels, names of resources and of schedulers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from muster.adapters.kube import names
from muster.adapters.kube.refs import HYPERNODE, NODE, Manifest

_NAMES: Final = frozenset(
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
    }
)
_KEYS: Final = frozenset({"key", "topologyKey"})
_LISTS_OF_KEYS: Final = frozenset({"matchLabelKeys", "mismatchLabelKeys"})
_LISTS_OF_WORDS: Final = frozenset({"values"})
_TEXTS: Final = frozenset({"value"})
_MAPS_OF_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_MAPS_BY_NAME: Final = frozenset({"minTaskMember"})

_NAMING: Final = frozenset(
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
"""Annotations that hold names, and little else."""
_KNOWN: Final = frozenset(
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
_KNOWN_DOMAINS: Final = (
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "volcano.sh",
    "koordinator.sh",
    "muster.dev",
    "nvidia.com",
    "amd.com",
)
_WORD = re.compile(r"[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?")
_NUMBER = re.compile(r"-?\d+")

Alias = Callable[[str], str]


def anonymous(objects: Iterable[Manifest]) -> list[Manifest]:
    plain = _plainly(list(objects))
    words: dict[str, None] = {}

    def note(word: str) -> str:
        words[word] = None
        return word

    for each in plain:
        _renamed(each, name=note, text=_noting(note))
    width = len(str(len(words)))
    aliases = {word: f"x{number:0{width}d}" for number, word in enumerate(sorted(words))}

    def alias(word: str) -> str:
        return aliases[word]

    def in_text(key: str, text: str) -> str:
        return _WORD.sub(lambda found: aliases.get(found[0], found[0]), _without_words(key, text))

    return [_renamed(each, name=alias, text=in_text) for each in plain]


# -- what cannot be renamed as it stands -------------------------------------------------------------------------------------------


def _plainly(objects: list[Manifest]) -> list[Manifest]:
    """Patterns of names become the names that they match, and claims that are named after a pod are named outright."""
    nodes = [str(each["metadata"]["name"]) for each in objects if _kind(each) == NODE]
    domains = [str(each["metadata"]["name"]) for each in objects if _kind(each) == HYPERNODE]
    return [_spelled_out(each, {"Node": nodes, "HyperNode": domains}) for each in objects]


def _kind(manifest: Manifest) -> tuple[str, str]:
    return str(manifest["apiVersion"]).rpartition("/")[0], str(manifest["kind"])


def _spelled_out(manifest: Manifest, known: dict[str, list[str]]) -> Manifest:
    spec = manifest.get("spec") or {}
    if _kind(manifest) == HYPERNODE:
        members = [one for member in spec.get("members", ()) for one in _matched(member, known)]
        return {**manifest, "spec": {**spec, "members": members}}
    if any("ephemeral" in volume for volume in spec.get("volumes", ())):
        pod = manifest["metadata"]["name"]
        return {**manifest, "spec": {**spec, "volumes": [_named_outright(volume, pod=pod) for volume in spec["volumes"]]}}
    return manifest


def _matched(member: Manifest, known: dict[str, list[str]]) -> Iterator[Manifest]:
    pattern = ((member.get("selector") or {}).get("regexMatch") or {}).get("pattern")
    if pattern is None:
        yield member
        return
    try:
        matches = re.compile(pattern).fullmatch
    except re.error:
        return
    kind = member.get("type", "Node")
    for name in known.get(kind, ()):
        if matches(name):
            yield {"type": kind, "selector": {"exactMatch": {"name": name}}}


def _named_outright(volume: Manifest, *, pod: str) -> Manifest:
    if "ephemeral" not in volume:
        return volume
    return {"name": volume["name"], "persistentVolumeClaim": {"claimName": f"{pod}-{volume['name']}"}}


def _without_words(key: str, text: str) -> str:
    """What was said to a pod that has to leave names others in free text; only when it was said counts."""
    if key != names.SOFT_EVICTION:
        return text
    try:
        said = json.loads(text)
    except ValueError:
        return "{}"
    return json.dumps({"timestamp": said["timestamp"]}) if isinstance(said, dict) and "timestamp" in said else "{}"


# -- walking through an object -----------------------------------------------------------------------------------------------------


def _renamed(manifest: Manifest, *, name: Alias, text: Callable[[str, str], str]) -> Manifest:
    """The object with `name` of each word that may tell something, and `text` of each annotation."""

    def word(value: Any) -> Any:
        return name(value) if isinstance(value, str) and not _is_known(value) else value

    def label(key: str) -> str:
        return key if _is_known_key(key) else name(key)

    def walk(field: str, value: Any) -> Any:
        if isinstance(value, dict):
            return branch(field, value)
        if isinstance(value, list):
            if field in _LISTS_OF_KEYS:
                return [label(item) for item in value]
            return [word(item) if field in _LISTS_OF_WORDS else walk(field, item) for item in value]
        if field in _KEYS and isinstance(value, str):
            return label(value)
        return word(value) if field in _NAMES or field in _TEXTS else value

    def branch(field: str, value: dict[str, Any]) -> dict[str, Any]:
        if field == "annotations":
            return {key: text(key, said) for key, said in value.items()}
        if field in _MAPS_OF_LABELS:
            return {label(key): word(said) for key, said in value.items()}
        if field in _MAPS_BY_NAME:
            return {word(key): said for key, said in value.items()}
        return {key: walk(key, said) for key, said in value.items()}

    return branch("", manifest)


def _noting(note: Alias) -> Callable[[str, str], str]:
    def noted(key: str, text: str) -> str:
        if key in _NAMING:
            for found in _WORD.findall(text):
                if not _is_known(found):
                    note(found)
        return text

    return noted


def _is_known(word: str) -> bool:
    return word in _KNOWN or _NUMBER.fullmatch(word) is not None


def _is_known_key(key: str) -> bool:
    """`metadata.name` is the one field that selectors of nodes know."""
    domain, slash, _ = key.rpartition("/")
    return key in ("", "metadata.name", names.SIGS_POD_GROUP) or (
        bool(slash) and any(domain == known or domain.endswith(f".{known}") for known in _KNOWN_DOMAINS)
    )
