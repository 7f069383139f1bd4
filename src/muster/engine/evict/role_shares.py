"""How a plan for a GangGroup over several queues is shared out among its roles.

Each unit is taken for the members in one queue, which lack it and may have it: of their own queue by priority, of others by shares.
Members that may take nothing fit on free capacity, or on what is left over of units that others need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, permutations

from muster.engine.domain_placement import place_gang
from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_policy import EvictionRules
from muster.engine.evict.exact_packing import pack
from muster.engine.evict.member_demand import member_demands
from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.hooks import WHOLE_CLUSTER, Ask, Domain
from muster.engine.place import fits_on
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod
from muster.model.queue import show_queue
from muster.state.trial import Trial

_MOST_WHYS = 2
# In every order so many queues take their turns; and so many choices of a gang's surplus are tried in place of all of it.
_MOST_ORDERED, _MOST_CHOICES = 4, 64
# Of so many units all sets are tried for a queue; and so many ways are judged, or sets of units whose order is sought.
_FEW_UNITS, _MOST_WAYS = 6, 64

Pairs = Sequence[tuple[Pod, Placement]]
"""The pods of a unit, and where they were."""
Shares = Mapping[str, Set[int]]
"""The units that are taken for the members in each queue."""


def by_queue(s: Session, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(s.world.facts.members[pod.uid].queue, []).append(pod)
    return found


def lacking_queues(s: Session, ask: Ask, contested: Contested) -> list[str]:
    """The queues of the ask whose members find no capacity by themselves; all of them where each does."""
    if len(contested) < 2:
        return list(contested)
    members = by_queue(s, ask.pods)
    with s.trial("simulated", cause="Simulated") as trial:
        return [queue for queue in contested if not _fits(s, trial, ask, members[queue], WHOLE_CLUSTER)] or list(contested)


def why_kept(s: Session, ask: Ask, rules: EvictionRules, contested: Contested) -> str:
    """Of an ask over several queues without a plan: which of its members keep it waiting, because they may take nothing."""
    members = by_queue(s, ask.pods)
    with s.trial("simulated", cause="Simulated") as trial:
        for queue in sorted(contested) if len(contested) > 1 else ():
            if not rules.may_take(queue) and not _fits(s, trial, ask, members[queue], WHOLE_CLUSTER):
                nobody = f"no pod may be evicted for its members in {show_queue(queue)}, and they do not fit on free capacity"
                whys = sorted({why for why, _ in rules.barred_by_queue()})
                return "; ".join([nobody, *(whys[:_MOST_WHYS] or [rules.why_nobody()])])
    return ""


@dataclass(slots=True)
class KnownShares:
    """What is the same in all plans of one search."""

    fits: dict[tuple[frozenset[int], frozenset[str]], bool] = field(default_factory=dict)
    takers: dict[int, list[str]] = field(default_factory=dict)
    """For the members of which queues each unit may be taken, with no other evicted."""
    placements: int = 0
    """So many were tried."""


def why_not_shared_out(
    s: Session, ask: Ask, rules: EvictionRules, domain: Domain, units: Mapping[int, Pairs], view: UnitView, *, unneeded: bool
) -> str:
    """Why a plan, with its units evicted and the members nominated, gives some members what they may not have; or nothing.
    `unneeded`: there may be units that nobody lacks, since they are put back later."""
    with s.trial("simulated", cause="Simulated") as trial:
        mark = trial.mark()
        sharing = _Sharing(s, trial, ask, rules, domain, dict(units), view, unneeded)
        ways = list(islice(sharing.ways(), _MOST_WAYS))
        why = "" if ways else sharing.why_none()
        trial.undo_to(mark)
        for shares in ways:
            why = _why_borrowing(rules, shares, units, view)
            if not why:
                return ""
        return why


def _why_borrowing(rules: EvictionRules, shares: Shares, units: Mapping[int, Pairs], view: UnitView) -> str:
    """Why one of these queues may not have its units; empty where each may when its turn comes."""
    foreign: dict[str, list[list[Pod]]] = {}
    for queue, theirs in shares.items():
        for unit in sorted(theirs):
            pods = [pod for pod, _ in units[unit]]
            if not rules.is_own(queue, pods, priority=view.priority(unit)):
                foreign.setdefault(queue, []).append(pods)
    first = ""
    for order in _orders(list(foreign)):
        later = [[pods for queue in order[at:] for pods in foreign[queue]] for at in range(1, len(order) + 1)]
        judged = (rules.why_not_taking(queue, foreign[queue], rest) for queue, rest in zip(order, later, strict=True))
        why = next(filter(None, judged), "")
        if not why:
            return ""
        first = first or why
    return first


def _orders(queues: Sequence[str]) -> Iterable[Sequence[str]]:
    return permutations(queues) if len(queues) <= _MOST_ORDERED else [queues]


@dataclass(frozen=True, slots=True)
class UnitView:
    """What there is to know of units by their numbers."""

    priority: Callable[[int], int]
    known: KnownShares
    surplus_instead: Callable[[int], Iterator[tuple[int, ...]]]
    """Sets of surplus members, as units, that the gang of a unit can do without in place of all that it has."""
    pods: Callable[[int], Sequence[Pod]]


@dataclass(slots=True)
class _Sharing:
    s: Session
    trial: Trial
    ask: Ask
    rules: EvictionRules
    domain: Domain
    units: dict[int, Pairs]
    view: UnitView
    unneeded: bool
    _members: dict[str, list[Pod]] = field(init=False)
    _for_share: set[tuple[str, int]] = field(init=False)
    """Units of a queue's own without which it would borrow what it takes from others."""

    def __post_init__(self) -> None:
        self._members = by_queue(self.s, self.ask.pods)
        self._for_share = {(queue, unit) for queue in self._members for unit in self.units if self._keeps_share(queue, unit)}
        for pod in self.ask.pods:
            self.trial.release(pod)
        for unit in self.units:
            self._restore(unit)
        for unit in self.units.keys() - self._takers.keys():
            self._takers[unit] = [queue for queue in self._members if self._may_be_for(queue, unit)]

    @property
    def _takers(self) -> dict[int, list[str]]:
        return self.view.known.takers

    def _pods(self, unit: int) -> list[Pod]:
        return [pod for pod, _ in self.units[unit]]

    def _restore(self, unit: int) -> None:
        for pod, placement in self.units[unit]:
            self.trial.restore(pod, placement)

    def _is_own(self, queue: str, unit: int) -> bool:
        return self.rules.is_own(queue, self._pods(unit), priority=self.view.priority(unit))

    def _may_be_for(self, queue: str, unit: int) -> bool:
        return not self.rules.why_not_for(queue, self._pods(unit), priority=self.view.priority(unit))

    def _keeps_share(self, queue: str, unit: int) -> bool:
        foreign = [self._pods(other) for other in self.units if not self._is_own(queue, other)]
        if not foreign or not self._is_own(queue, unit) or self.rules.why_not_taking(queue, foreign, ()):
            return False
        mark = self.trial.mark()
        self._restore(unit)
        keeps = bool(self.rules.why_not_taking(queue, foreign, ()))
        self.trial.undo_to(mark)
        return keeps

    def ways(self) -> Iterator[Shares]:
        """The units shared out, with the queues in different orders."""
        takers = {queue for unit in self.units for queue in self._takers[unit]}
        if not self.unneeded and not all(self._takers[unit] for unit in self.units):
            return
        for order in _orders(sorted(self._members, key=lambda queue: (queue in takers, queue))):
            yield from (shares for shares in self._in_order(order, 0, frozenset(), {}) if self._is_given(shares))

    def why_none(self) -> str:
        for queue in sorted(self._members):
            if not self._fit(frozenset(unit for unit in self.units if queue in self._takers[unit]), frozenset({queue})):
                return f"those of them that may be evicted for its members in {show_queue(queue)} are too few for these"
        return "its members in different queues cannot share them out: those that lack one may not have it"

    def _in_order(self, order: Sequence[str], at: int, used: frozenset[int], shares: Shares) -> Iterator[Shares]:
        if at == len(order):
            if self.unneeded or len(used) == len(self.units):
                yield shares
            return
        now = frozenset(order[: at + 1])
        for chosen in self._choices(order[at], used, now):
            yield from self._in_order(order, at + 1, used | chosen, {**shares, order[at]: chosen})

    def _choices(self, queue: str, used: frozenset[int], now: frozenset[str]) -> Iterator[frozenset[int]]:
        """What the members in this queue may need of the units that are left, so that all of these queues fit."""
        able = [unit for unit in self.units if unit not in used and queue in self._takers[unit]]
        if not self._fit(used.union(able), now):
            return
        if len(able) <= _FEW_UNITS:
            sets = (frozenset(chosen) for count in range(len(able) + 1) for chosen in combinations(able, count))
        else:
            sets = (self._without_unneeded(queue, used, now, order) for order in (able, able[::-1]))
        for chosen in sets:
            if self._fit(used | chosen, now) and all(self._lacks(queue, unit, used, chosen, now) for unit in chosen):
                yield chosen

    def _without_unneeded(self, queue: str, used: frozenset[int], now: frozenset[str], units: Sequence[int]) -> frozenset[int]:
        chosen = frozenset(units)
        for unit in units:
            if (queue, unit) not in self._for_share and self._fit(used | chosen - {unit}, now):
                chosen -= {unit}
        return chosen

    def _lacks(self, queue: str, unit: int, used: frozenset[int], chosen: frozenset[int], now: frozenset[str]) -> bool:
        """Do these queues not fit without the unit, nor with the surplus of its gang instead, or would this one borrow?"""
        if (queue, unit) in self._for_share and any(not self._is_own(queue, other) for other in chosen):
            return True
        others = used | chosen - {unit}
        if self._fit(others, now):
            return False
        return not any(self._fit(others.union(each), now) for each in islice(self.view.surplus_instead(unit), _MOST_CHOICES))

    def _is_given(self, shares: Shares) -> bool:
        """Is there an order in which each unit of others may be taken for its queue, with the units before it evicted?"""
        queue_of = {unit: queue for queue, theirs in shares.items() for unit in theirs if not self._is_own(queue, unit)}
        return self._are_given(queue_of, frozenset(queue_of), set())

    def _are_given(self, queue_of: Mapping[int, str], left: frozenset[int], dead: set[frozenset[int]]) -> bool:
        if not left or left in dead:
            return not left
        for unit in sorted(left):
            if len(dead) < _MOST_WAYS and self._may_be_for(queue_of[unit], unit):
                mark = self.trial.mark()
                self._evict(self.units[unit])
                given = self._are_given(queue_of, left - {unit}, dead)
                self.trial.undo_to(mark)
                if given:
                    return True
        dead.add(left)
        return False

    def _fit(self, units: frozenset[int], queues: frozenset[str]) -> bool:
        """Do the members in these queues fit once these units are evicted?"""
        known = self.view.known
        if (units, queues) not in known.fits:
            mark = self.trial.mark()
            for unit in sorted(units):
                self._evict(self.units[unit] if unit in self.units else self._pairs(unit))
            pods = [pod for pod in self.ask.pods if self.s.world.facts.members[pod.uid].queue in queues]
            known.fits[units, queues] = _fits(self.s, self.trial, self.ask, pods, self.domain)
            known.placements += 1
            self.trial.undo_to(mark)
        return known.fits[units, queues]

    def _pairs(self, unit: int) -> Pairs:
        return [(pod, self.s.world.placement(pod)) for pod in self.view.pods(unit)]

    def _evict(self, pairs: Pairs) -> None:
        for pod, placement in pairs:
            (self.trial.evict if placement.phase is Phase.BOUND else self.trial.release)(pod)


def surplus_choices(units: Sequence[int], allows: Callable[[Sequence[int]], bool]) -> Iterator[tuple[int, ...]]:
    """The fewest first."""
    for count in range(1, len(units)):
        yield from (chosen for chosen in combinations(units, count) if allows(chosen))


def _fits(s: Session, trial: Trial, ask: Ask, pods: Sequence[Pod], domain: Domain) -> bool:
    """Do these members fit, one after the other or in another arrangement? The trial is as before."""
    mark = trial.mark()
    fits = place_gang(s, trial, pods, domain=domain, phase=Phase.NOMINATED).count == len(pods)
    trial.undo_to(mark)
    if not fits and not ask.gang.subgroups and all(s.needs_capacity_only(pod) for pod in pods):
        fits = _fits_packed(s, trial, replace(ask, pods=tuple(pods)), domain)
        trial.undo_to(mark)
    return fits


def _fits_packed(s: Session, trial: Trial, ask: Ask, domain: Domain) -> bool:
    node_amounts = NodeAmounts(s.world, ask.pods)
    found = pack(member_demands(s, ask, domain, node_amounts), node_amounts.free())
    for pod, row in found or ():
        node = s.world.table.names[row]
        if not fits_on(s, pod, node, after_releases=True) or not s.quota_fit(pod, count=1, phase=Phase.NOMINATED).fit_count:
            return False
        trial.place(pod, node, phase=Phase.NOMINATED)
    return bool(found)
