"""Kept counters compared with new ones: they must count the same, whatever was tried and undone."""

from __future__ import annotations

from muster.state.derived.placement_counters import PlacementCounter, counter_of
from muster.state.world import World


def drifted_counters(world: World) -> list[str]:
    """The world's counters that do not count what new ones would count."""
    found: list[str] = []
    for kept in world.derived.values():
        if isinstance(kept, PlacementCounter):
            now = counter_of(world, type(kept))
            fresh = type(kept)()
            fresh.follow(world)
            if now.figures() != fresh.figures():
                found.append(type(kept).__name__)
    return found
