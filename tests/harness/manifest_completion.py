"""Completes the manifests of scenarios for a real API server, which requires images, sizes and sources."""

from __future__ import annotations

from typing import Any, Final

from muster.kube.read import names
from muster.kube.read.object_references import NODE, POD, VOLUME, VOLUME_CLAIM, ApiObjectRef, Manifest, ManifestView
from muster.kube.write.merge_patch import merged
from muster.kube.write.patch_bodies import rfc3339
from muster.sim.admission import with_defaults
from muster.sim.object_store import ObjectStore
from muster.sim.virtual_clock import VirtualClock

PRIORITY_CLASS: Final = (names.NATIVE_GROUP, "PriorityClass")
_STORAGE_CLASS: Final = (names.STORAGE_GROUP, "StorageClass")
_CSI_NODE: Final = (names.STORAGE_GROUP, "CSINode")
_IMAGE: Final = "none"
_DEFAULT_SIZE: Final = {"storage": "1Gi"}
_MAX_USER_PRIORITY: Final = 1_000_000_000
_SERVER_SET_METADATA: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


def complete_manifest(manifest: ManifestView, *, ref: ApiObjectRef, now: float) -> ManifestView:
    """The manifest without what only the server sets, and with what it insists on."""
    finish = _COMPLETIONS.get(ref[:2])
    whole = manifest if finish is None else finish(manifest, ref, now)
    return merged(whole, {"metadata": dict.fromkeys(_SERVER_SET_METADATA)})


def priority_class_for(pod: ManifestView) -> Manifest | None:
    """A server accepts a pod's priority only through a PriorityClass: the one to create first, or None."""
    spec = pod.get("spec") or {}
    priority, policy = spec.get("priority"), spec.get("preemptionPolicy")
    # A named class may set another preemption policy, so the priority counts where both are given.
    is_said = priority is not None or policy is not None
    if (spec.get("priorityClassName") and (priority is None or policy is None)) or not is_said:
        return None
    if priority is not None and priority > _MAX_USER_PRIORITY:
        return None
    value = priority or 0
    name = f"bare-{value}" if value >= 0 else f"bare-minus-{-value}"
    made: Manifest = {
        "apiVersion": f"{names.NATIVE_GROUP}/v1",
        "kind": PRIORITY_CLASS[1],
        "metadata": {"name": name},
        "value": value,
    }
    if policy is not None:
        made["metadata"]["name"] = f"{name}-{policy.lower()}"
        made["preemptionPolicy"] = policy
    return made


def _pod(manifest: ManifestView, _: ApiObjectRef, now: float) -> ManifestView:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    patch: Manifest = {"spec": {"containers": [_container(one, i) for i, one in enumerate(spec.get("containers") or [{}])]}}
    if spec.get("initContainers"):
        patch["spec"]["initContainers"] = [_container(one, i, of="init") for i, one in enumerate(spec["initContainers"])]
    if (its_class := priority_class_for(manifest)) is not None:
        patch["spec"]["priorityClassName"] = its_class["metadata"]["name"]
    if status.get("phase") == "Running" and not status.get("startTime"):
        patch["status"] = {"startTime": manifest["metadata"].get("creationTimestamp") or rfc3339(now)}
    return merged(manifest, patch)


def _container(written: ManifestView, number: int, *, of: str = "main") -> ManifestView:
    given: Manifest = {"name": written.get("name") or f"{of}-{number}", "image": written.get("image") or _IMAGE}
    resources = written.get("resources") or {}
    # Of a resource that cannot be shared, the request must equal the limit.
    whole = {name: amount for name, amount in (resources.get("requests") or {}).items() if _is_extended(name)}
    if whole:
        given["resources"] = {"limits": whole}
    return merged(written, given)


def _is_extended(name: str) -> bool:
    return ("/" in name and not name.startswith("kubernetes.io/")) or name.startswith("hugepages-")


def _node(manifest: ManifestView, ref: ApiObjectRef, now: float) -> ManifestView:
    return with_defaults(manifest, ref=ref, store=ObjectStore(VirtualClock()), now=now)


def _volume(manifest: ManifestView, ref: ApiObjectRef, _: float) -> ManifestView:
    spec = manifest.get("spec") or {}
    given: Manifest = {
        "capacity": spec.get("capacity") or _DEFAULT_SIZE,
        "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
    }
    if not any(source in spec for source in ("csi", "hostPath", "local", "nfs")):
        given["csi"] = {"driver": "none.muster.dev", "volumeHandle": ref.name}
    kept = spec.get("claimRef")
    if kept:
        given["claimRef"] = {"apiVersion": "v1", "kind": VOLUME_CLAIM[1], "namespace": "default", **kept}
    return merged(manifest, {"spec": given})


def _volume_claim(manifest: ManifestView, _: ApiObjectRef, __: float) -> ManifestView:
    spec = manifest.get("spec") or {}
    asked = (spec.get("resources") or {}).get("requests") or _DEFAULT_SIZE
    return merged(
        manifest, {"spec": {"accessModes": spec.get("accessModes") or ["ReadWriteOnce"], "resources": {"requests": asked}}}
    )


def _storage_class(manifest: ManifestView, _: ApiObjectRef, __: float) -> ManifestView:
    return merged(manifest, {"provisioner": manifest.get("provisioner") or "none.muster.dev"})


def _csi_node(manifest: ManifestView, ref: ApiObjectRef, _: float) -> ManifestView:
    drivers: list[Any] = (manifest.get("spec") or {}).get("drivers") or []
    return merged(manifest, {"spec": {"drivers": [{"nodeID": ref.name, **driver} for driver in drivers]}})


_COMPLETIONS: Final = {
    POD: _pod,
    NODE: _node,
    VOLUME: _volume,
    VOLUME_CLAIM: _volume_claim,
    _STORAGE_CLASS: _storage_class,
    _CSI_NODE: _csi_node,
}
