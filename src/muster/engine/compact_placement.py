"""Members of a gang close to each other inside one domain: one part of it after the other is filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.engine.hooks import Ask, Domain
from muster.engine.place import PlaceResult, place
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.trial import Trial


def place_compactly(s: Session, trial: Trial, ask: Ask, domain: Domain, phase: Phase) -> PlaceResult:
    """One part of the domain after the other is filled, as far as a plugin wants that, so that members are close to each other."""
    parts = s.fill_order(ask, domain)
    if not parts:
        return place(s, trial, ask.pods, domain=domain, phase=phase, admitted=ask.admitted)
    mark = trial.mark()
    filled = _fill_parts(s, trial, ask, domain, parts, phase)
    if filled.first_refused is None or not _order_matters(s, ask.pods):
        return filled
    trial.undo_to(mark)
    placed = place(s, trial, ask.pods, domain=domain, phase=phase, admitted=ask.admitted)
    if placed.count > filled.count:
        return placed
    trial.undo_to(mark)
    return _fill_parts(s, trial, ask, domain, parts, phase)


def _fill_parts(s: Session, trial: Trial, ask: Ask, domain: Domain, parts: Sequence[Domain], phase: Phase) -> PlaceResult:
    left = ask.pods
    for part in parts:
        place_compactly(s, trial, replace(ask, pods=left), part, phase)
        left = tuple(pod for pod in left if pod.uid not in s.world.placements.by_uid)
        if not left:
            return PlaceResult(len(ask.pods), None)
    rest = place(s, trial, left, domain=domain, phase=phase, admitted=ask.admitted)
    return replace(rest, count=len(ask.pods) - len(left) + rest.count)


def _order_matters(s: Session, pods: Sequence[Pod]) -> bool:
    """May the order in which these are placed change how many fit?"""
    return any(pod.signature != pods[0].signature for pod in pods) or any(s.has_inter_pod_constraints(pod) for pod in pods)
