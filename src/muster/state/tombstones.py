"""What was deleted, so that a late event about it is known to be late."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")

# Past this many the oldest half is forgotten.
_MOST = 200_000


class Tombstones(dict[K, int]):
    """The last version of each deleted object."""

    def add(self, key: K, version: int = 0) -> None:
        self[key] = version
        if len(self) > _MOST:
            for old in list(self)[: _MOST // 2]:
                del self[old]
