"""Virtual time on a server that has only real time: what it stamps onto objects is read as the virtual time of that moment.

Time stands still until somebody moves it, however long the server takes. So an object that is first seen now was made now.
"""

from __future__ import annotations

from typing import Any

from muster.adapters.kube.encode import stamp
from muster.adapters.sim.clock import START

Place = tuple[str, str, str]
"""Resource, namespace and name."""


class Calendar:
    def __init__(self, *, start: float = START) -> None:
        self.now = start
        self._wished: dict[Place, str] = {}
        self._born: dict[str, str] = {}
        self._leaves: dict[tuple[str, str], str] = {}

    def wish(self, place: Place, created: str | None) -> None:
        """The next object of this name says itself when it was made, which no server lets it do. None: it does not."""
        if created:
            self._wished[place] = created
        else:
            self._wished.pop(place, None)

    def translate(self, resource: str, metadata: dict[str, Any]) -> None:
        """Put virtual times in the place of the server's."""
        uid = metadata.get("uid")
        if not uid:
            return
        if uid not in self._born:
            place = (resource, metadata.get("namespace", ""), metadata.get("name", ""))
            self._born[uid] = self._wished.pop(place, "") or stamp(self.now)
        metadata["creationTimestamp"] = self._born[uid]
        told = metadata.get("deletionTimestamp")
        if told:
            grace_s = metadata.get("deletionGracePeriodSeconds") or 0
            metadata["deletionTimestamp"] = self._leaves.setdefault((uid, told), stamp(self.now + grace_s))
