"""Figures that follow from who stands where, kept up by the world's log of moves.

A counter remembers what it counted for each pod and nothing else: whatever happened since, trials and their undoing included, it
looks at where each moved pod is now and counts the difference. It can be thrown away at any time and built again from the world.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from muster.model.pod import Phase, Placement, Pod
from muster.model.topics import Topic
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
    Phase.MOVING: NOMINATED,
}


def presence_of(placement: Placement) -> int:
    return _PRESENCE[placement.phase]


def any_present(counts: Sequence[int], *, after_releases: bool) -> bool:
    """Does one of these pods, counted by presence, stand there, or still will once the releases under way are done?"""
    return sum(counts) > (counts[TERMINATING] if after_releases else 0)


E = TypeVar("E")
F = TypeVar("F", bound="PlacementCounter[Any]")


class PlacementCounter(ABC, Generic[E]):
    """`E` is what one placed pod adds to the figures. Two equal entries add the same. When a topic of `depends` changes, all pods
    are counted anew."""

    derived: ClassVar[Derived[Any]]

    def __init_subclass__(cls, *, depends: tuple[Topic, ...] = (), **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.derived = Derived(cls.__name__, *depends, follows=Topic.PLACEMENTS)

    def __init__(self) -> None:
        self._counted: dict[str, E] = {}

    @abstractmethod
    def entry(self, pod: Pod, node: str, placement: Placement) -> E | None:
        """What this pod adds, or None where it does not matter here."""

    @abstractmethod
    def count(self, entry: E, *, by: int) -> None:
        """Add an entry (1) or take it away again (-1)."""

    @abstractmethod
    def figures(self) -> dict[object, object]:
        """All that is counted, as plain values: two counters can be compared."""

    def renew(self, world: World) -> None:
        """Look at what else it needs of the world: before pods are counted, and before the figures are read."""

    def follow(self, world: World, moved: Iterable[str] | None = None) -> None:
        """Count the pods that moved, or all of them."""
        self.renew(world)
        for uid in dict.fromkeys(world.placements.by_uid if moved is None else moved):
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
    """The world's one counter of this kind, brought up to date."""

    def build() -> F:
        made = kind()
        made.follow(world)
        return made

    found: F = kind.derived.of(world, build, update=lambda counter, moved: counter.follow(world, moved))
    found.renew(world)
    return found
