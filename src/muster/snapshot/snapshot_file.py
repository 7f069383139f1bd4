"""A snapshot as a file: a List of objects as `kubectl get -o json` prints it, with the time of the capture; compressed where its
name ends in .gz."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.kube.read.object_references import Manifest
from muster.kube.write.patch_bodies import rfc3339
from muster.private_file import open_private

CAPTURED_AT: Final = "muster.dev/snapshot-at"
GZIP_SUFFIX: Final = ".gz"


def write(path: Path, objects: Iterable[Manifest], *, now: float) -> int:
    """The size of the file in bytes."""
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"annotations": {CAPTURED_AT: rfc3339(now)}},
        "items": list(objects),
    }
    text = msgspec.json.encode(document)
    data = gzip.compress(text, mtime=0) if path.suffix == GZIP_SUFFIX else text
    with open_private(path, "wb") as file:
        file.write(data)
    return len(data)


def captured_at(document: Mapping[str, Any]) -> float | None:
    """When a List was captured; None where it has no valid time."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    written = annotations.get(CAPTURED_AT)
    if not isinstance(written, str):
        return None
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return None
