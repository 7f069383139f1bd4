"""From what a scenario says to what a real API server takes: it wants images, sizes and sources that no scenario cares for."""

from __future__ import annotations

from typing import Any, Final

from muster.adapters.kube import names
from muster.adapters.kube.encode import stamp
from muster.adapters.kube.merge import merged
from muster.adapters.kube.refs import NODE, POD, VOLUME, VOLUME_CLAIM, Manifest, Ref, Stored
from muster.adapters.sim.admission import admitted
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.objects import ObjectStore

CLASS: Final = (names.NATIVE_GROUP, "PriorityClass")
_STORAGE_CLASS: Final = (names.STORAGE_GROUP, "StorageClass")
_CSI_NODE: Final = (names.STORAGE_GROUP, "CSINode")
_IMAGE: Final = "none"
_SIZE: Final = {"storage": "1Gi"}
_HIGHEST_OF_USERS: Final = 1_000_000_000
_SET_BY_THE_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


def completed(manifest: Stored, *, ref: Ref, now: float) -> Stored:
    """The manifest without what only the server sets, and with what it insists on."""
    finish = _FINISH.get(ref[:2])
    whole = manifest if finish is None else finish(manifest, ref, now)
    return merged(whole, {"metadata": dict.fromkeys(_SET_BY_THE_SERVER)})


def class_for(pod: Stored) -> Manifest | None:
    """What a pod says of its priority itself, a server takes only from a class: the one to make first, or None."""
    spec = pod.get("spec") or {}
    priority, policy = spec.get("priority"), spec.get("preemptionPolicy")
    # A class that is named may say otherwise about preempting, so the number counts where both are said.
    is_said = priority is not None or policy is not None
    if (spec.get("priorityClassName") and (priority is None or policy is None)) or not is_said:
        return None
    if priority is not None and priority > _HIGHEST_OF_USERS:
        return None
    value = priority or 0
    name = f"bare-{value}" if value >= 0 else f"bare-minus-{-value}"
    made: Manifest = {"apiVersion": f"{names.NATIVE_GROUP}/v1", "kind": CLASS[1], "metadata": {"name": name}, "value": value}
    if policy is not None:
        made["metadata"]["name"] = f"{name}-{policy.lower()}"
        made["preemptionPolicy"] = policy
    return made


def _pod(manifest: Stored, _: Ref, now: float) -> Stored:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    patch: Manifest = {"spec": {"containers": [_container(one, i) for i, one in enumerate(spec.get("containers") or [{}])]}}
    if spec.get("initContainers"):
        patch["spec"]["initContainers"] = [_container(one, i, of="init") for i, one in enumerate(spec["initContainers"])]
    if (its_class := class_for(manifest)) is not None:
        patch["spec"]["priorityClassName"] = its_class["metadata"]["name"]
    if status.get("phase") == "Running" and not status.get("startTime"):
        patch["status"] = {"startTime": manifest["metadata"].get("creationTimestamp") or stamp(now)}
    return merged(manifest, patch)


def _container(written: Stored, number: int, *, of: str = "main") -> Stored:
    given: Manifest = {"name": written.get("name") or f"{of}-{number}", "image": written.get("image") or _IMAGE}
    resources = written.get("resources") or {}
    # Of what cannot be shared, nobody may ask for less than it may use.
    whole = {name: amount for name, amount in (resources.get("requests") or {}).items() if _is_extended(name)}
    if whole:
        given["resources"] = {"limits": whole}
    return merged(written, given)


def _is_extended(name: str) -> bool:
    return ("/" in name and not name.startswith("kubernetes.io/")) or name.startswith("hugepages-")


def _node(manifest: Stored, ref: Ref, now: float) -> Stored:
    return admitted(manifest, ref=ref, store=ObjectStore(Clock()), now=now)


def _volume(manifest: Stored, ref: Ref, _: float) -> Stored:
    spec = manifest.get("spec") or {}
    given: Manifest = {
        "capacity": spec.get("capacity") or _SIZE,
        "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
    }
    if not any(source in spec for source in ("csi", "hostPath", "local", "nfs")):
        given["csi"] = {"driver": "none.muster.dev", "volumeHandle": ref.name}
    kept = spec.get("claimRef")
    if kept:
        given["claimRef"] = {"apiVersion": "v1", "kind": VOLUME_CLAIM[1], "namespace": "default", **kept}
    return merged(manifest, {"spec": given})


def _claim(manifest: Stored, _: Ref, __: float) -> Stored:
    spec = manifest.get("spec") or {}
    asked = (spec.get("resources") or {}).get("requests") or _SIZE
    return merged(
        manifest, {"spec": {"accessModes": spec.get("accessModes") or ["ReadWriteOnce"], "resources": {"requests": asked}}}
    )


def _storage_class(manifest: Stored, _: Ref, __: float) -> Stored:
    return merged(manifest, {"provisioner": manifest.get("provisioner") or "none.muster.dev"})


def _csi_node(manifest: Stored, ref: Ref, _: float) -> Stored:
    drivers: list[Any] = (manifest.get("spec") or {}).get("drivers") or []
    return merged(manifest, {"spec": {"drivers": [{"nodeID": ref.name, **driver} for driver in drivers]}})


_FINISH: Final = {
    POD: _pod,
    NODE: _node,
    VOLUME: _volume,
    VOLUME_CLAIM: _claim,
    _STORAGE_CLASS: _storage_class,
    _CSI_NODE: _csi_node,
}
