"""For how long pods run, as far as somebody says so: what their owner declares, else what their class or their queue sets."""

from __future__ import annotations

import math

from muster.model.pod import Pod
from muster.state.world import World


def run_time(world: World, pod: Pod) -> float | None:
    """In seconds from its start; None where nobody says anything."""
    if pod.run_s is not None:
        return pod.run_s
    member = world.facts.members.get(pod.uid)
    if member is None:
        return None
    gang = world.facts.gangs.get(member.gang)
    run_s = min(math.inf if gang is None or gang.run_s is None else gang.run_s, run_time_of_queue(world, member.queue))
    return None if run_s == math.inf else run_s


def run_time_of_queue(world: World, queue: str) -> float:
    """The next queue up the tree that sets one decides; infinite where none does."""
    above = (world.facts.tree.node(level).run_s for level in world.facts.tree.path(queue))
    return next((run_s for run_s in above if run_s is not None), math.inf)
