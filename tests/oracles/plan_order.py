"""The one order that compares plans, and what a plan costs.

Cost of victims: for each victim the sum, over the contested dimensions, of its request as a part of what the ask needs there, times
(1 + hours of lost work + hours to restart) where the policy has the plugin lost-work. Surplus members count like any other victim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from tests.oracles.giving import freed_by_queue
from tests.oracles.legality import Claimants
from tests.oracles.plain_amounts import request_of, total
from tests.oracles.plan_units import Unit, UnitKind, keeps_minimums
from tests.oracles.protection import broken_budgets
from tests.oracles.queue_amounts import Ledger, ShareTable, below_common_ancestor, cluster_total, highest_share, ledger_of
from tests.oracles.snapshot import GANG_RECLAIM, Snapshot

from muster.model.gang import Gang
from muster.model.pod import Pod

T = TypeVar("T")
LOWEST_PRIORITY = -(2**31)
QueueRank = tuple[bool, int, bool, Fraction]


@dataclass(frozen=True, slots=True, order=True)
class PlanKey:
    """What is compared before the cost, in this order."""

    budgets_broken: int
    """Victims beyond what disruption budgets allow."""
    leading: tuple[object, object]
    """Whether a whole gang ends, and who is the worst victim: by priority, or for reclaim by queue. The policy swaps the two."""
    priorities: int
    """For one pod, the sum of the victims' priorities above the lowest possible; zero for a gang, and for reclaim."""
    gangs_below_minimum: int
    has_whole: bool = field(compare=False)
    highest_priority: int = field(compare=False)
    """Of reclaim it counts after the cost, and is zero here."""


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """Compares plans for one ask of one action."""

    s: Snapshot
    gang: Gang
    members: Sequence[Pod]
    action: str
    claimants: Claimants
    before: Ledger
    unit_costs: dict[Unit, float] = field(default_factory=dict)
    unit_ranks: dict[Unit, QueueRank] = field(default_factory=dict)

    @staticmethod
    def of(s: Snapshot, gang: Gang, members: Sequence[Pod], action: str, claimants: Claimants) -> PlanOrder:
        return PlanOrder(s, gang, members, action, claimants, ledger_of(s))

    @property
    def _reclaims(self) -> bool:
        return self.action == GANG_RECLAIM

    def full_key(self, units: Sequence[Unit]) -> tuple[object, ...]:
        """All keys up to the number of pods; what is equal in these is equally good."""
        pods = sum(len(unit.pods) for unit in units)
        return self.key(units), self.cost(units), self._highest(units) if self._reclaims else 0, self._sum(units), pods

    def key(self, units: Sequence[Unit]) -> PlanKey:
        victims = [uid for unit in units for uid in unit.pods]
        has_whole = any(not unit.is_safe for unit in units)
        highest = 0 if self._reclaims else self._highest(units)
        worst = self._worst_queue(units) if self._reclaims else highest
        return PlanKey(
            budgets_broken=sum(broken_budgets(self.s, victims).values()) if self.s.rules.budgets == "soft" else 0,
            leading=(worst, has_whole) if self.s.rules.priority_first else (has_whole, worst),
            priorities=0 if self._reclaims else self._sum(units),
            gangs_below_minimum=self._left_below(units, victims),
            has_whole=has_whole,
            highest_priority=highest,
        )

    def cost(self, units: Iterable[Unit]) -> float:
        # Rounded: the same victims cost the same in whatever order they are added up.
        return round(sum(self._once(self.unit_costs, unit, self._unit_cost) for unit in units), 9)

    def _unit_cost(self, unit: Unit) -> float:
        need = total(request_of(pod) for pod in self.members)
        contested = frozenset().union(*(taker.contested for taker in self.claimants.takers if taker.lacks))
        found = 0.0
        for uid in unit.pods:
            request = request_of(self.s.pods[uid])
            found += sum(request.get(name, 0) / need[name] for name in contested) * (1 + lost_hours(self.s, self.s.pods[uid]))
        return found

    @staticmethod
    def _once(known: dict[Unit, T], unit: Unit, compute: Callable[[Unit], T]) -> T:
        if unit not in known:
            known[unit] = compute(unit)
        return known[unit]

    def _highest(self, units: Sequence[Unit]) -> int:
        return max((unit.priority for unit in units), default=LOWEST_PRIORITY)

    def _sum(self, units: Sequence[Unit]) -> int:
        if len(self.members) > 1:
            return 0
        return sum((unit.priority - LOWEST_PRIORITY) * len(unit.pods) for unit in units)

    def _left_below(self, units: Sequence[Unit], victims: Sequence[str]) -> int:
        """Gangs that lose a part of their members and run on below their minimum."""
        found = 0
        for key in {unit.gang for unit in units if unit.gang and unit.kind is not UnitKind.WHOLE}:
            gang = self.s.gangs[key]
            runs_on = any(pod.uid not in victims for pod in self.s.placed_members(gang))
            found += runs_on and not keeps_minimums(self.s, gang, victims)
        return found

    def _worst_queue(self, units: Sequence[Unit]) -> QueueRank:
        return max((self._once(self.unit_ranks, unit, self._rank) for unit in units), default=NO_QUEUE)

    def _rank(self, unit: Unit) -> QueueRank:
        """Where its queues come in the order of giving, the worst of them: the asker's own last, lower queue priority first, those
        without a share by their share of the cluster, then who is most over its share."""
        taker = self.claimants.takers[0]
        return max(self._queue_rank(queue, taker.queue, taker.contested) for queue in freed_by_queue(self.s, unit))

    def _queue_rank(self, queue: str, taker: str, contested: frozenset[str]) -> QueueRank:
        theirs, _ = below_common_ancestor(self.s, queue, taker)
        if any(queue == each.queue for each in self.claimants.takers) or not theirs:
            return True, 0, False, Fraction(0)
        top = theirs[-1]
        priority = self.s.queues[top].priority if top in self.s.queues else 0
        ratio = _ratio(self.claimants.tables, self.before, top, contested)
        if ratio is not None:
            return False, priority, True, -ratio
        there, used = cluster_total(self.s), self.before.get(top, {})
        part = max((Fraction(used.get(name, 0), there[name]) for name in contested if there.get(name)), default=Fraction(0))
        return False, priority, False, -part


def _ratio(tables: Sequence[ShareTable], ledger: Ledger, queue: str, names: frozenset[str]) -> Fraction | None:
    """The largest part of its share that the queue uses of these; None where it has none of them, or a share of nothing."""
    shares = {name: share for name in names if (share := highest_share(tables, queue, name))}
    return max((Fraction(ledger.get(queue, {}).get(name, 0), share) for name, share in shares.items()), default=None)


NO_QUEUE: QueueRank = (False, 0, False, Fraction(0))


def lost_hours(s: Snapshot, pod: Pod) -> float:
    """Since the last checkpoint or the start, and to restart; nothing where the policy does not count it."""
    if not s.rules.lost_work:
        return 0.0
    saved = pod.checkpoint if pod.checkpoint is not None else pod.started
    since = max(0.0, s.now - saved) if saved is not None else 0.0
    return (since + pod.restart_s) / 3600
