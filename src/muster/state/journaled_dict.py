"""A dictionary whose writes stand in the journal of the cycle, so that a trial that is undone undoes them, as it undoes moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from muster.state.placements import Journal

K = TypeVar("K")
V = TypeVar("V")


class _Missing:
    __slots__ = ()


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class MemoryStep(Generic[K, V]):
    """One write in the journal, with what was there before."""

    table: JournaledDict[K, V]
    key: K
    before: V | _Missing

    def undo(self) -> None:
        self.table.put_back(self.key, self.before)


class JournaledDict(Generic[K, V]):
    """A dictionary whose writes are journaled."""

    __slots__ = ("_journal", "_values", "get", "writes")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._values: dict[K, V] = {}
        self.get = self._values.get
        self.writes = 0
        """How often something was written or undone."""

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> list[tuple[K, V]]:
        return list(self._values.items())

    def values(self) -> list[V]:
        return list(self._values.values())

    def copied(self) -> JournaledDict[K, V]:
        made = JournaledDict[K, V]([])
        made._values |= self._values
        return made

    def set(self, key: K, value: V) -> None:
        self.writes += 1
        self._journal.append(MemoryStep(self, key, self._values.get(key, _MISSING)))
        self._values[key] = value

    def drop(self, key: K) -> V | None:
        """Forget a key, where it is known."""
        if key not in self._values:
            return None
        self.writes += 1
        before = self._values.pop(key)
        self._journal.append(MemoryStep(self, key, before))
        return before

    def clear(self) -> None:
        for key in list(self._values):
            self.drop(key)

    def put_back(self, key: K, before: V | _Missing) -> None:
        """Undo a write: for the trial alone."""
        self.writes += 1
        if isinstance(before, _Missing):
            del self._values[key]
        else:
            self._values[key] = before
