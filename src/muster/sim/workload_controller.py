"""A workload controller: a pod that was evicted, failed or lost with its node is re-created under its name.

The new pod has its own UID and none of the scheduler's annotations and labels.
"""

from __future__ import annotations

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView
from muster.kube.write.patch_bodies import SCHEDULER_ANNOTATIONS, SCHEDULER_LABELS
from muster.sim.object_store import ChangeType, ObjectStore
from muster.sim.pod_behaviour import RECREATED_ANNOTATION, PodBehaviour, behaviour_of
from muster.sim.virtual_clock import VirtualClock

# What the API server alone sets.
_SYSTEM_FIELDS = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)


class WorkloadController:
    def __init__(self, store: ObjectStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock

    def on_change(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        behaviour = behaviour_of(manifest)
        if not behaviour.recreate or behaviour.recreations >= behaviour.recreate_limit:
            return
        phase = (manifest.get("status") or {}).get("phase")
        if what is not ChangeType.DELETED:
            if phase == "Failed":
                self._delete_failed(ref, manifest)
        elif phase != "Succeeded":
            self._clock.call_after(behaviour.recreate_after_s, lambda: self._recreate(ref, manifest, behaviour))

    def _delete_failed(self, ref: ApiObjectRef, manifest: ManifestView) -> None:
        """A failed pod is deleted before the next one of its name is created."""
        if self._store.peek(ref) is manifest:
            self._store.delete(ref)

    def _recreate(self, ref: ApiObjectRef, old: ManifestView, behaviour: PodBehaviour) -> None:
        if self._store.peek(ref) is None:
            self._store.create(_recreated_pod(old, times=behaviour.recreations + 1))


def _recreated_pod(old: ManifestView, *, times: int) -> Manifest:
    metadata = {key: value for key, value in old["metadata"].items() if key not in _SYSTEM_FIELDS}
    for field, marks in (("annotations", SCHEDULER_ANNOTATIONS), ("labels", SCHEDULER_LABELS)):
        if field in metadata:
            metadata[field] = {key: value for key, value in metadata[field].items() if key not in marks}
    metadata["annotations"] = {**metadata.get("annotations", {}), RECREATED_ANNOTATION: str(times)}
    spec = {key: value for key, value in old["spec"].items() if key != "nodeName"}
    return {**old, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
