"""Nominations: nodes kept for a gang's members until capacity is released there. Binding the nominated is the fast path: no
search."""

from __future__ import annotations

from dataclasses import dataclass, replace

from muster.engine import explain
from muster.engine.domain_placement import place_gang, place_in_allowed_domains, why_refused
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import split_members, unplaced_members
from muster.engine.place import passes_filters, placement_order
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod
from muster.model.saved_state import CancelledEviction
from muster.state.gangs.gang_stage import reaches_min
from muster.state.memory import ActivePlan
from muster.state.trial import Trial
from muster.state.world import World

NOMINATED_BOUND = "NominatedBound"
EVICTION_CANCELLED = "EvictionCancelled"
NOMINATED_BOUND_WHY = "the capacity on its nominated node is free"
MOVED_WHY = "other capacity was free before that on its nominated node"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`complete`: the gang has what it needs. The verdict may still say why further members have no node."""

    complete: bool
    verdict: Verdict


NOT_COMPLETE = AttemptResult(
    complete=False, verdict=Verdict(ok=False, why="no domain of the cluster is allowed", code=explain.NO_NODE)
)


def bind_nominated(s: Session, gang: Gang) -> AttemptResult | None:
    """Bind the gang's nominated members together, on their nodes or on others that are free. None: it has no nominations."""
    nominated = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.NOMINATED]
    if not nominated:
        return None
    if _needs_unsent_evictions(s, nominated):
        return AttemptResult(complete=False, verdict=explain.waiting_for_preemption(s.world, gang))
    free_now = [pod for pod in nominated if fits_now(s.world, pod)]
    if len(free_now) == len(nominated):
        whole = _bind_nominated(s, gang, free_now)
        if whole is not None:
            return whole
    if _place_elsewhere(s, gang, nominated):
        return AttemptResult(complete=True, verdict=YES)
    some = _bind_nominated(s, gang, free_now)
    return some or AttemptResult(complete=False, verdict=explain.waiting_for_preemption(s.world, gang))


def _bind_nominated(s: Session, gang: Gang, free_now: list[Pod]) -> AttemptResult | None:
    """Bind these, and other members on free capacity; undone unless the gang reaches its minimum by that."""
    with s.trial(NOMINATED_BOUND_WHY, cause=NOMINATED_BOUND) as trial:
        bound = _bind_where_free(s, trial, free_now)
        bind_reserved(s.world, trial, gang)
        waiting = unplaced_members(s.world, gang).minimum
        settled = place_in_allowed_domains(s, trial, gang, waiting, phase=Phase.BINDING) if waiting else None
        if not reaches_min(s.world, gang):
            return None
        if any(s.world.phase(pod) is Phase.NOMINATED for pod in gang.pods()):
            verdict = explain.waiting_for_preemption(s.world, gang)
        else:
            verdict = why_refused(s, gang, settled) if settled is not None else YES
        trial.commit()
    s.count("reservations bound", bound)
    return AttemptResult(complete=True, verdict=verdict)


def _bind_where_free(s: Session, trial: Trial, pods: list[Pod]) -> int:
    """Bind these on their nominated nodes, as far as usage of their queues was released; returns how many were bound."""
    bound = 0
    for pod in placement_order(s, pods):
        # Checked again for each: of two that are nominated to one node only one may fit so far.
        if fits_now(s.world, pod) and s.quota_fit(pod, count=1, phase=Phase.BINDING).fit_count and passes_filters(s, pod):
            trial.change_phase(pod, phase=Phase.BINDING)
            bound += 1
    return bound


def _needs_unsent_evictions(s: Session, nominated: list[Pod]) -> bool:
    """Evictions of this very cycle are not sent yet: a pod that depends on more than capacity waits until they are."""
    if not any(s.has_inter_pod_constraints(pod) for pod in nominated):
        return False
    return any(
        step.before.phase is Phase.BOUND and s.world.phase(step.pod) is Phase.TERMINATING for step in s.world.placements.steps()
    )


def _place_elsewhere(s: Session, gang: Gang, nominated: list[Pod]) -> bool:
    """Place the whole gang on capacity that is free now, and give up its nominations."""
    with s.trial(MOVED_WHY, cause="Moved") as trial:
        for pod in nominated:
            trial.release(pod)
        waiting = [*nominated, *(pod for pod in unplaced_members(s.world, gang).minimum if pod not in nominated)]
        settled = place_in_allowed_domains(s, trial, gang, waiting, phase=Phase.BINDING)
        if settled.placed.first_refused is not None or not reaches_min(s.world, gang):
            return False
        bind_reserved(s.world, trial, gang)
        trial.commit()
    s.count("reservations moved", len(nominated))
    return True


def nominate_on_releasing(s: Session, gang: Gang) -> AttemptResult | None:
    """Capacity that is being released and that nobody else was nominated to counts as free for a nomination: no eviction is
    needed."""
    if not s.world.placements.releasing or reaches_min(s.world, gang, PLACED_OR_NOMINATED):
        return None
    pods = members_needed(s.world, gang)
    if not s.admit(Ask(gang, pods, Purpose.NOMINATE)).ok:
        return None
    name = plan_name(s, gang)
    for domain in s.where(Ask(gang, pods, Purpose.NOMINATE)).domains:
        with s.trial("the capacity that it needs is being released", cause="Nominated") as trial:
            placed = place_gang(s, trial, pods, domain=domain, phase=Phase.NOMINATED)
            if placed.first_refused is not None or not reaches_min(s.world, gang, PLACED_OR_NOMINATED):
                continue
            for pod in pods:
                trial.restore(pod, replace(s.world.placement(pod), plan=name))
            trial.commit()
        s.world.memory.plans.set(name, ActivePlan(gang.key, (), s.now))
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
    """Members without a node or nomination that the gang still needs for its minimums."""
    return split_members(world, gang, PLACED_OR_NOMINATED)[0]


def end_broken_plans(s: Session) -> None:
    """A gang that lost a nomination and could not be placed otherwise gives up the others too: part of a gang is worth nothing."""
    world = s.world
    nominated = {
        world.facts.members[uid].gang
        for uid in world.placements.reservations
        if world.placements.by_uid[uid].phase is Phase.NOMINATED
    }
    for key in sorted(nominated):
        gang = world.facts.gangs[key]
        if not reaches_min(world, gang, PLACED_OR_NOMINATED):
            end_nominations(s, gang, "nominations that it needs were lost and no other capacity was found", cause="PlanBroken")


def end_nominations(s: Session, gang: Gang, why: str, *, cause: str) -> None:
    """All nominations of a gang end together. Soft evictions for them are cancelled."""
    names = {s.world.placement(pod).plan for pod in gang.pods() if s.world.phase(pod) is Phase.NOMINATED}
    for plan in [plan for name, plan in s.world.memory.plans.items() if name in names]:
        for victim in [s.world.facts.pods[uid] for uid in plan.victims if uid in s.world.placements.releasing]:
            if victim.deleted_at is None and (plan.soft or _is_evicted_softly(s, victim)):
                cancel_eviction(s, victim, f"{gang.full_name} no longer needs its capacity: {why}")
    for pod in gang.pods():
        if s.world.phase(pod) is Phase.NOMINATED:
            with s.trial(why, cause=cause) as trial:
                trial.release(pod)
                trial.commit()


def _is_evicted_softly(s: Session, victim: Pod) -> bool:
    member = s.world.facts.members.get(victim.uid)
    return member is not None and s.policy.manner("", queue=member.queue) == "soft"


def cancel_eviction(s: Session, victim: Pod, why: str) -> None:
    """Cancel a soft eviction. The pod is not chosen again for a while."""
    with s.trial(why, cause=EVICTION_CANCELLED) as trial:
        trial.change_phase(victim, phase=Phase.BOUND)
        trial.commit()
    before = s.world.memory.cancelled_evictions.get(victim.uid)
    s.world.memory.cancelled_evictions.set(victim.uid, CancelledEviction(s.now, 1 if before is None else before.count + 1))
    s.world.memory.take_back_eviction(victim.uid)


def nominated_by_plan(world: World) -> dict[str, list[str]]:
    """Plans of which nominations are left: the UIDs of their pods, by name."""
    found: dict[str, list[str]] = {}
    for uid in world.placements.reservations:
        found.setdefault(world.placements.by_uid[uid].plan, []).append(uid)
    return found


def leave_plans(s: Session, victim: Pod) -> None:
    """The pod is no victim any more. Plans that go on without it name only whom they need."""
    for name, plan in [(name, plan) for name, plan in s.world.memory.plans.items() if victim.uid in plan.victims]:
        s.world.memory.plans.set(name, replace(plan, victims=tuple(uid for uid in plan.victims if uid != victim.uid)))


def bind_reserved(world: World, trial: Trial, gang: Gang) -> None:
    """The gang is complete: its reserved members are bound with the rest."""
    if gang.mode is Mode.NON_STRICT:
        for pod in gang.pods():
            if world.phase(pod) is Phase.RESERVED:
                trial.change_phase(pod, phase=Phase.BINDING)


def fits_now(world: World, pod: Pod) -> bool:
    """Was enough released on its nominated node that it fits now? Its own nomination keeps others out."""
    table = world.table
    row = table.row.get(world.placement(pod).node or "")
    return row is not None and bool((table.used[row] + world.request(pod) <= table.allocatable[row]).all())
