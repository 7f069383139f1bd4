"""Admission of the API server: what it refuses, and the defaults that it sets when an object is created.

Only what the simulated cluster itself needs is validated: everything else is the scheduler's concern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.kube.read.names import NATIVE_GROUP
from muster.kube.read.object_references import BUDGET, NODE, POD, ApiObjectRef, Manifest, ManifestView
from muster.kube.write.merge_patch import merged
from muster.kube.write.patch_bodies import STATUS_TRUE, rfc3339
from muster.model.pod_constraints import Operator, TaintEffect
from muster.sim.api_kinds import BadManifest
from muster.sim.disruption_budgets import int_or_percent
from muster.sim.object_store import ObjectStore
from muster.sim.pod_behaviour import behaviour_of

HOSTNAME_LABEL = "kubernetes.io/hostname"
DEFAULT_MAX_PODS = "110"

_SYSTEM_PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


_MAPPING_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    POD: ("spec", "status"),
    NODE: ("spec", "status", "status.capacity", "status.allocatable"),
    BUDGET: ("spec", "spec.selector", "spec.selector.matchLabels"),
}
_LIST_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    POD: ("spec.tolerations", "status.conditions"),
    NODE: ("spec.taints", "status.conditions"),
    BUDGET: ("spec.selector.matchExpressions",),
}
_TAINT_EFFECTS = tuple(effect.value for effect in TaintEffect)


def validate_manifest(manifest: ManifestView, *, ref: ApiObjectRef) -> None:
    """Raises BadManifest, with the field, for what an API server would refuse."""
    for field in ("metadata.labels", "metadata.annotations", *_MAPPING_FIELDS.get(ref[:2], ())):
        _require_type(_field_value(manifest, field), Mapping, field=field, example="{}")
    for field in _LIST_FIELDS.get(ref[:2], ()):
        for i, item in enumerate(_require_type(_field_value(manifest, field), list, field=field, example="[]") or ()):
            _require_type(item, Mapping, field=f"{field}[{i}]", example="{}")
    if ref[:2] == POD:
        behaviour_of(manifest)
        for i, toleration in enumerate(_field_value(manifest, "spec.tolerations") or ()):
            field = f"spec.tolerations[{i}]"
            _require_one_of(toleration.get("effect") or _TAINT_EFFECTS[0], _TAINT_EFFECTS, field=f"{field}.effect")
            _require_type(toleration.get("tolerationSeconds"), int, field=f"{field}.tolerationSeconds", example="300")
    elif ref[:2] == NODE:
        for i, taint in enumerate(_field_value(manifest, "spec.taints") or ()):
            _require_one_of(taint.get("effect"), _TAINT_EFFECTS, field=f"spec.taints[{i}].effect")
            _require_type(taint.get("key") or 0, str, field=f"spec.taints[{i}].key", example="dedicated")
    elif ref[:2] == BUDGET:
        _validate_budget(manifest)


def _validate_budget(manifest: ManifestView) -> None:
    for field in ("minAvailable", "maxUnavailable"):
        written = _field_value(manifest, f"spec.{field}")
        try:
            int_or_percent(written or 0, of=1)
        except ValueError:
            raise BadManifest(f"spec.{field}: {written!r} is no number; write for example 1 or 50%") from None
    for i, expression in enumerate(_field_value(manifest, "spec.selector.matchExpressions") or ()):
        field = f"spec.selector.matchExpressions[{i}]"
        _require_one_of(expression.get("operator"), tuple(o.value for o in Operator), field=f"{field}.operator")
        _require_type(expression.get("key") or 0, str, field=f"{field}.key", example="app")


def _field_value(manifest: ManifestView, field: str) -> Any:
    found: Any = manifest
    for key in field.split("."):
        found = (found or {}).get(key)
    return found


def _require_type(value: Any, kind: type, *, field: str, example: str) -> Any:
    if value is not None and not isinstance(value, kind):
        raise BadManifest(f"{field}: {value!r} is of the wrong type; write for example {example}")
    return value


def _require_one_of(value: object, known: tuple[str, ...], *, field: str) -> None:
    if value not in known:
        raise BadManifest(f"{field}: {value!r} is unknown; write one of {', '.join(known)}")


def with_defaults(manifest: ManifestView, *, ref: ApiObjectRef, store: ObjectStore, now: float) -> ManifestView:
    """The manifest with the defaults of the API server."""
    if ref[:2] == POD:
        return _pod_with_defaults(manifest, store=store, now=now)
    if ref[:2] == NODE:
        return _node_with_defaults(manifest, name=ref.name, now=now)
    return manifest


def _pod_with_defaults(manifest: ManifestView, *, store: ObjectStore, now: float) -> ManifestView:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    patch: Manifest = {"spec": _priority(spec, store=store), "status": {}}
    if not status.get("phase"):
        patch["status"]["phase"] = "Pending"
    elif status["phase"] == "Running" and not status.get("startTime"):
        patch["status"]["startTime"] = manifest["metadata"].get("creationTimestamp") or rfc3339(now)
    return merged(manifest, patch)


def _priority(spec: ManifestView, *, store: ObjectStore) -> Manifest:
    """The value of a pod's priority class. A priority in the pod's spec takes precedence."""
    name = spec.get("priorityClassName")
    if spec.get("priority") is not None or name in _SYSTEM_PRIORITY_CLASSES:
        return {"priority": spec.get("priority", _SYSTEM_PRIORITY_CLASSES.get(name or ""))}
    found = _priority_class(name, store=store)
    if found is None:
        return {"priority": 0}
    return {
        "priority": found.get("value", 0),
        "priorityClassName": found["metadata"]["name"],
        "preemptionPolicy": spec.get("preemptionPolicy") or found.get("preemptionPolicy"),
    }


def _priority_class(name: str | None, *, store: ObjectStore) -> ManifestView | None:
    if not name:
        return next((one for _, one in store.scan((NATIVE_GROUP, "PriorityClass")) if one.get("globalDefault")), None)
    found = store.peek(ApiObjectRef(NATIVE_GROUP, "PriorityClass", "", name))
    if found is None:
        raise BadManifest(f"spec.priorityClassName: there is no PriorityClass {name!r}; create it before its pods")
    return found


def _node_with_defaults(manifest: ManifestView, *, name: str, now: float) -> ManifestView:
    """A hostname label, the maximum number of pods where it is absent, and the condition Ready."""
    labels, status = _field_value(manifest, "metadata.labels") or {}, manifest.get("status") or {}
    capacity: Manifest = {}
    for field in ("capacity", "allocatable"):
        if status.get(field) is not None and "pods" not in status[field]:
            capacity[field] = {"pods": DEFAULT_MAX_PODS}
    ready = {"type": "Ready", "status": STATUS_TRUE, "reason": "KubeletReady", "lastTransitionTime": rfc3339(now)}
    patch = {
        "metadata": {"labels": {HOSTNAME_LABEL: labels.get(HOSTNAME_LABEL, name)}},
        "status": {**capacity, "conditions": status.get("conditions") or [ready]},
    }
    return merged(manifest, patch)
