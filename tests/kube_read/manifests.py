"""Manifests for tests: the shortest that say what a test needs, and ways to read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from muster.kube.read.decoder import Decoder
from muster.model.events import ClusterObject
from muster.model.pod import Pod

T = TypeVar("T", bound=ClusterObject)
Manifest = dict[str, object]


def pod_manifest(
    *,
    name: str = "p",
    namespace: str = "default",
    labels: Mapping[str, object] | None = None,
    annotations: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    **metadata: object,
) -> Manifest:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}, "annotations": annotations or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | metadata,
        "spec": {"schedulerName": "muster", **(spec or {})},
        "status": status or {},
    }


def read(manifest: Mapping[str, object], *, wanted: type[T]) -> T:
    """The thing that a fresh decoder makes of a manifest."""
    obj = Decoder().decode(manifest)
    assert isinstance(obj, wanted), obj
    return obj


def read_pod(**problem_text: object) -> Pod:
    return read(pod_manifest(**problem_text), wanted=Pod)  # type: ignore[arg-type]


def as_json(manifest: object) -> bytes:
    return json.dumps(manifest).encode()


def bad_fields(obj: ClusterObject) -> list[str]:
    """The fields that are bad."""
    return [problem.field for problem in obj.problems]


def problem_text(obj: ClusterObject) -> str:
    """All that the thing's owner is told."""
    return "\n".join(f"{problem.field}: {problem.text}" for problem in obj.problems)
