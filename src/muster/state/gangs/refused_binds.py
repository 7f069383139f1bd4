"""Binds that the API server refused again and again: of which gang, since when, and when it is tried again.

One refusal may be chance: the gang is tried again at once, and first, because it may be partially bound. From the second on it
waits behind all others, keeps no capacity in between, and nobody is evicted for it.
"""

from __future__ import annotations

from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.state.memory import RefusedBinds
from muster.state.world import World

TOLERATED = 1
FIRST_PAUSE_S = 20.0
MAX_PAUSE_S = 600.0


def refused_member(world: World, gang: Gang) -> tuple[Pod, RefusedBinds] | None:
    """The member whose bind was refused most often, where it was more often than is tolerated."""
    known = world.memory.refused_binds
    if not known:
        return None
    refused = [(pod, known[pod.uid]) for pod in gang.pods() if pod.uid in known and known[pod.uid].count > TOLERATED]
    return max(refused, key=lambda each: each[1].count, default=None)


def pause_s(refused: RefusedBinds) -> float:
    """How long the gang is not tried after the last refusal: twice as long after each."""
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(refused.count - TOLERATED - 1, 64))
