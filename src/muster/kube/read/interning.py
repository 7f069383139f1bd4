"""Equal values as one object, so that many pods of few templates need little memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_INTERNED = 16384


class Interner(Generic[K, V]):
    """Values by key. It is cleared when it is full: common values return at once, and unique ones (a label with the pod's own name)
    do not accumulate."""

    __slots__ = ("_values", "get")

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self.get = self._values.get

    def put(self, key: K, value: V) -> V:
        if len(self._values) >= MAX_INTERNED:
            self._values.clear()
        self._values[key] = value
        return value

    def intern(self, key: K, value: V) -> V:
        """The value with this key, else this one from now on."""
        found = self.get(key)
        return self.put(key, value) if found is None else found
