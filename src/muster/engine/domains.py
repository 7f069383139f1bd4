"""Where a gang goes: the best of the domains that it may go to, and within that a domain for each of its cells.

Every domain counts: more members placed goes before a better score, and that before a place earlier in the list. Not every domain
is tried, though: bounds say which could take everybody, and where scores are known ahead the best of these that does take everybody
is the best of all. The outcome is the same as that of trying all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.engine import explain
from muster.engine.hooks import WHOLE_CLUSTER, Ask, Purpose
from muster.engine.place import Placed, place
from muster.engine.session import Session
from muster.engine.slots import ROOM_FOR, Bounds, RoomFigures, bounds, lacking
from muster.model.effects import YES, Verdict
from muster.model.gang import Cell, Gang, Mode
from muster.model.pod import PROMISED, SEATED, Phase, Pod
from muster.state.cells import seats_in
from muster.state.domains import Domain
from muster.state.lifecycle import reaches_min
from muster.state.trial import Trial


@dataclass(frozen=True, slots=True)
class Settled:
    """Where the ask went and how many found a node there. `complete`: the gang has what it needs."""

    domain: Domain
    placed: Placed
    complete: bool


def settle(s: Session, trial: Trial, ask: Ask, domains: Sequence[Domain], *, phase: Phase) -> Settled:
    """Place the ask in the best of these domains; it stays placed, whole or in part, in the trial."""
    if len(domains) == 1:
        return _settle_in(s, trial, ask, domains[0], phase=phase)
    search = _Search(s, trial, ask, domains, phase)
    return search.whole() or search.most()


def _settle_in(s: Session, trial: Trial, ask: Ask, domain: Domain, *, phase: Phase) -> Settled:
    if ask.cell is not None:
        placed = _place_close(s, trial, ask, domain, phase)
        return Settled(domain, placed, lacking(s.world, ask).total <= 0)
    placed = place_gang(s, trial, ask.pods, domain=domain, phase=phase, needed=ask.needed, admitted=ask.admitted)
    return Settled(domain, placed, reaches_min(s.world, ask.gang, PROMISED if phase is Phase.NOMINATED else SEATED))


class _Search:
    def __init__(self, s: Session, trial: Trial, ask: Ask, domains: Sequence[Domain], phase: Phase) -> None:
        self.s, self.trial, self.ask, self.domains, self.phase = s, trial, ask, domains, phase
        self.bounds: Bounds = bounds(s, ask, domains, RoomFigures(s, ROOM_FOR[_purpose(phase)]))
        self._tried: dict[int, tuple[bool, int, float]] = {}

    def whole(self) -> Settled | None:
        """Where everybody finds a node: the best score first, so that the first success is the best there is."""
        scores = self.s.score_domains(self.ask, self.domains)
        if scores is None:
            return None
        roomy = np.flatnonzero(self.bounds.most >= len(self.ask.pods))
        for at in roomy[np.lexsort((roomy, -scores[roomy]))].tolist():
            mark = self.trial.mark()
            settled = self._settle(at)
            if settled.placed.first_refused is None:
                return settled
            self._note(at, settled)
            self.trial.undo_to(mark)
        return None

    def most(self) -> Settled:
        """Where most find a node. A domain that cannot do better than the best so far is not tried."""
        could, most = self.bounds.could, self.bounds.most
        order = np.lexsort((np.arange(len(most)), -most, ~could)).tolist()
        if self.ask.gang.mode is Mode.STRICT and not could.any():
            # It is going to fail wherever it is tried; the domain that comes nearest explains it best.
            return self._settle(order[0])
        best = order[0]
        for at in order:
            if best in self._tried and (bool(could[at]), int(most[at])) < self._tried[best][:2]:
                break
            self._try(at)
            if self._tried[at] > self._tried[best] or (self._tried[at] == self._tried[best] and at < best):
                best = at
        return self._settle(best)

    def _try(self, at: int) -> None:
        if at not in self._tried:
            mark = self.trial.mark()
            self._note(at, self._settle(at))
            self.trial.undo_to(mark)

    def _note(self, at: int, settled: Settled) -> None:
        score = self.s.score_domain(self.ask, self.domains[at])
        self._tried[at] = (settled.complete, settled.placed.count, score)

    def _settle(self, at: int) -> Settled:
        self.s.count("domains tried")
        return _settle_in(self.s, self.trial, self.ask, self.domains[at], phase=self.phase)


def place_where_allowed(s: Session, trial: Trial, gang: Gang, pods: Sequence[Pod], *, phase: Phase) -> Settled:
    """Place as many of these members of a gang as fit in the best domain that it may go to."""
    ask = Ask(gang, tuple(pods), _purpose(phase), needed=0)
    where = s.where(ask)
    if not where.domains:
        return Settled(WHOLE_CLUSTER, Placed(0, pods[0], where.verdict), complete=False)
    return settle(s, trial, ask, where.domains, phase=phase)


def why_refused(s: Session, gang: Gang, settled: Settled) -> Verdict:
    """Why somebody found no node, with those who found one still in the trial. YES where everybody did."""
    placed = settled.placed
    if placed.first_refused is None:
        return YES
    return placed.verdict or explain.refused(s, gang, placed.first_refused, settled.domain, soon=False)


def why_apart(s: Session, gang: Gang) -> str:
    """Why the members that have a node, or one of its cells, do not lie together as they must; empty where they do."""
    for cell in (None, *gang.cells):
        if (gang if cell is None else cell).topology is not None:
            where = s.where(Ask(gang, (), Purpose.NOMINATE, cell=cell))
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
) -> Placed:
    """Place as many of these members of one gang as fit in a domain: each cell in a domain of its own, all close to each other.

    The first `needed` are those that its minimum needs (None: all); the others do not stand in their way. `admitted`: the queues
    are known to have room for all of them.
    """
    if not pods:
        return Placed(0, None)
    ask = Ask(s.world.facts.gangs[s.world.facts.members[pods[0].uid].gang], tuple(pods), _purpose(phase), admitted=admitted)
    if not ask.gang.cells:
        return _place_close(s, trial, ask, domain, phase)
    mark = trial.mark()
    placed = _place_cells(s, trial, ask, domain, phase)
    first = ask.pods[:needed]
    if placed.first_refused is None or len(first) == len(pods) or all(pod.uid in s.world.placements.by_uid for pod in first):
        return placed
    trial.undo_to(mark)
    placed = _place_cells(s, trial, replace(ask, pods=first), domain, phase)
    more = _place_cells(s, trial, replace(ask, pods=ask.pods[needed:]), domain, phase)
    refused = placed if placed.first_refused is not None else more
    return Placed(placed.count + more.count, refused.first_refused, refused.verdict)


def _place_cells(s: Session, trial: Trial, ask: Ask, domain: Domain, phase: Phase) -> Placed:
    """Cell by cell, those that are begun first, because they have no choice where to go on, then the largest; then the members that
    are in none."""
    count, refused = 0, Placed(0, None)
    for cell, pods in _by_cell(s, ask):
        placed = _place_cell(s, trial, replace(ask, pods=pods, cell=cell, within=domain), phase)
        count += placed.count
        if placed.first_refused is not None and refused.first_refused is None:
            refused = placed
    in_cells = frozenset().union(*(cell.members for cell in ask.gang.cells))
    loose = tuple(pod for pod in ask.pods if pod.uid not in in_cells)
    if loose:
        placed = _place_close(s, trial, replace(ask, pods=loose), domain, phase)
        count += placed.count
        refused = placed if refused.first_refused is None else refused
    return replace(refused, count=count)


def _by_cell(s: Session, ask: Ask) -> list[tuple[Cell, tuple[Pod, ...]]]:
    cell_of = {uid: at for at, cell in enumerate(ask.gang.cells) for uid in cell.members}
    found: dict[int, list[Pod]] = {}
    for pod in ask.pods:
        if pod.uid in cell_of:
            found.setdefault(cell_of[pod.uid], []).append(pod)
    order = sorted(found, key=lambda at: (not seats_in(s.world, ask.gang.cells[at]), -len(found[at]), at))
    return [(ask.gang.cells[at], tuple(found[at])) for at in order]


def _place_cell(s: Session, trial: Trial, ask: Ask, phase: Phase) -> Placed:
    """A cell that would have fewer members than it needs is not begun."""
    assert ask.cell is not None
    where = s.where(ask)
    if not where.domains:
        return Placed(0, ask.pods[0], replace(where.verdict, why=f"{ask.cell.title}: {where.verdict.why}"))
    mark = trial.mark()
    settled = settle(s, trial, ask, where.domains, phase=phase)
    if settled.complete:
        return settled.placed
    verdict = settled.placed.verdict or _too_small(s, ask.cell, settled)
    trial.undo_to(mark)
    return Placed(0, ask.pods[0], verdict)


def _too_small(s: Session, cell: Cell, settled: Settled) -> Verdict:
    least = explain.counted(cell.min, "member finds", "members find")
    why = f"{cell.title}: {seats_in(s.world, cell)} of at least {least} room in {settled.domain.title}"
    return Verdict(ok=False, why=why, code=explain.NO_ROOM, curable=True, topics=explain.CAPACITY)


def _place_close(s: Session, trial: Trial, ask: Ask, domain: Domain, phase: Phase) -> Placed:
    """One part of the domain after the other is filled, as far as a plugin wants that, so that members are close to each other."""
    parts = s.fill_order(ask, domain)
    if not parts:
        return place(s, trial, ask.pods, domain=domain, phase=phase, admitted=ask.admitted)
    mark = trial.mark()
    filled = _fill(s, trial, ask, domain, parts, phase)
    if filled.first_refused is None or not _differ(s, ask.pods):
        return filled
    trial.undo_to(mark)
    placed = place(s, trial, ask.pods, domain=domain, phase=phase, admitted=ask.admitted)
    if placed.count > filled.count:
        return placed
    trial.undo_to(mark)
    return _fill(s, trial, ask, domain, parts, phase)


def _fill(s: Session, trial: Trial, ask: Ask, domain: Domain, parts: Sequence[Domain], phase: Phase) -> Placed:
    left = ask.pods
    for part in parts:
        _place_close(s, trial, replace(ask, pods=left), part, phase)
        left = tuple(pod for pod in left if pod.uid not in s.world.placements.by_uid)
        if not left:
            return Placed(len(ask.pods), None)
    rest = place(s, trial, left, domain=domain, phase=phase, admitted=ask.admitted)
    return replace(rest, count=len(ask.pods) - len(left) + rest.count)


def _differ(s: Session, pods: Sequence[Pod]) -> bool:
    """May the order in which these are placed change how many find room?"""
    return any(pod.kind != pods[0].kind for pod in pods) or any(s.is_entangled(pod) for pod in pods)


def _purpose(phase: Phase) -> Purpose:
    return Purpose.NOMINATE if phase is Phase.NOMINATED else Purpose.ALLOCATE
