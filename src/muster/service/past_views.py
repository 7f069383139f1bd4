"""Pictures of the last hours, so that the page of a running scheduler can be dragged back: in memory, packed, and bounded.

The decision log would have every cycle, but only where one is written, and reading it again costs minutes on a large cluster. A
picture every five minutes costs little whatever the cluster is; what is older, or in between, is in the log.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from muster.web.cluster_view import PARTS, ClusterView

INTERVAL_S: Final = 300.0
MAX_PICTURES: Final = 100
MAX_BYTES: Final = 64 * 2**20
"""Of all pictures together, packed."""
_NOT_KEPT: Final = ("evictions", "timeline")
"""What the newest view has of the past as well."""


class _Picture(NamedTuple):
    time: float
    packed: bytes


class PastViews:
    """`keep` and `view` may be called in any thread, but not in two at once."""

    def __init__(self, *, most: int = MAX_PICTURES, max_bytes: int = MAX_BYTES) -> None:
        self._pictures: deque[_Picture] = deque()
        self._most, self._max_bytes = most, max_bytes
        self._unpacked: Callable[[bytes], dict[str, Any]] = lru_cache(maxsize=4)(_unpack)

    def times(self) -> list[float]:
        return [picture.time for picture in self._pictures]

    def keep(self, view: ClusterView) -> None:
        """The oldest ones go where there are too many. A view of the same cycle is kept once."""
        if self._pictures and self._pictures[-1].time >= view.time:
            return
        kept = {part: getattr(view, part) for part in PARTS if part not in _NOT_KEPT}
        packed = gzip.compress(msgspec.json.encode({"cycle": view.cycle, **kept}), 6)
        self._pictures.append(_Picture(view.time, packed))
        while len(self._pictures) > self._most or sum(len(each.packed) for each in self._pictures) > self._max_bytes:
            self._pictures.popleft()

    def view(self, at: float, newest: ClusterView) -> ClusterView:
        """The last picture until then, without pods; the newest view where that is later than all of them."""
        number = bisect_right(self.times(), at)
        if at >= newest.time or not self._pictures:
            return newest
        picture = self._pictures[max(0, number - 1)]
        return ClusterView(
            time=picture.time,
            evictions=[row for row in newest.evictions if row["time"] <= picture.time],
            timeline=newest.timeline,
            members=lambda _: [],
            **self._unpacked(picture.packed),
        )


def _unpack(packed: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(gzip.decompress(packed))
    return found
