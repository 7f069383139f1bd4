"""Figures that follow from who stands where, kept up by the world's log of moves.

A follower remembers what it counted for each pod and nothing else: whatever happened since, trials and their undoing included, it
looks at where each moved pod is now and counts the difference. It can be thrown away at any time and built again from the world.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from muster.model.pod import Phase, Placement, Pod
from muster.state.derived_values import Derived
from muster.state.world import World

PLACED, NOMINATED, TERMINATING, OVERDUE = range(4)
"""A pod's presence on its node: placed, nominated, terminating, overdue."""
PRESENCES = 4

_PRESENCE = {
    Phase.RESERVED: PLACED,
    Phase.BINDING: PLACED,
    Phase.BOUND: PLACED,
    Phase.NOMINATED: NOMINATED,
    Phase.TERMINATING: TERMINATING,
    Phase.OVERDUE: OVERDUE,
}


def presence_of(placement: Placement) -> int:
    return _PRESENCE[placement.phase]


E = TypeVar("E")
F = TypeVar("F", bound="PlacementCounter[Any]")


class PlacementCounter(ABC, Generic[E]):
    """`E` is what one placed pod adds to the figures. Two equal entries add the same."""

    def __init__(self) -> None:
        self._position = -1
        self._counted: dict[str, E] = {}

    @abstractmethod
    def entry(self, pod: Pod, node: str, placement: Placement) -> E | None:
        """What this pod adds, or None where it does not matter here."""

    @abstractmethod
    def count(self, entry: E, *, by: int) -> None:
        """Add an entry (1) or take it away again (-1)."""

    @abstractmethod
    def clear(self) -> None:
        """Forget every figure."""

    @abstractmethod
    def figures(self) -> dict[object, object]:
        """All that is counted, as plain values: two followers can be compared."""

    def follow(self, world: World) -> None:
        """Bring the figures up to date."""
        log = world.changes.placements
        position = log.position
        if position == self._position:
            return
        moved = log.since(self._position)
        if moved is None:
            self._counted.clear()
            self.clear()
            moved = list(world.placements.by_uid)
        self._position = position
        for uid in dict.fromkeys(moved):
            self._look_at(world, uid)

    def _look_at(self, world: World, uid: str) -> None:
        placement = world.placements.by_uid.get(uid)
        node = None if placement is None else placement.node
        before = self._counted.get(uid)
        after = None
        if placement is not None and node is not None:
            after = self.entry(world.placements.on_node[node][uid], node, placement)
        if before == after:
            return
        # First in, then out: figures that two entries share are not thrown away in between.
        if after is not None:
            self.count(after, by=1)
        if before is not None:
            self.count(before, by=-1)
        if after is not None:
            self._counted[uid] = after
        else:
            del self._counted[uid]


def counter_of(world: World, kind: type[F]) -> F:
    """The world's one follower of this kind, brought up to date."""
    found: F = _FOLLOWERS.of(world, kind, key=kind)
    found.follow(world)
    return found


_FOLLOWERS: Derived[Any] = Derived("followers of placements")
"""Each follows the log of placements by itself: what it counts for a pod may depend on where it was counted before."""


def drifted_counters(world: World) -> list[str]:
    """The world's followers that do not count what new ones would count: there should be none, whatever was tried and undone."""
    found: list[str] = []
    for kept in world.derived.values():
        if isinstance(kept, PlacementCounter):
            kept.follow(world)
            fresh = type(kept)()
            fresh.follow(world)
            if kept.figures() != fresh.figures():
                found.append(type(kept).__name__)
    return found
