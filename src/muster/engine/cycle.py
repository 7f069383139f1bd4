"""One cycle: the actions of the policy, in its order, on one world."""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.allocate import allocate
from muster.engine.claims import end_broken_plans
from muster.engine.deeds import deeds
from muster.engine.enqueue import enqueue
from muster.engine.evict.actions import gang_preempt, gang_reclaim, job_preempt, preempt
from muster.engine.evict.idle import end_idle_evictions
from muster.engine.expire import expire, spare_the_unneeded
from muster.engine.hooks import Policy
from muster.engine.recover import recover
from muster.engine.session import Session
from muster.engine.waits import stand_still
from muster.model.effects import Outcome
from muster.state.world import World

ACTIONS: dict[str, Callable[[Session], None]] = {
    "expire": expire,
    "enqueue": enqueue,
    "allocate": allocate,
    "preempt": preempt,
    "gang-preempt": gang_preempt,
    "job-preempt": job_preempt,
    "gang-reclaim": gang_reclaim,
}

Enter = Callable[[str], None]
"""Is told the name of each part of a cycle before it begins, so that somebody with a clock can measure it."""


def _in_silence(_: str) -> None:
    return


def run_cycle(world: World, policy: Policy, *, enter: Enter | None = None) -> Outcome:
    """Decide. What was decided stands in the world from now on, and comes out as effects to be carried out."""
    return run_session(Session(world, policy), enter=enter or _in_silence)


def run_session(s: Session, *, enter: Enter = _in_silence) -> Outcome:
    """One cycle in a session of its own, which can be looked into afterwards."""
    world, policy = s.world, s.policy
    world.memory.cycle += 1
    world.placements.clear_journal()
    enter("recover")
    s.prepare()
    recover(s)
    for action in policy.actions:
        enter(action)
        ACTIONS[action](s)
    enter("deeds")
    end_broken_plans(s)
    end_idle_evictions(s)
    spare_the_unneeded(s)
    stand_still(s)
    effects = deeds(s)
    world.placements.clear_journal()
    world.memory.decided_at = world.now
    verdicts = tuple((world.facts.gangs[key].title, verdict) for key, verdict in s.verdicts.items())
    return Outcome(world.memory.cycle, world.now, effects, verdicts, tuple(sorted(s.stats.items())))
