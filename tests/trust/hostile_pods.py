"""Pods of one namespace that cost a scheduler as much as a tenant can make them cost, by kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.kube.read.object_references import Manifest

NAMESPACE: Final = "mallory"
_HOSTNAME: Final = "kubernetes.io/hostname"


def waiting_pod(
    name: str, *, cpu: str, namespace: str = NAMESPACE, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Manifest:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {"schedulerName": "muster", "containers": containers, **spec},
    }


def _plain(number: int) -> Manifest:
    """All alike, and larger than any node."""
    return waiting_pod(f"h{number}", cpu="1000")


def _different(number: int) -> Manifest:
    """Each with a request of its own, a little more than is free anywhere."""
    return waiting_pod(f"h{number}", cpu=f"{15_000 - number}m")


def _affinity(number: int) -> Manifest:
    """Each with terms of its own about other pods."""
    terms = [
        {"topologyKey": _HOSTNAME, "labelSelector": {"matchExpressions": [{"key": f"k{number}-{at}", "operator": "Exists"}]}}
        for at in range(10)
    ]
    return waiting_pod(f"h{number}", cpu="1", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def _groups(number: int) -> Manifest:
    """Each a gang that lists thousands of others."""
    names = [f"{NAMESPACE}/g{number}", *(f"team-a/g-{other}" for other in range(3900))]
    annotations = {
        "gang.scheduling.koordinator.sh/name": f"g{number}",
        "gang.scheduling.koordinator.sh/min-available": "1",
        "gang.scheduling.koordinator.sh/groups": json.dumps(names),
    }
    return waiting_pod(f"h{number}", cpu="1000", annotations=annotations)


KINDS: Final[Mapping[str, Callable[[int], Manifest]]] = {
    "plain": _plain,
    "different": _different,
    "affinity": _affinity,
    "groups": _groups,
}
