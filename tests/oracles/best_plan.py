"""Oracle 2: the best plan for an ask, by trying every set of eviction units. For worlds with about a dozen units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tests.oracles.allowed_domains import allowed_domains
from tests.oracles.giving import freed_by_queue
from tests.oracles.legality import Claimants, claimants_of, rights_findings
from tests.oracles.packing import pack
from tests.oracles.plain_amounts import request_of
from tests.oracles.plan_order import PlanOrder, lost_hours
from tests.oracles.plan_units import Unit, UnitKind, is_satisfied_once, keeps_minimums, torn_subgroups, whole_subgroups
from tests.oracles.protection import broken_budgets, protected_because
from tests.oracles.snapshot import GANG_RECLAIM, JOB_PREEMPT, JudgedPlan, Snapshot

from muster.model.gang import Gang
from muster.model.pod import Pod

MOST_SETS = 20_000

Units = tuple[Unit, ...]


class TooManyUnits(Exception):
    """The world is too large to try everything."""


@dataclass(frozen=True, slots=True)
class BestPlan:
    units: Units
    placed: dict[str, str]


def missing_members(s: Snapshot, gang: Gang) -> list[Pod]:
    """The members that the minimums lack, in their order; roles first, then as many as the gang lacks in all."""
    waiting = [pod for pod in gang.pods() if pod.uid not in s.placements]
    chosen: list[Pod] = []
    for role in gang.roles:
        lacking = role.min - role.succeeded - sum(pod.uid in s.placements for pod in role.pods)
        chosen += [pod for pod in role.pods if pod in waiting][: max(0, lacking)]
    have = sum(role.succeeded for role in gang.roles) + sum(pod.uid in s.placements for pod in gang.pods())
    more = gang.min - have - len(chosen)
    return [*chosen, *[pod for pod in waiting if pod not in chosen][: max(0, more)]]


def best_plan(s: Snapshot, asker: str, action: str) -> BestPlan | None:
    """The best legal plan, empty where the members fit as it is; None where there is none."""
    gang = s.gangs[asker]
    members = missing_members(s, gang)
    search = _Search(s, gang, members, action, claimants_of(s, gang, members))
    return search.best()


@dataclass(frozen=True, slots=True)
class _Search:
    s: Snapshot
    gang: Gang
    members: Sequence[Pod]
    action: str
    claimants: Claimants

    def best(self) -> BestPlan | None:
        choices = [self._choices(gang) for gang in self.s.gangs.values() if gang.key != self.gang.key]
        everything = {pod for options in choices for units in options for unit in units for pod in unit.pods}
        if self._placement_after(everything) is None:
            return None
        sets = 1
        for options in choices:
            sets *= len(options)
        if sets > MOST_SETS:
            raise TooManyUnits(f"{sets} sets of units")
        order = PlanOrder.of(self.s, self.gang, self.members, self.action, self.claimants)
        candidates = [tuple(unit for units in chosen for unit in units) for chosen in product(*choices)]
        for units in sorted(candidates, key=order.full_key):
            placed = self._works(units)
            if placed is not None and not any(self._works(_without(units, unit)) is not None for unit in units):
                return BestPlan(units, placed)
        return None

    def _works(self, units: Units) -> dict[str, str] | None:
        """Where the members are placed, if these units may be taken and are enough."""
        placed = self._placement_after({uid for unit in units for uid in unit.pods})
        return placed if placed is not None and self._is_legal(units, placed) else None

    def _choices(self, gang: Gang) -> list[Units]:
        """What may be taken of a gang: nothing, some members one by one, or all of it."""
        placed = self.s.placed_members(gang)
        barred = {pod.uid for pod in placed if any(protected_because(self.s, pod, self._plan((pod.uid,), {})))}
        found: list[Units] = [()]
        found += self._members_one_by_one(gang, [pod for pod in placed if pod.uid not in barred])
        taken_singly = any(len(units) == len(placed) for units in found)
        if placed and not barred and not taken_singly:
            found.append((Unit(UnitKind.WHOLE, gang.key, tuple(pod.uid for pod in placed), gang.priority),))
        return [units for units in found if all(self._is_thinkable(unit) for unit in units)]

    def _members_one_by_one(self, gang: Gang, placed: Sequence[Pod]) -> Iterator[Units]:
        once = is_satisfied_once(self.s, gang)
        kind = UnitKind.SINGLE if once else UnitKind.SAFE
        seen: set[object] = set()
        for count in range(1, len(placed) + 1):
            for chosen in combinations(placed, count):
                uids = {pod.uid for pod in chosen}
                free = once or gang.key in self.s.history.broken
                if not free and (not keeps_minimums(self.s, gang, uids) or torn_subgroups(self.s, gang, uids)):
                    continue
                # Members that differ in nothing that counts are tried once.
                alike = tuple(sorted(repr(self._seen_as(pod)) for pod in chosen))
                if alike not in seen:
                    seen.add(alike)
                    whole = [] if free else whole_subgroups(self.s, gang, uids)
                    alone = [(pod.uid,) for pod in chosen if not any(pod.uid in pods for pods in whole)]
                    priority = self.s.pods
                    yield tuple(
                        Unit(kind, gang.key, pods, max(priority[uid].priority for uid in pods)) for pods in [*whole, *alone]
                    )

    def _seen_as(self, pod: Pod) -> object:
        placement, role = self.s.placements[pod.uid], self.s.role_of(pod.uid)
        amounts = sorted(request_of(pod).items())
        labels = sorted(pod.labels.items())
        subgroups = [
            subgroup.title for subgroup in self.s.gangs[self.s.members[pod.uid].gang].subgroups if pod.uid in subgroup.members
        ]
        counted = role and role.name, subgroups
        return placement.node, placement.devices, amounts, pod.priority, counted, lost_hours(self.s, pod), labels

    def _is_thinkable(self, unit: Unit) -> bool:
        """Whether a plan of this action could have the unit at all."""
        own = set(freed_by_queue(self.s, unit)) <= {role.queue for role in self.gang.roles}
        lower = unit.priority < self.gang.priority
        if self.action == JOB_PREEMPT:
            return lower
        if len({self.s.queue_of(pod.uid) for pod in self.members}) > 1:
            return lower or self.action == GANG_RECLAIM
        return lower if own else self.action == GANG_RECLAIM

    def _placement_after(self, gone: set[str]) -> dict[str, str] | None:
        after = self.s.without(gone)
        domains = allowed_domains(after, self.gang, self.members)
        if len(self.members) == 1:
            domains = [frozenset().union(*domains)]
        for domain in domains:
            placed = pack(after, self.members, domain)
            if placed is not None:
                return placed
        return None

    def _is_legal(self, units: Units, placed: dict[str, str]) -> bool:
        victims = tuple(uid for unit in units for uid in unit.pods)
        if self.s.rules.budgets == "hard" and broken_budgets(self.s, victims):
            return False
        return not any(rights_findings(self.s, self._plan(victims, placed), units, self.claimants))

    def _plan(self, victims: tuple[str, ...], placed: dict[str, str]) -> JudgedPlan:
        return JudgedPlan(self.gang.key, self.action, placed, victims)


def _without(units: Units, unit: Unit) -> Units:
    return tuple(other for other in units if other is not unit)
