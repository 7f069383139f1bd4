"""Virtual time on a server that has only real time: what it stamps onto objects is read as the virtual time of that moment.

Time stands still until somebody moves it, however long the server takes. So an object that is first seen now was made now.
"""

from __future__ import annotations

from typing import Any

from muster.kube.write.patch_bodies import rfc3339
from muster.sim.virtual_clock import VIRTUAL_START

ResourceKey = tuple[str, str, str]
"""Resource, namespace and name."""


class VirtualTime:
    def __init__(self, *, start: float = VIRTUAL_START) -> None:
        self.now = start
        self._created_overrides: dict[ResourceKey, str] = {}
        self._created_at: dict[str, str] = {}
        self._deletion_times: dict[tuple[str, str], str] = {}

    def set_created(self, place: ResourceKey, created: str | None) -> None:
        """The next object of this name says itself when it was made, which no server lets it do. None: it does not."""
        if created:
            self._created_overrides[place] = created
        else:
            self._created_overrides.pop(place, None)

    def translate(self, resource: str, metadata: dict[str, Any]) -> None:
        """Put virtual times in the place of the server's."""
        uid = metadata.get("uid")
        if not uid:
            return
        if uid not in self._created_at:
            place = (resource, metadata.get("namespace", ""), metadata.get("name", ""))
            self._created_at[uid] = self._created_overrides.pop(place, "") or rfc3339(self.now)
        metadata["creationTimestamp"] = self._created_at[uid]
        told = metadata.get("deletionTimestamp")
        if told:
            grace_s = metadata.get("deletionGracePeriodSeconds") or 0
            metadata["deletionTimestamp"] = self._deletion_times.setdefault((uid, told), rfc3339(self.now + grace_s))
