"""One cycle: the actions of the policy, in its order, on one world."""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.allocate import allocate
from muster.engine.claims import end_broken_plans
from muster.engine.deeds import deeds
from muster.engine.enqueue import enqueue
from muster.engine.evict.actions import gang_preempt, gang_reclaim, job_preempt, preempt
from muster.engine.evict.idle import end_idle_evictions
from muster.engine.expire import expire
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


def run_cycle(world: World, policy: Policy) -> Outcome:
    """Decide. What was decided stands in the world from now on, and comes out as effects to be carried out."""
    return run_session(Session(world, policy))


def run_session(s: Session) -> Outcome:
    """One cycle in a session of its own, which can be looked into afterwards."""
    world, policy = s.world, s.policy
    world.cycle += 1
    world.journal.clear()
    s.prepare()
    recover(s)
    for action in policy.actions:
        ACTIONS[action](s)
    end_broken_plans(s)
    end_idle_evictions(s)
    stand_still(s)
    effects = deeds(s)
    world.journal.clear()
    world.decided_at = world.now
    verdicts = tuple((world.gangs[key].title, verdict) for key, verdict in s.verdicts.items())
    return Outcome(world.cycle, world.now, effects, verdicts, tuple(sorted(s.stats.items())))
