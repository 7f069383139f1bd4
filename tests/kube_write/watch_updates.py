"""Updates as a reflector passes them on."""

from __future__ import annotations

import json
from typing import Any

from muster.kube.read.object_references import ApiObjectRef, GroupKind
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate


def watch_update(kind: GroupKind, manifest: dict[str, Any], update_type: UpdateType = UpdateType.UPSERT) -> WatchUpdate:
    meta = manifest["metadata"]
    ref = ApiObjectRef(*kind, meta.get("namespace", ""), meta["name"])
    return WatchUpdate(update_type, ref, meta["uid"], meta.get("resourceVersion", ""), json.dumps(manifest).encode())
