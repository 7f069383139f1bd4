"""Somebody with rights on pods and PodGroups in one namespace, and what she forges there: the table is `forgeries.yaml`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from muster.kube.read.object_references import Manifest

HERE: Final = Path(__file__).parent
NAMESPACE: Final = "mallory"
LONG: Final = (
    {
        "name": "a gang group of thousands",
        "pods": [
            {
                "annotations": {
                    "gang.scheduling.koordinator.sh/name": "forged",
                    "gang.scheduling.koordinator.sh/min-available": "1",
                    "gang.scheduling.koordinator.sh/groups": json.dumps([f"team-a/g-{n}" for n in range(3900)]),
                }
            }
        ],
    },
    {
        "name": "a gang whose name is long",
        "pods": [{"annotations": {"gang.scheduling.koordinator.sh/name": "x" * 5000}}],
    },
)
FORGERIES: Final[tuple[Manifest, ...]] = (*yaml.safe_load((HERE / "forgeries.yaml").read_text()), *LONG)


def forged_objects(forgery: Manifest, uids: Mapping[str, str], *, number: int) -> list[Manifest]:
    """All that she makes. `uids` are those of others' objects, by `Kind/namespace/name`; `number` tells forgeries apart."""
    found = [
        *(_group(written) for written in forgery.get("groups", ())),
        *(_pod(f"forged-{number}-{at}", written) for at, written in enumerate(forgery.get("pods", ()))),
        *({"metadata": {"name": "team-a", "namespace": NAMESPACE}, **written} for written in forgery.get("objects", ())),
    ]
    return [with_uids(manifest, uids) for manifest in found]


def with_uids(manifest: Manifest, uids: Mapping[str, str]) -> Manifest:
    """The manifest with the UIDs of others in the place of their names."""
    text = json.dumps(manifest)
    for name, uid in uids.items():
        text = text.replace(f"{{uid:{name}}}", uid)
    found: Manifest = json.loads(text)
    return found


def _pod(name: str, written: Mapping[str, Any]) -> Manifest:
    queue = written.get("queue", "hers")
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"{NAMESPACE}-{name}",
        "labels": written.get("labels", {}),
        "annotations": {**({"scheduling.volcano.sh/queue-name": queue} if queue else {}), **written.get("annotations", {})},
        "ownerReferences": written.get("ownerReferences", []),
    }
    requests = {"nvidia.com/gpu": str(written.get("gpu", 4))}
    spec = {
        "schedulerName": "muster",
        "nodeSelector": {"pool": "shared"},
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}],
    }
    status = {"status": written["status"]} if "status" in written else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **status}


def _group(written: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": written.get("api", "scheduling.volcano.sh/v1beta1"),
        "kind": "PodGroup",
        "metadata": {"name": "forged", "namespace": NAMESPACE, **written.get("metadata", {})},
        "spec": written.get("spec", {"minMember": 1}),
        **({"status": written["status"]} if "status" in written else {}),
    }
