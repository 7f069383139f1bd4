"""Values that follow from the world: kept while nothing that they depend on changed, and never a fact of their own.

A `Derived` is declared once, at the top of the module that computes it, with the topics that it depends on. All of them can be
thrown away at any time (`DerivedValues.clear`): what comes out is the same, only later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from muster.model.topics import FOLLOWED, Topic
from muster.state.changes import ChangeLog, Changes

T = TypeVar("T")


@dataclass(slots=True)
class _Kept:
    value: Any
    position: int
    """How far it has followed the log."""


@dataclass(slots=True)
class _Family:
    """The values of one declaration, all made since the topics that they depend on last changed."""

    by_key: dict[Hashable, _Kept] = field(default_factory=dict)
    stamp: tuple[int, ...] = ()
    topics: tuple[Topic, ...] = ()
    bumps: int = -1
    """All bumps of settled topics when the stamp was last compared: until the next one it need not be compared again."""


class DerivedValues:
    """What one world keeps, by declaration and key."""

    def __init__(self) -> None:
        self.families: defaultdict[Derived[Any], _Family] = defaultdict(_Family)

    def values(self) -> list[object]:
        return [kept.value for family in self.families.values() for kept in family.by_key.values()]

    def clear(self) -> None:
        self.families.clear()


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
        self._is_settled = FOLLOWED.isdisjoint(depends)

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
        family = source.derived.families[self]
        if family.bumps != changes.bumps or family.topics is not topics:
            self._drop_stale(family, changes, topics)
        kept = family.by_key.get(key)
        if kept is not None and (self.follows is None or self._follow(kept, changes.log(self.follows), update)):
            value: T = kept.value
            return value
        return self._keep(source, key, build(), topics)

    def _follow(self, kept: _Kept, log: ChangeLog[Any], update: Callable[[T, list[Any]], None] | None) -> bool:
        """Bring a value up to date with the log that it follows, where that can be done."""
        position = log.position
        if kept.position == position:
            return True
        changed = log.since(kept.position)
        if changed is None or update is None:
            return False
        update(kept.value, changed)
        kept.position = log.position
        return True

    def _drop_stale(self, family: _Family, changes: Changes, topics: tuple[Topic, ...]) -> None:
        stamp = changes.stamp(self.depends + topics)
        if family.stamp != stamp:
            family.by_key.clear()
            family.stamp = stamp
        family.topics = topics
        # Moves of a trial grow the logs of followed topics without a bump.
        family.bumps = changes.bumps if self._is_settled and FOLLOWED.isdisjoint(topics) else -1

    def _keep(self, source: Source, key: Hashable, value: T, topics: tuple[Topic, ...]) -> T:
        family = source.derived.families[self]
        # Building may lay out rows or columns that it needs: what was built before that is no longer good.
        self._drop_stale(family, source.changes, topics)
        if len(family.by_key) >= self.most:
            for old in list(family.by_key)[: self.most // 2]:
                del family.by_key[old]
        family.by_key[key] = _Kept(value, 0 if self.follows is None else source.changes.log(self.follows).position)
        return value
