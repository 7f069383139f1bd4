"""Allocate: gangs in order, each placed whole on free capacity or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from muster.engine import explain
from muster.engine.attempt_budget import AttemptBudget
from muster.engine.consolidate.ended_moves import end_moves_for
from muster.engine.domain_placement import DomainPlacement, place_gang, place_in_best_domain, why_refused
from muster.engine.equal_gangs import RefusedGangs
from muster.engine.gang_order import gangs_to_attempt, order_gangs
from muster.engine.hooks import AllowedDomains, Ask, Domain, Purpose
from muster.engine.kept_capacity import KeptCapacity
from muster.engine.members_to_place import (
    UnplacedMembers,
    has_minimum_placed,
    have_alternatives,
    release_surplus,
    release_unexpected,
    unplaced_members,
)
from muster.engine.nominations import AttemptResult, bind_nominated, bind_reserved, nominate_on_releasing
from muster.engine.quota import queue_accepts
from muster.engine.reservations import could_ever_complete, take_reservations
from muster.engine.session import Refusals, Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.gang_stage import count, has_enough_members, phases_that_count, reaches_min
from muster.state.gangs.refused_binds import refused_member
from muster.state.trial import Trial
from muster.state.world import World

BOUND_WHY = "every member that the gang needs has a node"
RESERVED_WHY = "reserved until the gang has every member that it needs"
MOVED_WHY = "every member that the gang needs has a node, but not together with its reservations"
FITS = "Fits"


def allocate(s: Session, refusals: Refusals) -> None:
    """Minimums first: members above the minimum of their gang are placed after every gang of its priority has had its turn."""
    budget = AttemptBudget(s)
    gangs = budget.candidates(gangs_to_attempt(s))
    turns = Counter(gang.priority for gang in gangs)
    started: dict[int, list[Gang]] = {}
    visited: set[str] = set()
    kept, refused = KeptCapacity(s), RefusedGangs(s)
    s.kept = kept
    for gang in order_gangs(s, gangs):
        visited.add(gang.key)
        complete = False
        if not s.is_still_refused(gang.key) and budget.allows(gang):
            result = _beside_kept(s, gang, kept, lambda each: attempt(s, each, visited, refused))
            budget.charge(gang, result)
            complete = result.complete
            if complete and has_surplus(s.world, gang):
                started.setdefault(gang.priority, []).append(gang)
            else:
                _record(s, gang, result, refusals)
        kept.visited(gang, complete=complete)
        turns[gang.priority] -= 1
        if not turns[gang.priority] and gang.priority in started:
            for grown in order_gangs(s, started.pop(gang.priority)):
                if budget.allows(grown):
                    result = _surplus_beside_kept(s, grown, kept)
                    budget.charge(grown, result)
                    _record(s, grown, result, refusals)


def _beside_kept(s: Session, gang: Gang, kept: KeptCapacity, attempt_one: Callable[[Gang], AttemptResult]) -> AttemptResult:
    """An attempt without what is kept for gangs before this one. Nominations were made before that."""
    closed = kept.closed_to(gang)
    is_new = bool(closed) and s.world.placements.unplaced_members[gang.key] == gang.size and may_attempt(s.world, gang).ok
    beside = kept.admits(gang, closed, unplaced_members(s.world, gang).minimum) if is_new else YES
    if not beside.ok:
        _count_attempt(s, gang)
        return AttemptResult(complete=False, verdict=beside)
    s.left_out = kept.left_out(closed)
    result = attempt_one(gang)
    s.left_out = None
    explained = kept.explained(gang, result.verdict, closed)
    return result if explained is result.verdict else replace(result, verdict=explained)


def _surplus_beside_kept(s: Session, gang: Gang, kept: KeptCapacity) -> AttemptResult:
    """Of the members above the minimum as many as fit beside what is kept for others."""
    closed = kept.closed_to(gang, surplus=True)
    waiting = tuple(pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid)
    pods, beside = kept.admitted_beside(gang, closed, waiting)
    s.left_out = kept.left_out(closed)
    result = place_surplus(s, gang, pods) if pods else AttemptResult(complete=True, verdict=beside)
    s.left_out = None
    verdict = beside if result.verdict.ok else result.verdict
    return replace(result, verdict=kept.explained(gang, verdict, closed))


def _record(s: Session, gang: Gang, result: AttemptResult, refusals: Refusals) -> None:
    s.record_verdict(gang, result.verdict)
    if not result.complete or not result.verdict.ok:
        refusals[gang.key] = result.verdict


def attempt(s: Session, gang: Gang, visited: set[str], refused: RefusedGangs) -> AttemptResult:
    """One attempt: everything that this gang needs. A strict gang that fails leaves no trace.

    `visited` are the gangs that came before it in the order, and itself: reservations of all others are released if that completes
    it.
    """
    verdict = may_attempt(s.world, gang)
    if not verdict.ok:
        return AttemptResult(complete=False, verdict=verdict)
    _count_attempt(s, gang)
    return refused.attempt(gang, lambda: _attempt(s, gang, visited))


def _attempt(s: Session, gang: Gang, visited: set[str]) -> AttemptResult:
    first = place_on_free(s, gang)
    if first.complete and has_minimum_placed(s.world, gang):
        return first
    refused = explain.bind_refused(s.world, gang)
    if not refused.ok:
        why = f"{refused.why}; {first.verdict.why}"
        return AttemptResult(complete=False, verdict=replace(first.verdict, why=why, curable=False))
    second = take_reservations(s, gang, visited, place_on_free)
    if second.complete or first.complete:
        return second if second.complete else first
    third = end_moves_for(s, gang, place_on_free)
    if third.complete:
        return third
    return nominate_on_releasing(s, gang) or first


def _count_attempt(s: Session, gang: Gang) -> None:
    s.world.memory.begin_attempt(gang.key, now=s.now)
    s.count("attempts")


def may_attempt(world: World, gang: Gang) -> Verdict:
    """May the gang be attempted at all?"""
    if gang.invalid_because:
        return Verdict(ok=False, why=gang.invalid_because, code=explain.INVALID)
    if gang.waiting_for or not has_enough_members(gang):
        return explain.waiting_for_pods(gang)
    supported = explain.unsupported(gang)
    if not supported.ok:
        return supported
    refused = explain.bind_refused(world, gang)
    if refused.at is not None and world.now < refused.at:
        return refused
    marked = next((pod for pod in gang.pods() if pod.timed_out or pod.uid in world.memory.timed_out), None)
    if marked is not None:
        why = f"{marked.full_name} is marked as timed out: delete and re-create the pods, or remove the mark"
        return Verdict(ok=False, why=why, code=explain.TIMED_OUT)
    return queue_accepts(world, gang)


def place_on_free(s: Session, gang: Gang) -> AttemptResult:
    """Place what the gang needs on what is free now: first on its nominated nodes, then by a search."""
    if s.world.placements.unplaced_members[gang.key] and any(pod.uid in s.world.placements.reservations for pod in gang.pods()):
        bound = bind_nominated(s, gang)
        if bound is not None:
            return bound
    members = unplaced_members(s.world, gang)
    if not members.minimum and not members.together:
        return _bind_all_reserved(s, gang)
    ask = _ask_for_minimum(gang, members)
    verdict = s.admit(ask)
    if not verdict.ok:
        return AttemptResult(complete=False, verdict=verdict)
    where = s.where(ask)
    if where.domains:
        placed = _place(s, ask, members, where.domains)
    else:
        placed = AttemptResult(complete=reaches_min(s.world, gang), verdict=where.verdict)
    if not placed.complete and _move_reserved(s, gang):
        return AttemptResult(complete=True, verdict=YES)
    return placed


def _bind_all_reserved(s: Session, gang: Gang) -> AttemptResult:
    """The gang has what it needs: nodes that are reserved for it are bound."""
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        bind_reserved(s.world, trial, gang)
        trial.commit()
    return AttemptResult(complete=True, verdict=YES)


def _ask_for_minimum(gang: Gang, members: UnplacedMembers) -> Ask:
    """All members, of which the first are needed: a domain is chosen with all of them in mind."""
    return Ask(gang, (*members.minimum, *members.surplus), Purpose.ALLOCATE, needed=len(members.minimum) * members.together)


def _place(s: Session, ask: Ask, members: UnplacedMembers, domains: Sequence[Domain]) -> AttemptResult:
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        settled = _place_minimum(s, trial, ask, members, domains)
        verdict = _verdict(s, ask, settled, domain_count=len(domains))
        if settled.complete:
            bind_reserved(s.world, trial, ask.gang)
            trial.commit()
            return AttemptResult(complete=True, verdict=verdict)
    if ask.gang.mode is Mode.NON_STRICT and refused_member(s.world, ask.gang) is None and could_ever_complete(s, ask.gang):
        _reserve(s, ask, members, settled.domain)
    return AttemptResult(complete=False, verdict=verdict)


def _place_minimum(s: Session, trial: Trial, ask: Ask, members: UnplacedMembers, domains: Sequence[Domain]) -> DomainPlacement:
    """Place what the minimum needs: in the one domain that there is, or in the best one for all members."""
    if len(domains) == 1 or not members.surplus or not members.together:
        only = replace(ask, pods=members.minimum, admitted=members.together)
        mark = trial.mark()
        settled = place_in_best_domain(s, trial, only, domains, phase=Phase.BINDING)
        if settled.placed.first_refused is None or not have_alternatives(s.world, ask.gang, members):
            return settled
        trial.undo_to(mark)
    before = _placed_by_role(s.world, ask.gang)
    settled = place_in_best_domain(s, trial, ask, domains, phase=Phase.BINDING)
    if settled.complete:
        release_surplus(s.world, trial, ask.gang, members, before)
    return settled


def _placed_by_role(world: World, gang: Gang) -> dict[str, int]:
    phases = phases_that_count(world, gang, PLACED)
    return {role.name: count(world, role, phases) + role.succeeded for role in gang.roles}


def _reserve(s: Session, ask: Ask, members: UnplacedMembers, domain: Domain) -> None:
    """Keep as many nodes as there are for what the minimum needs, until the gang is complete."""
    before = _placed_by_role(s.world, ask.gang)
    with s.trial(RESERVED_WHY, cause="Accumulates") as trial:
        pods = ask.pods if have_alternatives(s.world, ask.gang, members) else members.minimum
        place_gang(s, trial, pods, domain=domain, phase=Phase.RESERVED, needed=ask.needed)
        release_surplus(s.world, trial, ask.gang, members, before)
        trial.commit()


def has_surplus(world: World, gang: Gang) -> bool:
    """Does the gang have what it needs, and members without a node beyond that?"""
    if not world.placements.unplaced_members.get(gang.key):
        return False
    return any(pod.uid not in world.placements.by_uid for pod in gang.pods()) and reaches_min(world, gang)


def place_surplus(s: Session, gang: Gang, pods: tuple[Pod, ...]) -> AttemptResult:
    """Place these members above the minimum of a gang that has it, as many as fit and as it expects in one cycle."""
    ask = Ask(gang, pods, Purpose.ALLOCATE, needed=0)
    verdict = s.admit(ask)
    where = s.where(ask) if verdict.ok else AllowedDomains((), verdict)
    if not where.domains:
        return AttemptResult(complete=True, verdict=where.verdict)
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        settled = place_in_best_domain(s, trial, ask, where.domains, phase=Phase.BINDING)
        verdict = _verdict(s, ask, settled, domain_count=len(where.domains))
        if release_unexpected(s.world, trial, gang, pods):
            verdict = explain.next_cycle(s.world, gang)
        trial.commit()
    return AttemptResult(complete=True, verdict=verdict)


def _move_reserved(s: Session, gang: Gang) -> bool:
    """Place the gang without regard to the nodes that are reserved for it, which may be in its own way: if it completes so, it
    moves there."""
    reserved = [pod for pod in gang.pods() if s.world.phase(pod) is Phase.RESERVED]
    if not reserved:
        return False
    with s.trial(MOVED_WHY, cause="Moved") as trial:
        for pod in reserved:
            trial.release(pod)
        members = unplaced_members(s.world, gang)
        ask = _ask_for_minimum(gang, members)
        domains = s.where(ask).domains
        if not domains or not _place_minimum(s, trial, ask, members, domains).complete:
            return False
        trial.commit()
    s.count("reservations moved", len(reserved))
    return True


def _verdict(s: Session, ask: Ask, settled: DomainPlacement, *, domain_count: int) -> Verdict:
    """Why not everybody was placed, with those who were still in the trial."""
    if settled.placed.first_refused is None:
        nominated = s.world.placements.reservations and any(s.world.phase(pod) is Phase.NOMINATED for pod in ask.gang.pods())
        return YES if settled.complete and not nominated else explain.waiting_for_preemption(s.world, ask.gang)
    verdict = why_refused(s, ask.gang, settled)
    # Of the other domains it is not known whether an eviction could help there.
    return verdict if domain_count == 1 else replace(verdict, why=f"{verdict.why} (best of {domain_count} domains)", curable=True)
