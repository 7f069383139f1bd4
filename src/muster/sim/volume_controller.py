"""The volume controllers and provisioners: volumes are bound and provisioned at once, as the scheduler chose.

Claims of a class with immediate binding are not bound here; a scenario does so in a step.
"""

from __future__ import annotations

from typing import Any

from muster.kube.read import names
from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView, volume_claim_ref, volume_ref
from muster.model.volume import VolumeChoice
from muster.sim.object_store import ObjectStore

STORAGE_CLASS = ("storage.k8s.io", "StorageClass")


def bind(store: ObjectStore, choice: VolumeChoice) -> None:
    """Bind the claim to the volume that was kept for it, or to one that is made now."""
    ref = volume_claim_ref(choice.claim)
    claim = store.peek(ref)
    if claim is None or (claim.get("spec") or {}).get("volumeName"):
        return
    name = choice.volume or _provision(store, claim, ref)
    store.patch(volume_ref(name), {"status": {"phase": "Bound"}})
    store.patch(ref, {"spec": {"volumeName": name}, "status": {"phase": "Bound"}})


def _provision(store: ObjectStore, claim: ManifestView, ref: ApiObjectRef) -> str:
    """A new volume of the claim's class, which the nodes reach that the class allows."""
    spec: dict[str, Any] = claim.get("spec") or {}
    storage_class = _storage_class(store, spec.get("storageClassName"))
    name = f"pvc-{ref.namespace}-{ref.name}"
    volume: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": (spec.get("resources") or {}).get("requests") or {},
            "accessModes": spec.get("accessModes") or [],
            "storageClassName": storage_class.get("metadata", {}).get("name", ""),
            "claimRef": {"apiVersion": "v1", "kind": ref.kind, "namespace": ref.namespace, "name": ref.name},
            "csi": {"driver": storage_class.get("provisioner", ""), "volumeHandle": name},
        },
    }
    terms = storage_class.get("allowedTopologies")
    if terms:
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [_node_selector_term(term) for term in terms]}}
    if store.peek(volume_ref(name)) is None:
        store.create(volume)
    return name


def _storage_class(store: ObjectStore, name: str | None) -> ManifestView:
    if name is not None:
        return store.peek(ApiObjectRef(*STORAGE_CLASS, "", name)) or {}
    for _, storage_class in store.scan(STORAGE_CLASS):
        annotations = storage_class["metadata"].get("annotations") or {}
        if any(annotations.get(key) == "true" for key in names.DEFAULT_STORAGE_CLASS):
            return storage_class
    return {}


def _node_selector_term(term: ManifestView) -> Manifest:
    wanted = term.get("matchLabelExpressions") or []
    return {"matchExpressions": [{"key": one["key"], "operator": "In", "values": one["values"]} for one in wanted]}
