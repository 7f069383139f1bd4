"""Where a gang is placed: the best of its allowed domains, and within that a domain for each of its subgroups.

Every domain counts: more members placed goes before a better score, and that before a place earlier in the list. Not every domain
is tried, though: bounds say which could take everybody, and where scores are known ahead the best of these that does take everybody
is the best of all. The outcome is the same as that of trying all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.engine import explain
from muster.engine.compact_placement import place_compactly
from muster.engine.fit_counts import CAPACITY_FOR, CurrentCapacity, DomainBounds, counted_members, domain_bounds
from muster.engine.hooks import WHOLE_CLUSTER, Ask, Purpose
from muster.engine.place import PlaceResult
from muster.engine.session import Session
from muster.engine.subgroup_search import SubgroupSearch, by_subgroup
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Mode, Subgroup
from muster.model.pod import PLACED, PLACED_OR_NOMINATED, Phase, Pod
from muster.state.derived.topology_domains import Domain
from muster.state.gangs.gang_stage import reaches_min
from muster.state.gangs.subgroups import all_subgroups, in_phases, is_complete, placed_in_subgroup
from muster.state.trial import Trial


@dataclass(frozen=True, slots=True)
class DomainPlacement:
    """Where the ask went and how many found a node there. `complete`: the gang has what it needs."""

    domain: Domain
    placed: PlaceResult
    complete: bool


def place_in_best_domain(s: Session, trial: Trial, ask: Ask, domains: Sequence[Domain], *, phase: Phase) -> DomainPlacement:
    """Place the ask in the best of these domains; it stays placed, whole or in part, in the trial."""
    if len(domains) == 1:
        return _place_in_domain(s, trial, ask, domains[0], phase=phase)
    search = _DomainChoice(s, trial, ask, domains, phase)
    return search.place_all() or search.place_most()


def _place_in_domain(s: Session, trial: Trial, ask: Ask, domain: Domain, *, phase: Phase) -> DomainPlacement:
    if ask.subgroup is not None:
        placed = _place_subgroups(s, trial, ask, domain, phase)
        return DomainPlacement(domain, placed, is_complete(ask.subgroup, counted_members(s.world, ask)))
    placed = place_gang(s, trial, ask.pods, domain=domain, phase=phase, needed=ask.needed, admitted=ask.admitted)
    return DomainPlacement(
        domain, placed, reaches_min(s.world, ask.gang, PLACED_OR_NOMINATED if phase is Phase.NOMINATED else PLACED)
    )


class _DomainChoice:
    def __init__(self, s: Session, trial: Trial, ask: Ask, domains: Sequence[Domain], phase: Phase) -> None:
        self.s, self.trial, self.ask, self.domains, self.phase = s, trial, ask, domains, phase
        self.domain_bounds: DomainBounds = domain_bounds(s, ask, domains, CurrentCapacity(s, CAPACITY_FOR[_purpose_of(phase)]))
        self._results: dict[int, tuple[bool, int, float]] = {}

    def place_all(self) -> DomainPlacement | None:
        """Where everybody finds a node: the best score first, so that the first success is the best there is."""
        scores = self.s.score_domains(self.ask, self.domains)
        if scores is None:
            return None
        large_enough = np.flatnonzero(self.domain_bounds.most >= len(self.ask.pods))
        for at in large_enough[np.lexsort((large_enough, -scores[large_enough]))].tolist():
            mark = self.trial.mark()
            found = self._place_at(at)
            if found.placed.first_refused is None:
                return found
            self._record(at, found)
            self.trial.undo_to(mark)
        return None

    def place_most(self) -> DomainPlacement:
        """Where most find a node. A domain that cannot do better than the best so far is not tried."""
        feasible, most = self.domain_bounds.feasible, self.domain_bounds.most
        order = np.lexsort((np.arange(len(most)), -most, ~feasible)).tolist()
        if self.ask.gang.mode is Mode.STRICT and not feasible.any():
            # It fails wherever it is tried; the domain that comes nearest explains it best.
            return self._place_at(order[0])
        for at in order:
            if self._results and (bool(feasible[at]), int(most[at])) < max(self._results.values())[:2]:
                break
            self._evaluate(at)
        return self._place_at(max(self._results, key=lambda at: (self._results[at], -at)))

    def _evaluate(self, at: int) -> None:
        if at not in self._results:
            mark = self.trial.mark()
            self._record(at, self._place_at(at))
            self.trial.undo_to(mark)

    def _record(self, at: int, found: DomainPlacement) -> None:
        score = self.s.score_domain(self.ask, self.domains[at])
        self._results[at] = (found.complete, found.placed.count, score)

    def _place_at(self, at: int) -> DomainPlacement:
        self.s.count("domains tried")
        return _place_in_domain(self.s, self.trial, self.ask, self.domains[at], phase=self.phase)


def place_in_allowed_domains(s: Session, trial: Trial, gang: Gang, pods: Sequence[Pod], *, phase: Phase) -> DomainPlacement:
    """Place as many of these members of a gang as fit in the best domain that it may go to."""
    ask = Ask(gang, tuple(pods), _purpose_of(phase), needed=0)
    where = s.where(ask)
    if not where.domains:
        return DomainPlacement(WHOLE_CLUSTER, PlaceResult(0, pods[0], where.verdict), complete=False)
    return place_in_best_domain(s, trial, ask, where.domains, phase=phase)


def why_refused(s: Session, gang: Gang, found: DomainPlacement) -> Verdict:
    """Why somebody found no node, with those who found one still in the trial. YES where everybody did."""
    placed = found.placed
    if placed.first_refused is None:
        return YES
    return placed.verdict or explain.no_node_fits(s, gang, placed.first_refused, found.domain, after_releases=False)


def why_topology_violated(s: Session, gang: Gang) -> str:
    """Why the members that have a node, or one of its subgroups, do not lie together as they must; empty where they do."""
    for subgroup in (None, *all_subgroups(gang)):
        if (gang if subgroup is None else subgroup).topology is not None:
            where = s.where(Ask(gang, (), Purpose.NOMINATE, subgroup=subgroup))
            if not where.domains:
                return where.verdict.why
    return ""


# -- inside one domain -----------------------------------------------------------------------------------------------------------


def place_gang(
    s: Session,
    trial: Trial,
    pods: Sequence[Pod],
    *,
    domain: Domain,
    phase: Phase,
    needed: int | None = None,
    admitted: bool = False,
) -> PlaceResult:
    """Place as many of these members of one gang as fit in a domain: each subgroup in a domain of its own, all close to each other.

    The first `needed` are those that its minimum needs (None: all); the others must not take their nodes. `admitted`: all of them
    are known to fit into their queues.
    """
    if not pods:
        return PlaceResult(0, None)
    ask = Ask(s.world.facts.gangs[s.world.facts.members[pods[0].uid].gang], tuple(pods), _purpose_of(phase), admitted=admitted)
    if not ask.gang.subgroups:
        return place_compactly(s, trial, ask, domain, phase)
    mark = trial.mark()
    placed = _place_subgroups(s, trial, ask, domain, phase)
    first = ask.pods[:needed]
    if placed.first_refused is None or not _unplaced(s, first):
        return placed
    trial.undo_to(mark)
    placed = _place_needed(s, trial, ask, first, domain, phase)
    minimum = {pod.uid for pod in first} if placed.first_refused is not None else set()
    left = tuple(pod for pod in _unplaced(s, pods) if pod.uid not in minimum)
    more = _place_subgroups(s, trial, replace(ask, pods=left), domain, phase) if left else PlaceResult(0, None)
    refused = placed if placed.first_refused is not None else more
    return PlaceResult(placed.count + more.count, refused.first_refused, refused.verdict)


def _place_needed(s: Session, trial: Trial, ask: Ask, first: tuple[Pod, ...], domain: Domain, phase: Phase) -> PlaceResult:
    """Place what the minimum needs: one subgroup after the other, or else by a search."""
    mark, needed = trial.mark(), replace(ask, pods=first)
    placed = _place_subgroups(s, trial, needed, domain, phase)
    if placed.first_refused is None:
        return placed
    trial.undo_to(mark)
    if SubgroupSearch(s, trial, phase).place_minimum(ask, first, domain):
        return PlaceResult(len(ask.pods) - len(_unplaced(s, ask.pods)), None)
    return _place_subgroups(s, trial, needed, domain, phase)


def _unplaced(s: Session, pods: Sequence[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.uid not in s.world.placements.by_uid]


def _place_subgroups(s: Session, trial: Trial, ask: Ask, domain: Domain, phase: Phase) -> PlaceResult:
    """Subgroup by subgroup of the gang, or of the subgroup that is placed; then the members that are in none."""
    count, refused = 0, PlaceResult(0, None)
    for subgroup, pods in by_subgroup(s, ask):
        part = replace(ask, pods=pods, subgroup=subgroup or ask.subgroup, within=domain)
        placed = place_compactly(s, trial, part, domain, phase) if subgroup is None else _place_subgroup(s, trial, part, phase)
        count += placed.count
        refused = placed if refused.first_refused is None else refused
    return replace(refused, count=count)


def _place_subgroup(s: Session, trial: Trial, ask: Ask, phase: Phase) -> PlaceResult:
    """A subgroup that would not be complete is not placed."""
    assert ask.subgroup is not None
    where = s.where(ask)
    if not where.domains:
        return PlaceResult(0, ask.pods[0], replace(where.verdict, why=f"{ask.subgroup.title}: {where.verdict.why}"))
    mark = trial.mark()
    found = place_in_best_domain(s, trial, ask, where.domains, phase=phase)
    if found.complete:
        return found.placed
    verdict = found.placed.verdict or _below_min_verdict(s, ask.subgroup, found)
    trial.undo_to(mark)
    return PlaceResult(0, ask.pods[0], verdict)


def _below_min_verdict(s: Session, subgroup: Subgroup, found: DomainPlacement) -> Verdict:
    fit, least = placed_in_subgroup(s.world, subgroup), explain.plural(subgroup.min, "member fits", "members fit")
    if fit >= subgroup.min:
        fit = sum(is_complete(each, in_phases(s.world)) for each in subgroup.subgroups)
        least = explain.plural(subgroup.min_subgroups, "part fits", "parts fit")
    why = f"{subgroup.title}: {fit} of at least {least} in {found.domain.title}"
    return Verdict(ok=False, why=why, code=explain.NO_CAPACITY, curable=True, topics=explain.CAPACITY)


def _purpose_of(phase: Phase) -> Purpose:
    return Purpose.NOMINATE if phase is Phase.NOMINATED else Purpose.ALLOCATE
