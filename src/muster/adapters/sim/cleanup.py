"""Somebody else's operator: it deletes pods that bear the label of a soft eviction, some time later, and knows only the label.

It looks after pods that say how long it takes (`sim.muster.dev/cleanup-after`); to others nobody comes. A pod whose label is gone
by then is left alone.
"""

from __future__ import annotations

from muster.adapters.kube.names import SOFT_EVICTION
from muster.adapters.kube.refs import Ref, Stored
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.objects import ObjectStore, What
from muster.adapters.sim.wishes import wishes_of


class Cleanup:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._under_way: set[str] = set()
        """UIDs of the pods that it saw the label on."""

    def react(self, what: What, ref: Ref, manifest: Stored) -> None:
        uid = manifest["metadata"]["uid"]
        if what is What.DELETED or not _is_marked(manifest):
            self._under_way.discard(uid)
            return
        after_s = wishes_of(manifest).cleanup_after_s
        if after_s is not None and uid not in self._under_way and not manifest["metadata"].get("deletionTimestamp"):
            self._under_way.add(uid)
            self._clock.after(after_s, lambda: self._clean_up(ref, uid))

    def _clean_up(self, ref: Ref, uid: str) -> None:
        found = self._store.peek(ref)
        if found is not None and found["metadata"]["uid"] == uid and uid in self._under_way and _is_marked(found):
            self._store.delete(ref, uid=uid)


def _is_marked(manifest: Stored) -> bool:
    return (manifest["metadata"].get("labels") or {}).get(SOFT_EVICTION) == "true"
