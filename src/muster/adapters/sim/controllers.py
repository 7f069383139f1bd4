"""Controllers that want their pods to exist: one that was evicted, failed or lost with its node is made anew under its name.

The new pod is another pod: it has its own UID and bears no trace of what the scheduler wrote onto the old one.
"""

from __future__ import annotations

from muster.adapters.kube.encode import MARKING_LABELS, MARKS
from muster.adapters.kube.refs import Manifest, Ref, Stored
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.objects import ObjectStore, What
from muster.adapters.sim.wishes import RECREATED, Wishes, wishes_of

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


class Controllers:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def react(self, what: What, ref: Ref, manifest: Stored) -> None:
        wishes = wishes_of(manifest)
        if not wishes.recreate or wishes.recreated >= wishes.recreate_limit:
            return
        phase = (manifest.get("status") or {}).get("phase")
        if what is not What.DELETED:
            if phase == "Failed":
                self._clear_away(ref, manifest)
        elif phase != "Succeeded":
            self._clock.after(wishes.recreate_after_s, lambda: self._recreate(ref, manifest, wishes))

    def _clear_away(self, ref: Ref, manifest: Stored) -> None:
        """A failed pod makes place for the next one of its name."""
        if self._store.peek(ref) is manifest:
            self._store.delete(ref)

    def _recreate(self, ref: Ref, old: Stored, wishes: Wishes) -> None:
        if self._store.peek(ref) is None:
            self._store.create(_made_anew(old, times=wishes.recreated + 1))


def _made_anew(old: Stored, *, times: int) -> Manifest:
    metadata = {key: value for key, value in old["metadata"].items() if key not in _SYSTEM_FIELDS}
    for field, marks in (("annotations", MARKS), ("labels", MARKING_LABELS)):
        if field in metadata:
            metadata[field] = {key: value for key, value in metadata[field].items() if key not in marks}
    metadata["annotations"] = {**metadata.get("annotations", {}), RECREATED: str(times)}
    spec = {key: value for key, value in old["spec"].items() if key != "nodeName"}
    return {
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    }
