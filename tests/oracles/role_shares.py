"""How a plan for a GangGroup over several queues is shared out among its roles.

Every unit is taken for one role, which lacks it and may have it: of its own queue by priority, of others by shares. The roles take
their turns in some order; one that may take nothing fits on what is free or on what is left over of units that others needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, permutations

from tests.oracles.allowed_domains import allowed_domains
from tests.oracles.giving import Giving, Taker, freed_by_queue, order_of_giving
from tests.oracles.packing import pack
from tests.oracles.plan_units import Unit, UnitKind, keeps_minimums, torn_subgroups
from tests.oracles.queue_amounts import Ledger, charge, ledger_of
from tests.oracles.snapshot import GANG_RECLAIM, JudgedPlan, Snapshot
from tests.oracles.taking import limit_findings, taking_findings

from muster.model.gang import Gang
from muster.model.pod import Pod

MOST_CHOICES = 64
Units = frozenset[Unit]
NOBODY: Units = frozenset()


@dataclass(slots=True)
class RoleShares:
    """One plan, and the roles by the queues that they are charged to."""

    s: Snapshot
    plan: JudgedPlan
    giving: Giving
    finished: Ledger
    freely: frozenset[str] = frozenset()
    """Pods that go whoever lacks them."""
    members: dict[str, list[Pod]] = field(init=False)
    _fits: dict[tuple[frozenset[str], tuple[str, ...]], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = {}
        for uid in self.plan.placed:
            self.members.setdefault(self.s.queue_of(uid), []).append(self.s.pods[uid])

    @property
    def gang(self) -> Gang:
        return self.s.gangs[self.plan.asker]

    def is_own(self, unit: Unit, queue: str) -> bool:
        """Taken by priority: it is of the role's own queue, or of that and of others of the group."""
        freed = set(freed_by_queue(self.s, unit))
        return queue in freed and freed <= self.members.keys() and unit.priority < self.gang.priority

    def may_be_for(self, unit: Unit, taker: Taker) -> bool:
        """Whether the unit may be taken for this role at all, whatever goes before it."""
        if self.is_own(unit, taker.queue):
            return True
        alone = replace(self.giving, takers=[taker])
        return self.plan.action == GANG_RECLAIM and not alone.why_not(unit, ())

    def is_for_some(self, unit: Unit, takers: Sequence[Taker]) -> bool:
        return any(self.may_be_for(unit, taker) for taker in takers)

    def can_be_shared_out(self, units: Sequence[Unit]) -> bool:
        takers = {taker.queue: taker for taker in self.giving.takers}
        legal = {queue: frozenset(u for u in units if self.may_be_for(u, taker)) for queue, taker in takers.items()}
        return any(self._in_order(order, (), NOBODY, frozenset(units), {}, legal) for order in permutations(sorted(takers)))

    def _in_order(
        self,
        order: Sequence[str],
        done: tuple[str, ...],
        used: Units,
        left: Units,
        shares: Mapping[str, Units],
        legal: Mapping[str, Units],
    ) -> bool:
        if len(done) == len(order):
            return not left and self._may_have(shares)
        queue = order[len(done)]
        now = (*done, queue)
        able = sorted(left & legal[queue], key=lambda unit: unit.pods)
        for count in range(len(able) + 1):
            for chosen in map(frozenset, combinations(able, count)):
                if not self.fits(used | chosen, now) or not all(self._lacks(queue, unit, chosen, used, now) for unit in chosen):
                    continue
                if self._in_order(order, now, used | chosen, left - chosen, {**shares, queue: chosen}, legal):
                    return True
        return False

    def _lacks(self, queue: str, unit: Unit, chosen: Units, used: Units, now: tuple[str, ...]) -> bool:
        """Without the unit, and without those of its gang that it can do without, the roles so far do not fit, or the role would
        borrow."""
        others = used | (chosen - {unit})
        foreign = [other for other in chosen if not self.is_own(other, queue)]
        if foreign and unit not in foreign and self._borrows(queue, foreign, charge(self.s, self.finished, unit.pods)):
            return True
        if self.fits(others, now):
            return False
        return not any(self.fits(others | surplus, now) for surplus in self._surplus_of(unit))

    def _surplus_of(self, unit: Unit) -> Iterator[Units]:
        if unit.kind is not UnitKind.WHOLE or not unit.gang:
            return
        gang = self.s.gangs[unit.gang]
        for count in range(1, len(unit.pods)):
            for chosen in islice(combinations(unit.pods, count), MOST_CHOICES):
                if keeps_minimums(self.s, gang, chosen) and not torn_subgroups(self.s, gang, chosen):
                    yield frozenset(Unit(UnitKind.SAFE, unit.gang, (uid,), self.s.pods[uid].priority) for uid in chosen)

    def _borrows(self, queue: str, foreign: Sequence[Unit], finished: Ledger) -> bool:
        taker = next(taker for taker in self.giving.takers if taker.queue == queue)
        return any(True for _ in taking_findings(self.s, self.giving.tables, finished, taker, foreign))

    def _may_have(self, shares: Mapping[str, Units]) -> bool:
        """Each role is within its share with what it takes from others, and these give it in some order."""
        givers: dict[Unit, str] = {}
        for queue, units in shares.items():
            foreign = [unit for unit in units if not self.is_own(unit, queue)]
            if foreign and self._borrows(queue, foreign, self.finished):
                return False
            givers.update(dict.fromkeys(foreign, queue))
        _, refused = order_of_giving(replace(self.giving, given_to=givers), sorted(givers, key=lambda unit: unit.pods))
        return not refused

    def fits(self, gone: Units, queues: tuple[str, ...]) -> bool:
        """Whether the members in these queues find capacity, within limits, once these units are gone."""
        key = frozenset(uid for unit in gone for uid in unit.pods), tuple(sorted(queues))
        if key not in self._fits:
            self._fits[key] = self._fit(*key)
        return self._fits[key]

    def _fit(self, gone: frozenset[str], queues: tuple[str, ...]) -> bool:
        members = [pod for queue in queues for pod in self.members[queue]]
        after = self.s.without({*gone, *self.freely, *self.plan.released, *self.plan.placed})
        ledger = charge(self.s, ledger_of(after), [pod.uid for pod in members])
        if any(True for _ in limit_findings(self.s, ledger, members)):
            return False
        domains = allowed_domains(after, self.gang, members)
        if len(members) == 1:
            domains = [frozenset().union(*domains)]
        return any(pack(after, members, domain) is not None for domain in domains)
