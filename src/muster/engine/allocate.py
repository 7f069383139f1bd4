"""Allocate: gangs in order, each placed whole on free room or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.engine import explain
from muster.engine.claims import Attempted, bind_held, nominate_on_room_being_left, redeem
from muster.engine.domains import Settled, place_gang, settle, why_refused
from muster.engine.holds import could_ever_complete, take_holds
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.order import in_order
from muster.engine.quota import may_enter
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import SEATED, Phase, Pod
from muster.state.cells import with_cells
from muster.state.lifecycle import count, has_enough_members, reaches_min
from muster.state.world import World

BOUND_WHY = "every member that the gang needs has a node"
HELD_WHY = "kept until the gang has every member that it needs"
FITS = "Fits"


def allocate(s: Session) -> None:
    visited: set[str] = set()
    for gang in in_order(s):
        visited.add(gang.key)
        if not s.is_settled(gang):
            result = attempt(s, gang, visited)
            s.judge(gang, result.verdict)
            if not result.complete or not result.verdict.ok:
                s.refused[gang.key] = result.verdict


def attempt(s: Session, gang: Gang, visited: set[str]) -> Attempted:
    """One attempt: everything this gang may have in this cycle. A strict gang that fails leaves no trace.

    `visited` are the gangs that came before it in the order, and itself: holds of all others give way if that completes it.
    """
    verdict = ready(s.world, gang)
    if not verdict.ok:
        return Attempted(complete=False, verdict=verdict)
    _count(s, gang)
    first = seat(s, gang)
    if first.complete:
        return first
    second = take_holds(s, gang, visited, seat)
    if second.complete:
        return second
    return nominate_on_room_being_left(s, gang) or first


def _count(s: Session, gang: Gang) -> None:
    attempts = s.world.memory.attempts
    before = attempts[gang.key]
    if before.started is None:
        # Its status says since when it is tried.
        s.world.changes.gangs.add(gang.key)
    attempts.set(gang.key, replace(before, count=before.count + 1, started=s.now if before.started is None else before.started))
    s.count("attempts")


def ready(world: World, gang: Gang) -> Verdict:
    """May the gang be attempted at all?"""
    if gang.unreadable:
        return Verdict(ok=False, why=gang.unreadable, code=explain.INVALID)
    if gang.waits_for or not has_enough_members(gang):
        return explain.gathering(gang)
    marked = next((pod for pod in gang.pods() if pod.timed_out or pod.uid in world.memory.marked), None)
    if marked is not None:
        why = f"{marked.title} is marked as timed out: delete and re-create the pods, or remove the mark"
        return Verdict(ok=False, why=why, code=explain.TIMED_OUT)
    return may_enter(world, gang)


def seat(s: Session, gang: Gang) -> Attempted:
    """Seats for the gang on what is free now: first what it was promised, then a search."""
    if s.world.placements.unseated[gang.key] and any(pod.uid in s.world.placements.claims for pod in gang.pods()):
        redeemed = redeem(s, gang)
        if redeemed is not None:
            return redeemed
    pods, needed = wanted(s.world, gang)
    ask = Ask(gang, tuple(pods), Purpose.ALLOCATE, needed=needed)
    verdict = s.admit(ask)
    if not verdict.ok:
        return Attempted(complete=False, verdict=verdict)
    where = s.where(ask)
    if not where.domains:
        return Attempted(complete=reaches_min(s.world, gang), verdict=where.verdict)
    return _settle(s, replace(ask, admitted=needed >= len(pods)), where.domains)


def wanted(world: World, gang: Gang) -> tuple[list[Pod], int]:
    """Members without a node: first what each role needs for its minimum, then the others; and how many the minimum needs."""
    placements = world.placements.by_uid
    first: list[Pod] = []
    rest: list[Pod] = []
    seats = 0
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in placements]
        if role.bounded:
            waiting = waiting[: role.total]
        seated = count(world, role, SEATED) + role.succeeded
        needed = max(0, role.min - seated)
        first.extend(waiting[:needed])
        rest.extend(waiting[needed:])
        seats += seated
    if reaches_min(world, gang):
        return first + rest, 0
    first, rest = with_cells(world, gang, first, rest)
    return first + rest, max(len(first), gang.min - seats)


def _settle(s: Session, ask: Ask, domains: Sequence[Domain]) -> Attempted:
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        settled = settle(s, trial, ask, domains, phase=Phase.BINDING)
        verdict = _verdict(s, ask, settled, among=len(domains))
        if settled.complete:
            bind_held(s.world, trial, ask.gang)
            trial.commit()
            return Attempted(complete=True, verdict=verdict)
    if ask.gang.mode is Mode.NON_STRICT and could_ever_complete(s, ask.gang):
        with s.trial(HELD_WHY, cause="Accumulates") as trial:
            place_gang(s, trial, ask.pods, domain=settled.domain, phase=Phase.HELD, needed=ask.needed)
            trial.commit()
    return Attempted(complete=False, verdict=verdict)


def _verdict(s: Session, ask: Ask, settled: Settled, *, among: int) -> Verdict:
    """Why not everybody was placed, with those who were still in the trial."""
    if settled.placed.first_refused is None:
        return explain.later(s.world, ask.gang) if settled.complete else explain.clearing(s.world, ask.gang)
    verdict = why_refused(s, ask.gang, settled)
    # Of the other domains it is not known whether an eviction could help there.
    return verdict if among == 1 else replace(verdict, why=f"{verdict.why} (best of {among} domains)", curable=True)
