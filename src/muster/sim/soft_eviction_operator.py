"""An operator that deletes pods with the label of a soft eviction after a while. It knows only the label.

It handles pods with the annotation `sim.muster.dev/cleanup-after-seconds`. A pod whose label is removed by then is not deleted.
"""

from __future__ import annotations

from muster.kube.read.names import SOFT_EVICTION
from muster.kube.read.object_references import ApiObjectRef, ManifestView
from muster.sim.object_store import ChangeType, ObjectStore
from muster.sim.pod_behaviour import behaviour_of
from muster.sim.virtual_clock import VirtualClock


class SoftEvictionOperator:
    def __init__(self, store: ObjectStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._scheduled_deletions: set[str] = set()
        """UIDs of the pods that it saw the label on."""

    def on_change(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        uid = manifest["metadata"]["uid"]
        if what is ChangeType.DELETED or not _has_soft_eviction_label(manifest):
            self._scheduled_deletions.discard(uid)
            return
        after_s = behaviour_of(manifest).cleanup_after_s
        if after_s is not None and uid not in self._scheduled_deletions and not manifest["metadata"].get("deletionTimestamp"):
            self._scheduled_deletions.add(uid)
            self._clock.call_after(after_s, lambda: self._delete_if_still_labelled(ref, uid))

    def _delete_if_still_labelled(self, ref: ApiObjectRef, uid: str) -> None:
        found = self._store.peek(ref)
        if (
            found is not None
            and found["metadata"]["uid"] == uid
            and uid in self._scheduled_deletions
            and _has_soft_eviction_label(found)
        ):
            self._store.delete(ref, uid=uid)


def _has_soft_eviction_label(manifest: ManifestView) -> bool:
    return (manifest["metadata"].get("labels") or {}).get(SOFT_EVICTION) == "true"
