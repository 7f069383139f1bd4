"""One cycle: numbered steps, among them the actions of the policy in its order, on one world."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.engine.allocate import allocate
from muster.engine.backfill_reservations import update_backfill_reservations
from muster.engine.commit import collect_effects
from muster.engine.consolidate.consolidate import consolidate
from muster.engine.consolidate.movable_pods import CONSOLIDATE
from muster.engine.consolidate.moved_pods import drop_settled_moves, settle_moves
from muster.engine.enqueue import enqueue
from muster.engine.evict.evict_actions import EVICT_ACTIONS
from muster.engine.evict.eviction_history import record_evictions
from muster.engine.expire import expire
from muster.engine.hooks import Policy
from muster.engine.nominations import end_broken_plans
from muster.engine.past_use import record_use
from muster.engine.permit_wait import pause_permit_waits
from muster.engine.recover import recover
from muster.engine.session import Refusals, Session
from muster.engine.unneeded_evictions import cancel_unneeded_evictions
from muster.model.effects import Outcome
from muster.model.pod import RESERVATIONS, Phase, Placement
from muster.state.gangs.broken_gangs import note_broken_gangs
from muster.state.memory import BindingReservation
from muster.state.placements import NetChange
from muster.state.trial import take_back
from muster.state.world import World

ACTIONS: dict[str, Callable[[Session, Refusals], None]] = {
    "expire": expire,
    "enqueue": enqueue,
    "allocate": allocate,
    CONSOLIDATE: consolidate,
    **EVICT_ACTIONS,
}

StepCallback = Callable[[str], None]
"""Called with the name of each part of a cycle before it begins, so that somebody with a clock can measure it."""


def _ignore_step(_: str) -> None:
    return


def run_cycle(world: World, policy: Policy, *, on_step: StepCallback | None = None) -> Outcome:
    """Decide. What was decided holds in the world from now on, and comes out as effects to be carried out."""
    return run_session(Session(world, policy), on_step=on_step or _ignore_step)


def run_cycle_undone(world: World, policy: Policy, *, on_step: StepCallback | None = None) -> Outcome:
    """Decide, and take it back: pods are where they were and no plan is under way. What is remembered of attempts and of what was
    observed stays, so that gangs have their turns as they would."""
    return run_session(Session(world, policy), on_step=on_step or _ignore_step, undone=True)


def run_session(s: Session, *, on_step: StepCallback = _ignore_step, undone: bool = False) -> Outcome:
    """One cycle in a session of its own, which can be inspected afterwards."""
    memory, placements = s.world.memory, s.world.placements
    # 1. A cycle begins: what was decided before cannot be undone any more.
    memory.cycle += 1
    placements.clear_journal()
    # 2. Plugins prepare; reservations that a former scheduler wrote are taken over or dropped; gangs that fell
    # below their minimum are noted; pods that were moved and created anew take what was kept for them.
    on_step("recover")
    s.prepare()
    recover(s)
    note_broken_gangs(s.world, stale_s=s.policy.settings.stale_s)
    settle_moves(s)
    # 3. The policy's actions, in its order.
    refusals: Refusals = {}
    for action in s.policy.actions:
        on_step(action)
        ACTIONS[action](s, refusals)
    # 4. Plans that lost a nomination end whole; soft evictions that are for nobody any more are cancelled; nodes are
    # kept for gangs that have waited for long; wait times are put off.
    on_step("commit")
    end_broken_plans(s)
    drop_settled_moves(s)
    cancel_unneeded_evictions(s)
    update_backfill_reservations(s, refusals)
    pause_permit_waits(s)
    record_evictions(s)
    record_use(s)
    # 5. What is left of the journal is decided, and becomes effects.
    changes = placements.settle()
    _remember_bindings(s.world, changes)
    effects = collect_effects(s, changes)
    if undone:
        take_back(s.world, changes, keeping=memory.observed_tables())
    placements.clear_journal()
    memory.decided_at = s.now
    verdicts = tuple((s.world.facts.gangs[key].full_name, verdict) for key, verdict in s.verdicts.items())
    return Outcome(memory.cycle, s.now, effects, verdicts, tuple(sorted(s.stats.items())))


def _remember_bindings(world: World, changes: Sequence[NetChange]) -> None:
    """A pod that is bound where it had a reservation goes back to that if its bind fails."""
    moves = {move.successor: (uid, move.placement) for uid, move in world.memory.moves.items()}
    for change in changes:
        before, now = change.before, change.now
        if before.node is None and change.step.pod.uid in moves:
            # It took what was kept for it in this very cycle.
            plan, kept = moves[change.step.pod.uid]
            before = Placement(Phase.NOMINATED, kept.node, now.since, now.devices, plan)
        if now.phase is Phase.BINDING and before.phase in RESERVATIONS and before.node == now.node:
            note = BindingReservation(before, world.memory.plans.get(before.plan))
            world.memory.binding_reservations.set(change.step.pod.uid, note)
