"""Allocate: gangs in order, each placed whole on free room or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.engine import explain
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.place import Placed, place
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode
from muster.model.pod import SEATED, Phase, Pod
from muster.state.lifecycle import count, has_enough_members, reaches_min
from muster.state.trial import Trial

BOUND_WHY = "every member that the gang needs has a node"
FITS = "Fits"


def allocate(s: Session) -> None:
    for gang in in_order(s):
        if not s.is_settled(gang):
            s.judge(gang, attempt(s, gang))


def in_order(s: Session) -> list[Gang]:
    """The gangs that still want seats, most entitled first."""
    gangs = s.world.gangs
    return sorted((gangs[key] for key in s.world.unseated), key=s.gang_key)


def attempt(s: Session, gang: Gang) -> Verdict:
    """One attempt: everything this gang may have in this cycle. A strict gang that fails leaves no trace."""
    verdict = ready(gang)
    if not verdict.ok:
        return verdict
    s.world.attempts[gang.key].count += 1
    s.count("attempts")
    ask = Ask(gang, tuple(wanted(s, gang)), Purpose.ALLOCATE)
    verdict = s.admit(ask)
    if not verdict.ok:
        return verdict
    domains = s.domains(ask)
    if not domains:
        return Verdict(ok=False, why="no domain of the cluster is allowed", code=explain.NO_NODE)
    return _in_best_domain(s, ask, domains) if len(domains) > 1 else _in_domain(s, ask, domains[0])


def ready(gang: Gang) -> Verdict:
    """May the gang be attempted at all?"""
    if gang.waits_for or not has_enough_members(gang):
        return explain.gathering(gang)
    marked = next((pod for pod in gang.pods() if pod.timed_out), None)
    if marked is not None:
        why = f"{marked.title} is marked as timed out: delete and re-create the pods, or remove the mark"
        return Verdict(ok=False, why=why, code=explain.TIMED_OUT)
    return YES


def wanted(s: Session, gang: Gang) -> list[Pod]:
    """Members without a node: first what each role needs for its minimum, then the others."""
    placements = s.world.placements
    first: list[Pod] = []
    rest: list[Pod] = []
    for role in gang.roles:
        waiting = [pod for pod in role.pods if pod.uid not in placements]
        if role.total > role.min:
            waiting = waiting[: max(0, role.total - (len(role.pods) - len(waiting)))] or waiting
        needed = max(0, role.min - count(s.world, role, SEATED) - role.succeeded)
        first.extend(waiting[:needed])
        rest.extend(waiting[needed:])
    return first + rest


@dataclass(frozen=True, slots=True)
class _Try:
    """What came of one domain. `complete`: the gang has what it needs, whatever became of its further members."""

    domain: Domain
    complete: bool
    placed: int
    verdict: Verdict
    score: float = 0.0


def _in_best_domain(s: Session, ask: Ask, domains: Sequence[Domain]) -> Verdict:
    """Every domain is tried; more members placed goes before score, and the earlier domain before the later."""
    tries: list[_Try] = []
    for domain in domains:
        with s.trial(BOUND_WHY, cause=FITS) as trial:
            tries.append(_try(s, trial, ask, domain))
    best = max(tries, key=lambda t: (t.complete, t.placed, t.score))
    return _in_domain(s, ask, best.domain)


def _in_domain(s: Session, ask: Ask, domain: Domain) -> Verdict:
    with s.trial(BOUND_WHY, cause=FITS) as trial:
        result = _try(s, trial, ask, domain)
        if result.complete:
            trial.commit()
        elif ask.gang.mode is Mode.NON_STRICT:
            _hold(s, trial, ask)
            trial.commit()
        return result.verdict


def _try(s: Session, trial: Trial, ask: Ask, domain: Domain) -> _Try:
    """Redeem what the gang was promised where the room is there now, place the others, and see how far that goes."""
    gang = ask.gang
    for pod in gang.pods() if s.world.unseated[gang.key] > len(ask.pods) else ():
        if s.world.phase(pod) is Phase.NOMINATED and room_is_there(s, pod):
            trial.turn(pod, phase=Phase.BINDING)
    placed = place(s, trial, ask.pods, domain=domain, phase=Phase.BINDING)
    complete = reaches_min(s.world, gang)
    verdict = _verdict(s, ask, domain, placed)
    if complete:
        for pod in gang.pods() if gang.mode is Mode.NON_STRICT else ():
            if s.world.phase(pod) is Phase.HELD:
                trial.turn(pod, phase=Phase.BINDING)
    return _Try(domain, complete, placed.count, verdict, s.score_domain(ask, domain))


def _verdict(s: Session, ask: Ask, domain: Domain, placed: Placed) -> Verdict:
    if placed.first_refused is not None:
        return explain.refused(s, ask.gang, placed.first_refused, domain, soon=False)
    if reaches_min(s.world, ask.gang):
        return YES
    return explain.clearing(s, ask.gang)


def _hold(s: Session, trial: Trial, ask: Ask) -> None:
    """What was placed stays kept for the gang until it is complete."""
    for pod in ask.pods:
        if s.world.phase(pod) is Phase.BINDING:
            trial.turn(pod, phase=Phase.HELD)


def room_is_there(s: Session, pod: Pod) -> bool:
    """Have those who leave this pod's node gone far enough that it fits now?"""
    table = s.world.table
    row = table.row.get(s.world.placement(pod).node or "")
    return row is not None and bool((table.used[row] + s.world.request(pod) <= table.allocatable[row]).all())
