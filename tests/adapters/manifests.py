"""Manifests for tests: the shortest that say what a story needs, and ways to read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from muster.adapters.kube.decode import Decoder
from muster.model.events import Thing
from muster.model.pod import Pod

T = TypeVar("T", bound=Thing)
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
    thing = Decoder().decode(manifest)
    assert isinstance(thing, wanted), thing
    return thing


def read_pod(**said: object) -> Pod:
    return read(pod_manifest(**said), wanted=Pod)  # type: ignore[arg-type]


def as_json(manifest: object) -> bytes:
    return json.dumps(manifest).encode()


def faults(thing: Thing) -> list[str]:
    """The fields that are bad."""
    return [problem.field for problem in thing.problems]


def said(thing: Thing) -> str:
    """All that the thing's owner is told."""
    return "\n".join(f"{problem.field}: {problem.text}" for problem in thing.problems)
