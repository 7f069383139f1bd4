"""The API server's door: what it refuses, and what it fills in when an object is created.

Only what the embedded cluster itself relies on is checked: all else is for the scheduler to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.adapters.kube.encode import YES, stamp
from muster.adapters.kube.merge import merged
from muster.adapters.kube.names import NATIVE_GROUP
from muster.adapters.kube.refs import BUDGET, NODE, POD, Manifest, Ref, Stored
from muster.adapters.sim.budgets import share_of
from muster.adapters.sim.manifests import BadManifest
from muster.adapters.sim.objects import ObjectStore
from muster.adapters.sim.wishes import wishes_of
from muster.model.selectors import Operator, TaintEffect

HOSTNAME = "kubernetes.io/hostname"
PODS_OF_A_NODE = "110"

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


_MAPPINGS: dict[tuple[str, str], tuple[str, ...]] = {
    POD: ("spec", "status"),
    NODE: ("spec", "status", "status.capacity", "status.allocatable"),
    BUDGET: ("spec", "spec.selector", "spec.selector.matchLabels"),
}
_LISTS: dict[tuple[str, str], tuple[str, ...]] = {
    POD: ("spec.tolerations", "status.conditions"),
    NODE: ("spec.taints", "status.conditions"),
    BUDGET: ("spec.selector.matchExpressions",),
}
_EFFECTS = tuple(effect.value for effect in TaintEffect)


def check(manifest: Stored, *, ref: Ref) -> None:
    """Raises BadManifest, with the field, for what an API server would refuse."""
    for field in ("metadata.labels", "metadata.annotations", *_MAPPINGS.get(ref[:2], ())):
        _expect(_at(manifest, field), Mapping, field=field, example="{}")
    for field in _LISTS.get(ref[:2], ()):
        for i, item in enumerate(_expect(_at(manifest, field), list, field=field, example="[]") or ()):
            _expect(item, Mapping, field=f"{field}[{i}]", example="{}")
    if ref[:2] == POD:
        wishes_of(manifest)
        for i, toleration in enumerate(_at(manifest, "spec.tolerations") or ()):
            field = f"spec.tolerations[{i}]"
            _one_of(toleration.get("effect") or _EFFECTS[0], _EFFECTS, field=f"{field}.effect")
            _expect(toleration.get("tolerationSeconds"), int, field=f"{field}.tolerationSeconds", example="300")
    elif ref[:2] == NODE:
        for i, taint in enumerate(_at(manifest, "spec.taints") or ()):
            _one_of(taint.get("effect"), _EFFECTS, field=f"spec.taints[{i}].effect")
            _expect(taint.get("key") or 0, str, field=f"spec.taints[{i}].key", example="dedicated")
    elif ref[:2] == BUDGET:
        _check_budget(manifest)


def _check_budget(manifest: Stored) -> None:
    for field in ("minAvailable", "maxUnavailable"):
        written = _at(manifest, f"spec.{field}")
        try:
            share_of(written or 0, of=1)
        except ValueError:
            raise BadManifest(f"spec.{field}: {written!r} is no number; write for example 1 or 50%") from None
    for i, expression in enumerate(_at(manifest, "spec.selector.matchExpressions") or ()):
        field = f"spec.selector.matchExpressions[{i}]"
        _one_of(expression.get("operator"), tuple(o.value for o in Operator), field=f"{field}.operator")
        _expect(expression.get("key") or 0, str, field=f"{field}.key", example="app")


def _at(manifest: Stored, field: str) -> Any:
    found: Any = manifest
    for key in field.split("."):
        found = (found or {}).get(key)
    return found


def _expect(value: Any, kind: type, *, field: str, example: str) -> Any:
    if value is not None and not isinstance(value, kind):
        raise BadManifest(f"{field}: {value!r} is of the wrong type; write for example {example}")
    return value


def _one_of(value: object, known: tuple[str, ...], *, field: str) -> None:
    if value not in known:
        raise BadManifest(f"{field}: {value!r} is unknown; write one of {', '.join(known)}")


def admitted(manifest: Stored, *, ref: Ref, store: ObjectStore, now: float) -> Stored:
    """The manifest as it is created, with what nobody writes and everybody finds there."""
    if ref[:2] == POD:
        return _pod(manifest, store=store, now=now)
    if ref[:2] == NODE:
        return _node(manifest, name=ref.name, now=now)
    return manifest


def _pod(manifest: Stored, *, store: ObjectStore, now: float) -> Stored:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    patch: Manifest = {"spec": _priority(spec, store=store), "status": {}}
    if not status.get("phase"):
        patch["status"]["phase"] = "Pending"
    elif status["phase"] == "Running" and not status.get("startTime"):
        patch["status"]["startTime"] = manifest["metadata"].get("creationTimestamp") or stamp(now)
    return merged(manifest, patch)


def _priority(spec: Stored, *, store: ObjectStore) -> Manifest:
    """The number behind a pod's priority class. A number that the pod brings itself stands."""
    name = spec.get("priorityClassName")
    if spec.get("priority") is not None or name in _SYSTEM_CLASSES:
        return {"priority": spec.get("priority", _SYSTEM_CLASSES.get(name or ""))}
    found = _class(name, store=store)
    if found is None:
        return {"priority": 0}
    return {
        "priority": found.get("value", 0),
        "priorityClassName": found["metadata"]["name"],
        "preemptionPolicy": spec.get("preemptionPolicy") or found.get("preemptionPolicy"),
    }


def _class(name: str | None, *, store: ObjectStore) -> Stored | None:
    if not name:
        return next((one for _, one in store.scan((NATIVE_GROUP, "PriorityClass")) if one.get("globalDefault")), None)
    found = store.peek(Ref(NATIVE_GROUP, "PriorityClass", "", name))
    if found is None:
        raise BadManifest(f"spec.priorityClassName: there is no PriorityClass {name!r}; create it before its pods")
    return found


def _node(manifest: Stored, *, name: str, now: float) -> Stored:
    """A name label, a count of pods where none was given, and a kubelet that says it is ready."""
    labels, status = _at(manifest, "metadata.labels") or {}, manifest.get("status") or {}
    room: Manifest = {}
    for field in ("capacity", "allocatable"):
        if status.get(field) is not None and "pods" not in status[field]:
            room[field] = {"pods": PODS_OF_A_NODE}
    ready = {"type": "Ready", "status": YES, "reason": "KubeletReady", "lastTransitionTime": stamp(now)}
    patch = {
        "metadata": {"labels": {HOSTNAME: labels.get(HOSTNAME, name)}},
        "status": {**room, "conditions": status.get("conditions") or [ready]},
    }
    return merged(manifest, patch)
