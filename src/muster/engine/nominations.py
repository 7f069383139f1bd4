"""Claims: a node kept for a pod across cycles. Redeeming them is the fast path: no search where the room is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from muster.engine import explain
from muster.engine.domain_placement import place_gang, place_in_allowed_domains, why_refused
from muster.engine.hooks import Ask, Purpose
from muster.engine.place import passes_filters, placement_order
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod
from muster.state.gangs.gang_stage import count, reaches_min
from muster.state.gangs.subgroups import with_subgroup_members
from muster.state.memory import ActivePlan
from muster.state.trial import Trial
from muster.state.world import World

NOMINATED_BOUND = "Redeemed"
EVICTION_CANCELLED = "Spared"
NOMINATED_BOUND_WHY = "the room that it was promised is free"
MOVED_WHY = "other room was free before the room that it was promised"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`complete`: the gang has what it needs. The verdict may still say why further members have no node."""

    complete: bool
    verdict: Verdict


NOT_COMPLETE = AttemptResult(
    complete=False, verdict=Verdict(ok=False, why="no domain of the cluster is allowed", code=explain.NO_NODE)
)


def bind_nominated(s: Session, gang: Gang) -> AttemptResult | None:
    """Bind what the gang was promised, whole, where it was promised or elsewhere. None: it has no nominations."""
    promised = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.NOMINATED]
    if not promised:
        return None
    if _needs_unsent_evictions(s, promised):
        return AttemptResult(complete=False, verdict=explain.waiting_for_preemption(s.world, gang))
    there = [pod for pod in promised if fits_now(s.world, pod)]
    if len(there) == len(promised):
        whole = _bind_nominated(s, gang, there)
        if whole is not None:
            return whole
    if _place_elsewhere(s, gang, promised):
        return AttemptResult(complete=True, verdict=YES)
    some = _bind_nominated(s, gang, there)
    return some or AttemptResult(complete=False, verdict=explain.waiting_for_preemption(s.world, gang))


def _bind_nominated(s: Session, gang: Gang, there: list[Pod]) -> AttemptResult | None:
    """Bind these, and whoever else finds room; it counts only where the minimum is reached by that."""
    with s.trial(NOMINATED_BOUND_WHY, cause=NOMINATED_BOUND) as trial:
        turned = _bind_where_free(s, trial, there)
        bind_reserved(s.world, trial, gang)
        waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
        settled = place_in_allowed_domains(s, trial, gang, waiting, phase=Phase.BINDING) if waiting else None
        if not reaches_min(s.world, gang):
            return None
        if any(s.world.phase(pod) is Phase.NOMINATED for pod in gang.pods()):
            verdict = explain.waiting_for_preemption(s.world, gang)
        else:
            verdict = why_refused(s, gang, settled) if settled is not None else YES
        trial.commit()
    s.count("claims redeemed", turned)
    return AttemptResult(complete=True, verdict=verdict)


def _bind_where_free(s: Session, trial: Trial, pods: list[Pod]) -> int:
    """Bind these where they were promised to go, as far as those who leave their queues have left; how many were bound."""
    turned = 0
    for pod in placement_order(s, pods):
        # Asked again for each: two that were promised one node may find room there for one of them so far.
        if fits_now(s.world, pod) and s.quota_fit(pod, count=1, phase=Phase.BINDING).fit_count and passes_filters(s, pod):
            trial.change_phase(pod, phase=Phase.BINDING)
            turned += 1
    return turned


def _needs_unsent_evictions(s: Session, promised: list[Pod]) -> bool:
    """Those whom this very cycle sends away were not told yet: who minds more than room waits until they were."""
    if not any(s.has_inter_pod_constraints(pod) for pod in promised):
        return False
    return any(
        step.before.phase is Phase.BOUND and s.world.phase(step.pod) is Phase.TERMINATING for step in s.world.placements.steps()
    )


def _place_elsewhere(s: Session, gang: Gang, promised: list[Pod]) -> bool:
    """The whole gang on room that is free now, its own promises given up."""
    with s.trial(MOVED_WHY, cause="Moved") as trial:
        for pod in promised:
            trial.release(pod)
        waiting = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
        settled = place_in_allowed_domains(s, trial, gang, waiting, phase=Phase.BINDING)
        if settled.placed.first_refused is not None or not reaches_min(s.world, gang):
            return False
        bind_reserved(s.world, trial, gang)
        trial.commit()
    s.count("claims moved", len(promised))
    return True


def nominate_on_releasing(s: Session, gang: Gang) -> AttemptResult | None:
    """Room that is being left and that nobody claims is as good as free for a promise: nobody has to be evicted for that."""
    if not s.world.placements.releasing or reaches_min(s.world, gang, PLACED_OR_NOMINATED):
        return None
    pods = members_needed(s.world, gang)
    if not s.admit(Ask(gang, pods, Purpose.NOMINATE)).ok:
        return None
    name = plan_name(s, gang)
    for domain in s.where(Ask(gang, pods, Purpose.NOMINATE)).domains:
        with s.trial("the room that it needs is being left", cause="Nominated") as trial:
            placed = place_gang(s, trial, pods, domain=domain, phase=Phase.NOMINATED)
            if placed.first_refused is not None or not reaches_min(s.world, gang, PLACED_OR_NOMINATED):
                continue
            for pod in pods:
                trial.restore(pod, replace(s.world.placement(pod), plan=name))
            trial.commit()
        s.world.memory.plans.set(name, ActivePlan(gang.key, len(pods), (), s.now))
        return AttemptResult(complete=True, verdict=explain.waiting_for_preemption(s.world, gang))
    return None


def plan_name(s: Session, gang: Gang) -> str:
    """A name for the next plan of a gang. Of several that are made in one moment each has its own, also where the others ended."""
    name = first = f"{gang.full_name}@{s.now:.3f}"
    taken = {step.before.plan for step in s.world.placements.steps()} if s.same_moment else set()
    number = 1
    while name in s.world.memory.plans or name in taken:
        number += 1
        name = f"{first}.{number}"
    return name


def members_needed(world: World, gang: Gang) -> tuple[Pod, ...]:
    """Members that the gang still needs for its minimums and that have neither a seat nor a claim."""
    pods: list[Pod] = []
    spare: list[Pod] = []
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in world.placements.by_uid]
        lacking = max(0, role.min - count(world, role, PLACED_OR_NOMINATED) - role.succeeded)
        pods.extend(waiting[:lacking])
        spare.extend(waiting[lacking:])
    pods, spare = with_subgroup_members(world, gang, pods, spare)
    have = sum(count(world, role, PLACED_OR_NOMINATED) + role.succeeded for role in gang.roles)
    return (*pods, *spare[: max(0, gang.min - have - len(pods))])


def end_broken_plans(s: Session) -> None:
    """A gang that lost a claim and found no new room gives up its other claims too: half of it is worth nothing."""
    world = s.world
    promised = {
        world.facts.members[uid].gang
        for uid in world.placements.reservations
        if world.placements.by_uid[uid].phase is Phase.NOMINATED
    }
    for key in sorted(promised):
        gang = world.facts.gangs[key]
        if not reaches_min(world, gang, PLACED_OR_NOMINATED):
            end_nominations(s, gang, "claims that it needs were lost and no other room was found", cause="PlanBroken")


def end_nominations(s: Session, gang: Gang, why: str, *, cause: str) -> None:
    """All nominations of a gang end together. Whoever was only asked to leave for them may stay."""
    for plan in [plan for plan in s.world.memory.plans.values() if plan.gang == gang.key and plan.soft]:
        for victim in [s.world.facts.pods[uid] for uid in plan.victims if uid in s.world.placements.releasing]:
            if victim.deleted_at is None:
                cancel_eviction(s, victim, f"{gang.full_name} no longer needs its room: {why}")
    for pod in gang.pods():
        if s.world.phase(pod) is Phase.NOMINATED:
            with s.trial(why, cause=cause) as trial:
                trial.release(pod)
                trial.commit()


def cancel_eviction(s: Session, victim: Pod, why: str) -> None:
    """Take back that somebody was asked to leave. It is not asked again for a while."""
    with s.trial(why, cause=EVICTION_CANCELLED) as trial:
        trial.change_phase(victim, phase=Phase.BOUND)
        trial.commit()
    s.world.memory.cancelled_evictions.set(victim.uid, s.now)


def bind_reserved(world: World, trial: Trial, gang: Gang) -> None:
    """The gang is complete: what it held is bound with the rest."""
    if gang.mode is Mode.NON_STRICT:
        for pod in gang.pods():
            if world.phase(pod) is Phase.RESERVED:
                trial.change_phase(pod, phase=Phase.BINDING)


def fits_now(world: World, pod: Pod) -> bool:
    """Have those who leave this pod's node gone far enough that it fits now? Its own claim keeps everybody else out."""
    table = world.table
    row = table.row.get(world.placement(pod).node or "")
    return row is not None and bool((table.used[row] + world.request(pod) <= table.allocatable[row]).all())
