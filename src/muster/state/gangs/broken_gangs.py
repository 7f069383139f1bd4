"""Gangs that run with fewer members than their minimum, and since when.

One lost node, one drained or re-created member does not make the other members free to evict: a gang counts as broken only when it
has been below its minimum for a while, with members that are nominated or reserved counted as placed.
"""

from __future__ import annotations

from muster.model.pod import PLACED_OR_NOMINATED, Phase
from muster.model.topics import Topic
from muster.state.gangs.gang_stage import count, has_minimum
from muster.state.world import World

BROKEN_AFTER_S = 60.0

_RUNNING = frozenset({Phase.BOUND, Phase.BINDING})


def note_broken_gangs(world: World, *, stale_s: float) -> None:
    """Bring up to date since when gangs have been below their minimum. Those that have been so for long make way from now on."""
    memory, changes = world.memory, world.changes
    moved = changes.placements.since(memory.noted_placements)
    changed = changes.gangs.since(memory.noted_gangs)
    if moved is None or changed is None:
        keys = [*world.facts.gangs, *memory.below_min_since]
    else:
        members = (world.facts.members.get(uid) for uid in moved)
        keys = [*changed, *(member.gang for member in members if member is not None)]
    memory.noted_placements, memory.noted_gangs = changes.placements.position, changes.gangs.position
    for key in dict.fromkeys(keys):
        below = is_below_min(world, key)
        if below and key not in memory.below_min_since:
            memory.below_min_since.set(key, world.now)
        elif not below:
            memory.below_min_since.drop(key)
    if any(
        memory.decided_at < stale_from(world, key, since, stale_s=stale_s) <= world.now
        for key, since in memory.below_min_since.items()
    ):
        changes.bump(Topic.EVICTABLE)


def stale_from(world: World, key: str, since: float, *, stale_s: float) -> float:
    """From when on a gang that has been below its minimum since then is stale: as its PodGroup says, else as the policy does."""
    gang = world.facts.gangs.get(key)
    return since + (stale_s if gang is None or gang.stale_s is None else gang.stale_s)


def is_below_min(world: World, key: str) -> bool:
    """Does the gang run, with fewer members than its minimum or than that of a role?"""
    gang = world.facts.gangs.get(key)
    if gang is None or gang.is_single_pod or gang.waiting_for or gang.invalid_because:
        return False
    if world.placements.unplaced_members.get(key, 0) >= gang.size or not any(count(world, role, _RUNNING) for role in gang.roles):
        return False
    if any(move.is_open and move.reserve.member.gang == key for move in world.memory.moves.values()):
        # Capacity is kept for those that are missing.
        return False
    return not has_minimum(world, gang, PLACED_OR_NOMINATED)
