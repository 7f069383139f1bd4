"""A snapshot as a file: a list of objects as `kubectl get -o json` writes one, with the time it was taken, packed where its name
says so."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.kube.read.object_references import Manifest
from muster.kube.write.patch_bodies import rfc3339

CAPTURED_AT: Final = "muster.dev/snapshot-at"
GZIP_SUFFIX: Final = ".gz"


def write(path: Path, objects: Iterable[Manifest], *, now: float) -> int:
    """How many bytes the file has."""
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"annotations": {CAPTURED_AT: rfc3339(now)}},
        "items": list(objects),
    }
    text = msgspec.json.encode(document)
    packed = gzip.compress(text, mtime=0) if path.suffix == GZIP_SUFFIX else text
    path.write_bytes(packed)
    return len(packed)


def captured_at(document: Mapping[str, Any]) -> float | None:
    """When a list of objects was taken; None for a list that does not say."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    written = annotations.get(CAPTURED_AT)
    if not isinstance(written, str):
        return None
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return None
