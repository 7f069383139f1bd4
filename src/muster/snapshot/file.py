"""A snapshot as a file: a list of objects as `kubectl get -o json` writes one, with the time it was taken, packed where its name
says so."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.adapters.kube.encode import stamp
from muster.adapters.kube.refs import Manifest

TAKEN_AT: Final = "muster.dev/snapshot-at"
PACKED: Final = ".gz"


def write(path: Path, objects: Iterable[Manifest], *, now: float) -> int:
    """How many bytes the file has."""
    document = {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": {TAKEN_AT: stamp(now)}}, "items": list(objects)}
    text = msgspec.json.encode(document)
    packed = gzip.compress(text, mtime=0) if path.suffix == PACKED else text
    path.write_bytes(packed)
    return len(packed)


def taken_at(document: Mapping[str, Any]) -> float | None:
    """When a list of objects was taken; None for a list that does not say."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    written = annotations.get(TAKEN_AT)
    if not isinstance(written, str):
        return None
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return None
