"""Somebody with rights on pods and PodGroups in one namespace, and what she forges there: the table is `forgeries.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from muster.engine.evict.job_preempt import CAN_PREEMPT
from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.pod import PREEMPTABLE
from muster.model.queue import PREEMPTIBLE_LABEL

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
TABLE: Final[tuple[Manifest, ...]] = (*yaml.safe_load((HERE / "forgeries.yaml").read_text()), *LONG)

OPTIONS: Final = frozenset({CAN_PREEMPT, PREEMPTIBLE_LABEL})
"""Names of the API that belong to one plugin or setting and are not in `names`."""
DECIDES_BY_DESIGN: Final = frozenset(
    {
        *(PREEMPTABLE, names.DISABLE_PREEMPTIBLE, PREEMPTIBLE_LABEL, names.MIRROR_POD),
        *(names.VOLCANO_QUEUE_NAME, names.QUOTA_NAME),
        *(names.VOLCANO_GROUP_NAME, names.VOLCANO_GROUP_NAME_ALIAS, names.SIGS_POD_GROUP, names.X_K8S_POD_GROUP),
        *(names.LIGHTWEIGHT_GANG_NAME, names.GANG_NAME),
    }
)
"""On her running pod: these protect it, or charge it to another queue, because Volcano and Koordinator mean them to, and
docs/tenants.md says what restricts them; or they say of which gang it is, under whose name its eviction is decided."""
VALUES: Final = (
    *(
        "",
        "true",
        "false",
        "1",
        "0",
        "-1",
        "99999999999",
        "NaN",
        "Never",
        "NonStrict",
        "only-waiting",
        "99999h",
        "n1",
        "a",
        "whole",
    ),
    *("team-a/whole", "team", '["team-a/whole", "mallory/forged"]', "[]", "[[0, 1, 100]]", "2000-01-01T00:00:00Z"),
    *('{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]}', '{"timestamp": "2000-01-01T00:00:00Z"}'),
    *('{"a":' * 30_000, "[" * 30_000, "x" * 5000, "a\nb\x1b[31m\u202e"),
)


def _generic(value: str) -> Manifest:
    """Every name that Muster reads with the same value: on waiting pods, on a PodGroup, and on her running pod."""
    every = sorted(names.ALL_KEYS | OPTIONS)
    label = value if re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value) else "x"
    on_running = [key for key in every if key not in DECIDES_BY_DESIGN]
    return {
        "name": f"every name with the value {value[:20]!r} of {len(value)} letters",
        "pods": [
            {"annotations": dict.fromkeys(every, value), "labels": dict.fromkeys(every, label), "queue": ""},
            *({"annotations": {key: value}, "labels": {key: label}} for key in every),
        ],
        "groups": [
            {"metadata": {"name": "all", "annotations": dict.fromkeys(every, value), "labels": dict.fromkeys(every, label)}}
        ],
        "marks": {"metadata": {"annotations": dict.fromkeys(on_running, value), "labels": dict.fromkeys(on_running, label)}},
    }


FORGERIES: Final = (*TABLE, *map(_generic, VALUES))
ON_SERVER: Final = (*TABLE, *map(_generic, ("true", "99999h", "a\nb\x1b[31m\u202e")))
"""Those that are written to a real server as well, which takes its time for each of some hundred pods of a value."""


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
        **written.get("spec", {}),
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
