"""Values that follow from the world: kept while nothing that they depend on changed, and never a fact of their own.

A `Derived` is declared once, at the top of the module that computes it, with the topics that it depends on. All of them can be
thrown away at any time (`DerivedValues.clear`): what comes out is the same, only later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

from muster.model.topics import Topic
from muster.state.changes import Changes

T = TypeVar("T")


@dataclass(slots=True)
class _Kept:
    value: Any
    position: int
    """How far it has followed the log."""


@dataclass(slots=True)
class _Family:
    stamp: tuple[int, ...] = ()
    by_key: dict[Hashable, _Kept] = field(default_factory=dict)


class DerivedValues:
    """What one world keeps, by declaration and key."""

    def __init__(self) -> None:
        self._families: dict[Derived[Any], _Family] = {}

    def of(self, derived: Derived[Any]) -> _Family:
        found = self._families.get(derived)
        if found is None:
            found = self._families[derived] = _Family()
        return found

    def values(self) -> list[object]:
        return [kept.value for family in self._families.values() for kept in family.by_key.values()]

    def clear(self) -> None:
        self._families.clear()


class Source(Protocol):
    """What values are derived from: the world, or a part of it that knows what changed."""

    @property
    def changes(self) -> Changes: ...

    @property
    def derived(self) -> DerivedValues: ...


class Derived(Generic[T]):
    """`depends`: a change of one of these topics throws the values away. `follows`: changes of this topic are given to `update`,
    key by key. `most`: so many keys are kept; beyond that the oldest half is dropped."""

    def __init__(self, name: str, *depends: Topic, follows: Topic | None = None, most: int = 1024) -> None:
        self.name = name
        self.depends = depends
        self.follows = follows
        self.most = most

    def of(
        self,
        source: Source,
        build: Callable[[], T],
        *,
        key: Hashable = None,
        update: Callable[[T, list[Any]], None] | None = None,
        topics: tuple[Topic, ...] = (),
    ) -> T:
        """The value for this key, up to date. A value that follows a log without an `update` is built anew when that grows.
        `topics`: what it depends on besides."""
        changes = source.changes
        family = source.derived.of(self)
        stamp = changes.stamp(self.depends + topics)
        if family.stamp != stamp:
            family.by_key.clear()
            family.stamp = stamp
        kept = family.by_key.get(key)
        if self.follows is None:
            return cast(T, kept.value) if kept is not None else self._keep(source, key, build(), 0, topics)
        log = changes.log(self.follows)
        if kept is not None:
            if kept.position == log.position:
                return cast(T, kept.value)
            changed = log.since(kept.position)
            if changed is not None and update is not None:
                update(kept.value, changed)
                kept.position = log.position
                return cast(T, kept.value)
        return self._keep(source, key, build(), log.position, topics)

    def _keep(self, source: Source, key: Hashable, value: T, position: int, topics: tuple[Topic, ...]) -> T:
        family = source.derived.of(self)
        # Building may lay out rows or columns that it needs: what was built before that is no longer good.
        stamp = source.changes.stamp(self.depends + topics)
        if family.stamp != stamp:
            family.by_key.clear()
            family.stamp = stamp
        if len(family.by_key) >= self.most:
            for old in list(family.by_key)[: self.most // 2]:
                del family.by_key[old]
        family.by_key[key] = _Kept(value, position)
        return value
