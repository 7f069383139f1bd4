"""The domains of subgroups, tried one against the other where placing them one after the other failed.

Each subgroup takes the best domain that there is for it, and the next ones have what is left. Where somebody finds no node so,
other orders, other domains and other choices among subgroups are tried, level by level, up to a number of placements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from muster.engine.compact_placement import place_compactly
from muster.engine.fit_counts import CAPACITY_FOR, CurrentCapacity, counted_members, domain_bounds
from muster.engine.hooks import AllowedDomains, Ask, Domain
from muster.engine.members_to_place import ways_to_minimum
from muster.engine.session import Session
from muster.model.gang import Gang, Subgroup
from muster.model.pod import PLACED, Phase, Pod
from muster.state.gangs.subgroups import all_subgroups, is_complete, placed_in_subgroup
from muster.state.trial import Trial

MOST_PLACEMENTS = 256
"""For a gang in one domain."""
MOST_EVICTING = 8
"""The same where others are evicted for it: each choice of these is tried by itself."""
_MOST_WAYS = 16

Part = tuple[Subgroup | None, tuple[Pod, ...]]


def allowed_domains(s: Session, ask: Ask) -> AllowedDomains:
    """Where the ask may be placed. Where all its pods are in a subgroup that has members with a node, or there is but one pod, that
    is inside a domain of this subgroup."""
    where, group = s.where(ask), ask.gang
    inside: Gang | Subgroup | None = group if group.subgroups else None
    while inside is not None and where.domains:
        inside = next((each for each in inside.subgroups if all(pod.uid in each.members for pod in ask.pods)), None)
        if inside is not None and (len(ask.pods) == 1 or placed_in_subgroup(s.world, inside) > inside.succeeded):
            where = s.where(replace(ask, subgroup=inside, within=where.domains[-1]))
    return where


class SubgroupSearch:
    def __init__(self, s: Session, trial: Trial, phase: Phase) -> None:
        self._s, self._trial, self._phase = s, trial, phase
        self._left = MOST_EVICTING if phase is Phase.NOMINATED else MOST_PLACEMENTS

    def place_minimum(self, ask: Ask, first: Sequence[Pod], domain: Domain) -> bool:
        """Place what the minimum needs, all of it, each subgroup in a domain inside its parent's; else the trial is as before.
        `first` is the cheapest choice; where the ask has more members, others are tried."""
        ways = iter([tuple(first)])
        if len(first) < len(ask.pods):
            ways = islice(ways_to_minimum(self._s.world, ask.gang, PLACED, ask.pods), _MOST_WAYS)
        asks = (replace(ask, pods=pods) for pods in ways)
        return any(self._left > 0 and self._may_fit(each, domain) and self._group(each, domain, lambda: True) for each in asks)

    def _may_fit(self, ask: Ask, domain: Domain) -> bool:
        """Could all pods of the ask find nodes in the domain, as far as sums tell?"""
        capacity = CurrentCapacity(self._s, CAPACITY_FOR[ask.purpose])
        return bool(domain_bounds(self._s, ask, [domain], capacity).most[0] >= len(ask.pods))

    def _group(self, ask: Ask, domain: Domain, then: Callable[[], bool]) -> bool:
        """All pods of a gang or subgroup, then the rest of the gang. A subgroup is complete with them."""
        world, subgroup = self._s.world, ask.subgroup

        def rest() -> bool:
            return (subgroup is None or is_complete(subgroup, counted_members(world, ask))) and then()

        if (subgroup or ask.gang).subgroups:
            return self._parts(ask, domain, by_subgroup(self._s, ask), rest)
        return self._members(ask, domain, rest)

    def _parts(self, ask: Ask, domain: Domain, parts: Sequence[Part], then: Callable[[], bool]) -> bool:
        """These parts in any order, then the rest of the gang."""
        if not parts:
            return then()
        for at, (subgroup, pods) in _different(parts):
            others = partial(self._parts, ask, domain, [*parts[:at], *parts[at + 1 :]], then)
            part = replace(ask, pods=pods, subgroup=subgroup or ask.subgroup, within=domain)
            for each in [domain] if subgroup is None else self._s.where(part).domains:
                mark = self._trial.mark()
                if self._members(part, each, others) if subgroup is None else self._group(part, each, others):
                    return True
                self._trial.undo_to(mark)
                if self._left <= 0:
                    return False
        return False

    def _members(self, ask: Ask, domain: Domain, then: Callable[[], bool]) -> bool:
        self._left -= 1
        return place_compactly(self._s, self._trial, ask, domain, self._phase).count == len(ask.pods) and then()


def _different(parts: Sequence[Part]) -> Iterator[tuple[int, Part]]:
    """Each part, and its place; of those that are placed alike only the first."""
    seen: set[object] = set()
    for at, (subgroup, pods) in enumerate(parts):
        alike: object = at
        if subgroup is not None and not subgroup.subgroups and len(pods) == len(subgroup.members):
            alike = subgroup.topology, frozenset(Counter(pod.signature for pod in pods).items())
        if alike not in seen:
            seen.add(alike)
            yield at, (subgroup, pods)


def by_subgroup(s: Session, ask: Ask) -> list[tuple[Subgroup | None, tuple[Pod, ...]]]:
    """The pods of an ask by the subgroups of what it asks for: those with placed members first, because their domain is fixed, then
    the most constrained, then the largest; last the pods that are in none."""
    subgroups = (ask.subgroup or ask.gang).subgroups
    if not subgroups:
        return [(None, ask.pods)]
    subgroup_of = {uid: at for at, subgroup in enumerate(subgroups) for uid in subgroup.members}
    found: dict[int, list[Pod]] = {}
    for pod in ask.pods:
        found.setdefault(subgroup_of.get(pod.uid, -1), []).append(pod)
    others = tuple(found.pop(-1, ()))

    def key(at: int) -> tuple[int | bool, ...]:
        return not placed_in_subgroup(s.world, subgroups[at]), _looseness(subgroups[at]), -len(found[at]), at

    parts: list[tuple[Subgroup | None, tuple[Pod, ...]]] = [(subgroups[at], tuple(found[at])) for at in sorted(found, key=key)]
    return [*parts, (None, others)] if others else parts


def _looseness(subgroup: Subgroup) -> int:
    """0 with a hard topology constraint on any of its levels, 1 with a soft one, 2 without."""
    constraints = [each.topology for each in (subgroup, *all_subgroups(subgroup)) if each.topology is not None]
    return min((0 if constraint.hard else 1 for constraint in constraints), default=2)
