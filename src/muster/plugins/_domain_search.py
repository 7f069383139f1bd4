"""The domains that an ask may be placed in, in the order in which they are tried, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.evict.eviction_policy import STALE_GANGS_ACTION, in_queues
from muster.engine.evict.victims import VictimTable, victim_table_of
from muster.engine.explain import CAPACITY
from muster.engine.fit_counts import (
    CAPACITY_FOR,
    CapacityAfterEvictions,
    CapacitySource,
    CapacityView,
    CurrentCapacity,
    DomainBounds,
    DomainSums,
    domain_bounds,
)
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.gang import Mode
from muster.model.pod import PLACED_OR_NOMINATED, Pod
from muster.model.resource_amounts import PODS, Resources, show
from muster.model.topics import Topic
from muster.plugins._tier_constraint import TierConstraint
from muster.state.node_table import BoolColumn, RowIndex
from muster.state.resource_columns import Amounts

INSUFFICIENT_CAPACITY = "InsufficientCapacityInDomain"
NO_DOMAIN = "NoDomain"
MEMBERS_APART = "MembersApart"

# Actions that evict in the queues of the ask only, and only pods of lower priority.
_OWN_QUEUES_ONLY = ("preempt", "gang-preempt")


class ConstrainedDomains:
    """`allowed`: the narrowest first, whether or not they have the capacity."""

    def __init__(self, s: Session, ask: Ask, constraint: TierConstraint) -> None:
        self.s, self.ask, self.constraint = s, ask, constraint
        self.placed_on = placed_rows(s, ask)
        self.allowed = self._up_to(constraint.highest_tier_allowed if constraint.hard else constraint.tree.top_tier)

    def _up_to(self, highest_tier_allowed: int) -> tuple[Domain, ...]:
        """Domains up to that tier that contain every placed member, and that lie within what the ask is limited to."""
        tree, within = self.constraint.tree, self.ask.within
        found: tuple[Domain, ...] = tree.up_to(highest_tier_allowed)
        if self.placed_on:
            found = tuple(domain for domain in tree.containing(self.placed_on) if (domain.tier or 0) <= highest_tier_allowed)
        if within is None or within.rows is None:
            return found
        inside = np.zeros(len(self.s.world.table), dtype=np.int64)
        inside[within.rows] = 1
        sums = DomainSums(found)
        contained = sums.sums(inside) == sums.sums(np.ones_like(inside))
        kept = tuple(domain for domain, is_inside in zip(found, contained.tolist(), strict=True) if is_inside)
        # A soft constraint of a subgroup ends at the domain of its gang.
        return kept if self.constraint.hard or within in kept else (*kept, within)

    # -- capacity ------------------------------------------------------------------------------------------------------------------

    def feasible(self) -> tuple[Domain, ...] | Verdict:
        """All domains that could take what the gang needs, the narrowest first."""
        found = self._bounds(self.allowed, CAPACITY_FOR[self.ask.purpose])
        keep: BoolColumn = found.feasible & (found.most > 0)
        if self.ask.gang.mode is Mode.NON_STRICT:
            # It takes what it can get, but only where all of it fits once the domain is empty.
            keep = self._bounds(self.allowed, CapacityView.ALLOCATABLE).feasible & (found.most > 0)
        if not self.constraint.hard:
            keep[-1] = True
        if not keep.any():
            return self._insufficient_capacity(found)
        return self.allowed if keep.all() else tuple(self.allowed[at] for at in np.flatnonzero(keep).tolist())

    def _bounds(self, domains: Sequence[Domain], view: CapacityView) -> DomainBounds:
        return domain_bounds(self.s, self.ask, domains, CurrentCapacity(self.s, view))

    # -- after evictions -----------------------------------------------------------------------------------------------------------

    def reachable_by_evictions(self) -> tuple[Domain, ...] | Verdict:
        """Domains in which the ask fits after evicting all that it may evict, the narrowest first."""
        found = domain_bounds(self.s, self.ask, self.allowed, after_evictions(self.s, self.ask))
        reachable = np.flatnonzero(found.feasible)
        if not len(reachable):
            return self._insufficient_capacity(found, after_evictions=True)
        return tuple(self.allowed[at] for at in reachable.tolist())

    # -- why not ---------------------------------------------------------------------------------------------------------------

    def no_allowed_domain(self) -> Verdict:
        """No domain is allowed at all: there is none, or the members that are placed share none."""
        tree, constraint = self.constraint.tree, self.constraint
        if self.placed_on:
            common = tree.lowest_common(self.placed_on)
            where = common.name if common.rows is None else f"{common.title} of tier {common.tier}"
            why = (
                f"its {_members_text(len(self.placed_on))} that have a node share no domain below {where} ({constraint.limit_text})"
            )
            return Verdict(ok=False, why=f"{why}{self._wider_tier_hint()}", code=MEMBERS_APART, topics=CAPACITY)
        there = "there are no HyperNodes, and the policy names no tiers"
        there = there if tree.lowest is None else f"the lowest is {tree.show_tier(tree.lowest)}"
        inside = "" if self.ask.within is None else f" in {self.ask.within.title}"
        why = f"there is no domain of such a tier{inside} ({constraint.limit_text}): {there}"
        return Verdict(ok=False, why=why, code=NO_DOMAIN, topics=(Topic.FREE_CAPACITY.any,))

    def _insufficient_capacity(self, found: DomainBounds, *, after_evictions: bool = False) -> Verdict:
        """How many the best domain fits, and which tier would do."""
        alone = self._bounds(self.allowed, CapacityView.ALLOCATABLE)
        never = not self.placed_on and not alone.feasible.any()
        most = alone.most if never else found.most
        best = int(np.argmax(most))
        if self.placed_on:
            others = "its other member is" if len(self.placed_on) == 1 else f"its other {len(self.placed_on)} members are"
            why = f"{self.allowed[best].title}, where {others}, fits {most[best]} of {len(self.ask.pods)} more"
        else:
            minimum = self.ask.minimum or self.ask.pods
            when = " even when empty" if never else " even after evicting all that it may evict" if after_evictions else ""
            why = f"no {self._tier_noun()} fits {_members_text(len(minimum))}{_request_text(minimum)}{when}"
            why += f": best of {len(self.allowed)} is {self.allowed[best].name}, which fits {most[best]}"
        # What a wider tier would do was said when it was refused.
        more = self._protected_text(never=never) if after_evictions else self._wider_tier_hint()
        return Verdict(
            ok=False,
            why=f"{why} ({self.constraint.limit_text}){more}",
            code=NO_DOMAIN if never else INSUFFICIENT_CAPACITY,
            curable=not never and not after_evictions,
            topics=CAPACITY,
        )

    def _protected_text(self, *, never: bool) -> str:
        """How many pods it could have evicted but for their protection, where that would have helped."""
        if self.placed_on or never:
            return ""
        table = victim_table_of(self.s.world)
        count = int(np.count_nonzero(_eligible_rows(self.ask, table) & table.not_evictable[: len(table.pods)]))
        are = "pod is" if count == 1 else "pods are"
        return f"; {count} {are} protected from eviction" if count else ""

    def _tier_noun(self) -> str:
        tiers = sorted({domain.tier or 0 for domain in self.allowed if domain.tier} or {self.constraint.highest_tier_allowed})
        noun = self.constraint.tree.noun(tiers[-1])
        return noun if len(tiers) == 1 else f"{noun} nor anything narrower"

    def _wider_tier_hint(self) -> str:
        """Which higher tier would do, and where."""
        tree = self.constraint.tree
        wider = [domain for domain in self._up_to(tree.top_tier) if (domain.tier or 0) > self.constraint.highest_tier_allowed]
        if not wider or not self.ask.pods:
            return ""
        for view, when in ((CAPACITY_FOR[self.ask.purpose], ""), (CapacityView.ALLOCATABLE, " when that is empty")):
            found = self._bounds(wider, view)
            enough = np.flatnonzero(found.feasible & (found.most == max(1, int(found.most.max()))))
            if len(enough):
                where = wider[int(enough[0])]
                tier = "" if where.rows is None else f" with tier {tree.show_tier(where.tier or 0)} allowed"
                return f"; it would fit{tier} in {where.title}{when}, for {found.most[enough[0]]}"
        return "; no higher tier fits it either"


def placed_rows(s: Session, ask: Ask) -> list[int]:
    """The rows of the nodes of the gang's placed members, or of the subgroup's. Nodes that were deleted do not count."""
    world = s.world
    uids = [pod.uid for pod in ask.gang.pods()] if ask.subgroup is None else sorted(ask.subgroup.members)
    placed = [world.placements.by_uid[uid] for uid in uids if uid in world.placements.by_uid]
    rows = [world.table.row.get(placement.node or "") for placement in placed if placement.phase in PLACED_OR_NOMINATED]
    return [row for row in rows if row is not None]


# -- after evictions -------------------------------------------------------------------------------------------------------------


def after_evictions(s: Session, ask: Ask) -> CapacitySource:
    """Free amounts after evicting all that the ask may evict."""
    victim_table = victim_table_of(s.world)
    return CapacityAfterEvictions(s, _free_after(s, victim_table, np.flatnonzero(_evictable_rows(ask, victim_table))))


def _evictable_rows(ask: Ask, victim_table: VictimTable) -> BoolColumn:
    return _eligible_rows(ask, victim_table) & ~victim_table.not_evictable[: len(victim_table.pods)]


def _eligible_rows(ask: Ask, victim_table: VictimTable) -> BoolColumn:
    """Placed pods that could be victims: of lower priority in the queues of the ask, or in others if the action evicts there."""
    size, gangs = len(victim_table.pods), len(victim_table.gangs)
    own = in_queues(victim_table, {role.queue for role in ask.gang.roles})
    lower = victim_table.gang_priority[:gangs] < ask.gang.priority
    eligible = (own & lower) if ask.action in _OWN_QUEUES_ONLY else (~own | lower)
    if ask.action == STALE_GANGS_ACTION:
        eligible = victim_table.gang_priority[:gangs] == ask.gang.priority
    eligible[victim_table.gang_number[ask.gang.key]] = False
    found: BoolColumn = victim_table.alive[:size] & (victim_table.row[:size] >= 0)
    found[found] = eligible[victim_table.gang[:size][found]]
    return found


def _free_after(s: Session, victim_table: VictimTable, at: RowIndex) -> Amounts:
    free = s.world.table.allocatable - s.world.table.planned
    np.add.at(free, victim_table.row[at], victim_table.request[at])
    return free


# -- text -------------------------------------------------------------------------------------------------------------------------


def _members_text(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _request_text(pods: Sequence[Pod]) -> str:
    """What each of them requests, where that is the same for all."""
    requests = {pod.signature.request for pod in pods}
    if len(requests) != 1:
        return ""
    shown = Resources(tuple((name, amount) for name, amount in requests.pop().items if name != PODS))
    return f" ({show(shown)} each)" if shown else ""
