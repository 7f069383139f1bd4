"""JSON merge patches (RFC 7386) on plain values.

A patch gives a new value that shares all unchanged parts; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.kube.read.object_references import Manifest, ManifestView

_MAPPINGS = (dict, Mapping)
"""Nearly all mappings are dicts, and the check of an abstract class is slow."""


def copied(value: Any) -> Any:
    """A deep copy."""
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [copied(part) for part in value]
    return value


def merged(old: ManifestView, patch: ManifestView) -> ManifestView:
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
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, _MAPPINGS):
        return copied(value)
    if isinstance(before, _MAPPINGS):
        return merged(before, value)
    fresh = merged({}, value)
    # A mapping that only removes keys adds nothing where there was none.
    return fresh if fresh or not value or before is not None else None


def joined(first: Manifest, then: Manifest) -> Manifest:
    """Two merge patches as one: the second overrides the first."""
    both = dict(first)
    for key, value in then.items():
        known = both.get(key)
        both[key] = joined(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both
