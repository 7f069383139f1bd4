"""Allocate: gangs in order, each placed whole on free capacity or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.engine import explain
from muster.engine.domain_placement import DomainPlacement, place_gang, place_in_best_domain, why_refused
from muster.engine.gang_order import gangs_in_order
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.nominations import AttemptResult, bind_nominated, bind_reserved, nominate_on_releasing
from muster.engine.quota import queue_accepts
from muster.engine.reservations import could_ever_complete, take_reservations
from muster.engine.session import Refusals, Session
from muster.model.effects import Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.gang_stage import count, has_enough_members, reaches_min
from muster.state.gangs.subgroups import with_subgroup_members
from muster.state.world import World

BOUND_WHY = "every member that the gang needs has a node"
RESERVED_WHY = "reserved until the gang has every member that it needs"
FITS = "Fits"


def allocate(s: Session, refusals: Refusals) -> None:
    visited: set[str] = set()
    for gang in gangs_in_order(s):
        visited.add(gang.key)
        if not s.is_still_refused(gang):
            result = attempt(s, gang, visited)
            s.record_verdict(gang, result.verdict)
            if not result.complete or not result.verdict.ok:
                refusals[gang.key] = result.verdict


def attempt(s: Session, gang: Gang, visited: set[str]) -> AttemptResult:
    """One attempt: everything this gang may have in this cycle. A strict gang that fails leaves no trace.

    `visited` are the gangs that came before it in the order, and itself: reservations of all others are released if that completes
    it.
    """
    verdict = may_attempt(s.world, gang)
    if not verdict.ok:
        return AttemptResult(complete=False, verdict=verdict)
    _count_attempt(s, gang)
    first = place_on_free(s, gang)
    if first.complete:
        return first
    second = take_reservations(s, gang, visited, place_on_free)
    if second.complete:
        return second
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
    marked = next((pod for pod in gang.pods() if pod.timed_out or pod.uid in world.memory.timed_out), None)
    if marked is not None:
        why = f"{marked.full_name} is marked as timed out: delete and re-create the pods, or remove the mark"
        return Verdict(ok=False, why=why, code=explain.TIMED_OUT)
    return queue_accepts(world, gang)


def place_on_free(s: Session, gang: Gang) -> AttemptResult:
    """Place the gang on what is free now: first on its nominated nodes, then by a search."""
    if s.world.placements.unplaced_members[gang.key] and any(pod.uid in s.world.placements.reservations for pod in gang.pods()):
        binding_reservations = bind_nominated(s, gang)
        if binding_reservations is not None:
            return binding_reservations
    pods, needed = members_to_place(s.world, gang)
    ask = Ask(gang, tuple(pods), Purpose.ALLOCATE, needed=needed)
    verdict = s.admit(ask)
    if not verdict.ok:
        return AttemptResult(complete=False, verdict=verdict)
    where = s.where(ask)
    if not where.domains:
        return AttemptResult(complete=reaches_min(s.world, gang), verdict=where.verdict)
    return _place(s, replace(ask, admitted=needed >= len(pods)), where.domains)


def members_to_place(world: World, gang: Gang) -> tuple[list[Pod], int]:
    """Members without a node: first what each role needs for its minimum, then the others; and how many the minimum needs."""
    placements = world.placements.by_uid
    first: list[Pod] = []
    rest: list[Pod] = []
    placed_count = 0
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in placements]
        if role.has_declared_total:
            waiting = waiting[: role.total]
        have = count(world, role, PLACED) + role.succeeded
        needed = max(0, role.min - have)
        first.extend(waiting[:needed])
        rest.extend(waiting[needed:])
        placed_count += have
    if reaches_min(world, gang):
        return first + rest, 0
    first, rest = with_subgroup_members(world, gang, first, rest)
    return first + rest, max(len(first), gang.min - placed_count)


def _place(s: Session, ask: Ask, domains: Sequence[Domain]) -> AttemptResult:
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        settled = place_in_best_domain(s, trial, ask, domains, phase=Phase.BINDING)
        verdict = _verdict(s, ask, settled, domain_count=len(domains))
        if settled.complete:
            bind_reserved(s.world, trial, ask.gang)
            trial.commit()
            return AttemptResult(complete=True, verdict=verdict)
    if ask.gang.mode is Mode.NON_STRICT and could_ever_complete(s, ask.gang):
        with s.trial(RESERVED_WHY, cause="Accumulates") as trial:
            place_gang(s, trial, ask.pods, domain=settled.domain, phase=Phase.RESERVED, needed=ask.needed)
            trial.commit()
    return AttemptResult(complete=False, verdict=verdict)


def _verdict(s: Session, ask: Ask, settled: DomainPlacement, *, domain_count: int) -> Verdict:
    """Why not everybody was placed, with those who were still in the trial."""
    if settled.placed.first_refused is None:
        return explain.next_cycle(s.world, ask.gang) if settled.complete else explain.waiting_for_preemption(s.world, ask.gang)
    verdict = why_refused(s, ask.gang, settled)
    # Of the other domains it is not known whether an eviction could help there.
    return verdict if domain_count == 1 else replace(verdict, why=f"{verdict.why} (best of {domain_count} domains)", curable=True)
