"""Virtual time on a server with real time: its timestamps are replaced by the virtual time at which they are first observed.

Virtual time stands still until a test advances it, however long the server takes.
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
        """Override the creation time of the next object of this name, which no server allows. None: no override."""
        if created:
            self._created_overrides[place] = created
        else:
            self._created_overrides.pop(place, None)

    def translate(self, resource: str, metadata: dict[str, Any]) -> None:
        """Replace the server's times by virtual ones."""
        uid = metadata.get("uid")
        if not uid:
            return
        if uid not in self._created_at:
            place = (resource, metadata.get("namespace", ""), metadata.get("name", ""))
            self._created_at[uid] = self._created_overrides.pop(place, "") or rfc3339(self.now)
        metadata["creationTimestamp"] = self._created_at[uid]
        deletion_time = metadata.get("deletionTimestamp")
        if deletion_time:
            grace_s = metadata.get("deletionGracePeriodSeconds") or 0
            metadata["deletionTimestamp"] = self._deletion_times.setdefault((uid, deletion_time), rfc3339(self.now + grace_s))
