"""One cycle: the actions of the policy, in its order, on one world."""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.allocate import allocate
from muster.engine.commit import collect_effects
from muster.engine.enqueue import enqueue
from muster.engine.evict.evict_actions import gang_preempt, gang_reclaim, job_preempt, preempt
from muster.engine.evict.orphaned_evictions import end_orphaned_evictions
from muster.engine.expire import cancel_unneeded_evictions, expire
from muster.engine.hooks import Policy
from muster.engine.nominations import end_broken_plans
from muster.engine.permit_wait import pause_permit_waits
from muster.engine.recover import recover
from muster.engine.session import Session
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

StepCallback = Callable[[str], None]
"""Is told the name of each part of a cycle before it begins, so that somebody with a clock can measure it."""


def _ignore_step(_: str) -> None:
    return


def run_cycle(world: World, policy: Policy, *, on_step: StepCallback | None = None) -> Outcome:
    """Decide. What was decided stands in the world from now on, and comes out as effects to be carried out."""
    return run_session(Session(world, policy), on_step=on_step or _ignore_step)


def run_session(s: Session, *, on_step: StepCallback = _ignore_step) -> Outcome:
    """One cycle in a session of its own, which can be looked into afterwards."""
    world, policy = s.world, s.policy
    world.memory.cycle += 1
    world.placements.clear_journal()
    on_step("recover")
    s.prepare()
    recover(s)
    for action in policy.actions:
        on_step(action)
        ACTIONS[action](s)
    on_step("deeds")
    end_broken_plans(s)
    end_orphaned_evictions(s)
    cancel_unneeded_evictions(s)
    pause_permit_waits(s)
    effects = collect_effects(s)
    world.placements.clear_journal()
    world.memory.decided_at = world.now
    verdicts = tuple((world.facts.gangs[key].full_name, verdict) for key, verdict in s.verdicts.items())
    return Outcome(world.memory.cycle, world.now, effects, verdicts, tuple(sorted(s.stats.items())))
