"""The one way to know that something changed: a count for each topic and key, and a log of keys for the topics that are followed.

A mutator bumps its topics itself, where it writes, and nobody else does. Whoever remembers something derived remembers the counts
that it was derived from, and compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from muster.model.topics import Topic, TopicKey

K = TypeVar("K")

# Past this many entries whatever follows the log is derived anew, which is cheaper by then.
_LONGEST_LOG = 400_000


class ChangeLog(Generic[K]):
    """Keys that changed, in order. Positions count from the beginning, also past what was dropped."""

    __slots__ = ("_entries", "_start", "add", "extend")

    def __init__(self) -> None:
        self._start = 0
        self._entries: list[K] = []
        self.add = self._entries.append
        self.extend = self._entries.extend

    @property
    def position(self) -> int:
        return self._start + len(self._entries)

    def since(self, position: int) -> list[K] | None:
        """Keys that changed since that position; None when that is no longer known."""
        return None if position < self._start else self._entries[position - self._start :]

    def drop(self) -> None:
        """Forget the entries: whoever follows the log derives its value anew."""
        self._start += len(self._entries) + 1
        self._entries.clear()

    def trim(self) -> None:
        if len(self._entries) > _LONGEST_LOG:
            self.drop()


_MOST_REMEMBERED = 1024
"""So many different sets of topics."""


class Changes:
    def __init__(self) -> None:
        self.bumps = 0
        """How often anything was bumped: while this is the same, no settled topic has changed."""
        self._counts: dict[Topic, int] = dict.fromkeys(Topic, 0)
        self._keyed: dict[TopicKey, int] = {}
        self._same: dict[tuple[TopicKey, ...], tuple[TopicKey, ...]] = {}
        self._counted: dict[int, tuple[tuple[TopicKey, ...], tuple[int, ...]]] = {}
        self._counted_at = 0
        self.rows: ChangeLog[int] = ChangeLog()
        self.placements: ChangeLog[str] = ChangeLog()
        self.ledger: ChangeLog[str] = ChangeLog()
        self.gangs: ChangeLog[str] = ChangeLog()
        self._logs: dict[Topic, ChangeLog[int] | ChangeLog[str]] = {
            Topic.NODE_ROWS: self.rows,
            Topic.PLACEMENTS: self.placements,
            Topic.LEDGER: self.ledger,
            Topic.GANGS: self.gangs,
        }

    def bump(self, topic: Topic, keys: Iterable[str] = ()) -> None:
        """This topic changed, for these keys in particular. Followed topics are bumped through their logs."""
        self.bumps += 1
        self._counts[topic] += 1
        for key in keys:
            self._keyed[topic, key] = self._keyed.get((topic, key), 0) + 1

    def version(self, topic: Topic, key: str = "") -> int:
        return self._keyed.get((topic, key), 0) if key else self._counts[topic]

    def same(self, topics: tuple[TopicKey, ...]) -> tuple[TopicKey, ...]:
        """One object for all equal ones: thousands of waiting gangs name the same topics, and are looked at in every cycle."""
        if len(self._same) >= _MOST_REMEMBERED:
            self._same.clear()
        return self._same.setdefault(topics, topics)

    def versions(self, topics: tuple[TopicKey, ...]) -> tuple[int, ...]:
        if self._counted_at != self.bumps:
            self._counted.clear()
            self._counted_at = self.bumps
        found = self._counted.get(id(topics))
        if found is None:
            # The topics are kept beside what was counted: their place in memory is theirs for so long.
            counted = tuple([self.version(topic, key) for topic, key in topics])
            found = self._counted[id(topics)] = (topics, counted)
        return found[1]

    def stamp(self, topics: tuple[Topic, ...]) -> tuple[int, ...]:
        """Equal for as long as none of these topics changed."""
        counts, logs = self._counts, self._logs
        return tuple([logs[topic].position if topic in logs else counts[topic] for topic in topics])

    def settled(self) -> tuple[dict[Topic, int], dict[TopicKey, int]]:
        """All that was counted, without what is followed: a trial that was undone leaves no trace here."""
        return dict(self._counts), dict(self._keyed)

    def log(self, topic: Topic) -> ChangeLog[int] | ChangeLog[str]:
        return self._logs[topic]

    def trim(self) -> None:
        for log in self._logs.values():
            log.trim()
