"""Claims: a node kept for a pod across cycles. Redeeming them is the fast path: no search where the room is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from muster.engine import explain
from muster.engine.domains import place_gang, place_where_allowed, why_refused
from muster.engine.hooks import Ask, Purpose
from muster.engine.place import in_turn, is_clear
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import PROMISED, Phase, Pod
from muster.state.cells import with_cells
from muster.state.lifecycle import count, reaches_min
from muster.state.memory import PlanNote
from muster.state.trial import Trial
from muster.state.world import World

REDEEMED = "Redeemed"
SPARED = "Spared"
REDEEMED_WHY = "the room that it was promised is free"
MOVED_WHY = "other room was free before the room that it was promised"


@dataclass(frozen=True, slots=True)
class Attempted:
    """`complete`: the gang has what it needs. The verdict may still say why further members have no node."""

    complete: bool
    verdict: Verdict


NOT_COMPLETE = Attempted(complete=False, verdict=Verdict(ok=False, why="no domain of the cluster is allowed", code=explain.NO_NODE))


def redeem(s: Session, gang: Gang) -> Attempted | None:
    """Bind what the gang was promised, whole, where it was promised or elsewhere. None: it has no nominations."""
    promised = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.NOMINATED]
    if not promised:
        return None
    if _counts_on_untold(s, promised):
        return Attempted(complete=False, verdict=explain.clearing(s.world, gang))
    there = [pod for pod in promised if room_is_there(s.world, pod)]
    if len(there) == len(promised):
        whole = _redeem(s, gang, there)
        if whole is not None:
            return whole
    if _move(s, gang, promised):
        return Attempted(complete=True, verdict=YES)
    some = _redeem(s, gang, there)
    return some or Attempted(complete=False, verdict=explain.clearing(s.world, gang))


def _redeem(s: Session, gang: Gang, there: list[Pod]) -> Attempted | None:
    """Bind these, and whoever else finds room; it counts only where the minimum is reached by that."""
    with s.trial(REDEEMED_WHY, cause=REDEEMED) as trial:
        turned = _turn(s, trial, there)
        bind_held(s.world, trial, gang)
        waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
        settled = place_where_allowed(s, trial, gang, waiting, phase=Phase.BINDING) if waiting else None
        if not reaches_min(s.world, gang):
            return None
        if any(s.world.phase(pod) is Phase.NOMINATED for pod in gang.pods()):
            verdict = explain.clearing(s.world, gang)
        else:
            verdict = why_refused(s, gang, settled) if settled is not None else YES
        trial.commit()
    s.count("claims redeemed", turned)
    return Attempted(complete=True, verdict=verdict)


def _turn(s: Session, trial: Trial, pods: list[Pod]) -> int:
    """Bind these where they were promised to go, as far as those who leave their queues have left; how many were bound."""
    turned = 0
    for pod in in_turn(s, pods):
        # Asked again for each: two that were promised one node may find room there for one of them so far.
        if room_is_there(s.world, pod) and s.room(pod, count=1, phase=Phase.BINDING).seats and is_clear(s, pod):
            trial.turn(pod, phase=Phase.BINDING)
            turned += 1
    return turned


def _counts_on_untold(s: Session, promised: list[Pod]) -> bool:
    """Those whom this very cycle sends away were not told yet: who minds more than room waits until they were."""
    if not any(s.is_entangled(pod) for pod in promised):
        return False
    return any(step.before.phase is Phase.BOUND and s.world.phase(step.pod) is Phase.LEAVING for step in s.world.placements.steps())


def _move(s: Session, gang: Gang, promised: list[Pod]) -> bool:
    """The whole gang on room that is free now, its own promises given up."""
    with s.trial(MOVED_WHY, cause="Moved") as trial:
        for pod in promised:
            trial.release(pod)
        waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
        settled = place_where_allowed(s, trial, gang, waiting, phase=Phase.BINDING)
        if settled.placed.first_refused is not None or not reaches_min(s.world, gang):
            return False
        bind_held(s.world, trial, gang)
        trial.commit()
    s.count("claims moved", len(promised))
    return True


def nominate_on_room_being_left(s: Session, gang: Gang) -> Attempted | None:
    """Room that is being left and that nobody claims is as good as free for a promise: nobody has to be evicted for that."""
    if not s.world.placements.going or reaches_min(s.world, gang, PROMISED):
        return None
    pods = needed(s.world, gang)
    if not s.admit(Ask(gang, pods, Purpose.NOMINATE)).ok:
        return None
    name = plan_name(s, gang)
    for domain in s.where(Ask(gang, pods, Purpose.NOMINATE)).domains:
        with s.trial("the room that it needs is being left", cause="Nominated") as trial:
            placed = place_gang(s, trial, pods, domain=domain, phase=Phase.NOMINATED)
            if placed.first_refused is not None or not reaches_min(s.world, gang, PROMISED):
                continue
            for pod in pods:
                trial.restore(pod, replace(s.world.placement(pod), plan=name))
            trial.commit()
        s.world.memory.plans.set(name, PlanNote(gang.key, len(pods), (), s.now))
        return Attempted(complete=True, verdict=explain.clearing(s.world, gang))
    return None


def plan_name(s: Session, gang: Gang) -> str:
    """A name for the next plan of a gang. Of several that are made in one moment each has its own, also where the others ended."""
    name = first = f"{gang.title}@{s.now:.3f}"
    taken = {step.before.plan for step in s.world.placements.steps()} if s.same_moment else set()
    number = 1
    while name in s.world.memory.plans or name in taken:
        number += 1
        name = f"{first}.{number}"
    return name


def needed(world: World, gang: Gang) -> tuple[Pod, ...]:
    """Members that the gang still needs for its minimums and that have neither a seat nor a claim."""
    pods: list[Pod] = []
    spare: list[Pod] = []
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in world.placements.by_uid]
        lacking = max(0, role.min - count(world, role, PROMISED) - role.succeeded)
        pods.extend(waiting[:lacking])
        spare.extend(waiting[lacking:])
    pods, spare = with_cells(world, gang, pods, spare)
    have = sum(count(world, role, PROMISED) + role.succeeded for role in gang.roles)
    return (*pods, *spare[: max(0, gang.min - have - len(pods))])


def end_broken_plans(s: Session) -> None:
    """A gang that lost a claim and found no new room gives up its other claims too: half of it is worth nothing."""
    world = s.world
    promised = {
        world.facts.members[uid].gang for uid in world.placements.claims if world.placements.by_uid[uid].phase is Phase.NOMINATED
    }
    for key in sorted(promised):
        gang = world.facts.gangs[key]
        if not reaches_min(world, gang, PROMISED):
            end_claims(s, gang, "claims that it needs were lost and no other room was found", cause="PlanBroken")


def end_claims(s: Session, gang: Gang, why: str, *, cause: str) -> None:
    """All nominations of a gang end together. Whoever was only asked to leave for them may stay."""
    for plan in [plan for plan in s.world.memory.plans.values() if plan.gang == gang.key and plan.soft]:
        for victim in [s.world.facts.pods[uid] for uid in plan.victims if uid in s.world.placements.going]:
            if victim.deleted_at is None:
                let_stay(s, victim, f"{gang.title} no longer needs its room: {why}")
    for pod in gang.pods():
        if s.world.phase(pod) is Phase.NOMINATED:
            with s.trial(why, cause=cause) as trial:
                trial.release(pod)
                trial.commit()


def let_stay(s: Session, victim: Pod, why: str) -> None:
    """Take back that somebody was asked to leave. It is not asked again for a while."""
    with s.trial(why, cause=SPARED) as trial:
        trial.turn(victim, phase=Phase.BOUND)
        trial.commit()
    s.world.memory.spared.set(victim.uid, s.now)


def bind_held(world: World, trial: Trial, gang: Gang) -> None:
    """The gang is complete: what it held is bound with the rest."""
    if gang.mode is Mode.NON_STRICT:
        for pod in gang.pods():
            if world.phase(pod) is Phase.HELD:
                trial.turn(pod, phase=Phase.BINDING)


def room_is_there(world: World, pod: Pod) -> bool:
    """Have those who leave this pod's node gone far enough that it fits now? Its own claim keeps everybody else out."""
    table = world.table
    row = table.row.get(world.placement(pod).node or "")
    return row is not None and bool((table.used[row] + world.request(pod) <= table.allocatable[row]).all())
