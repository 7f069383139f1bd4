"""Two queues in one tree: who may give to whom, by the shares of the queues on both sides below their common ancestor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.fair_shares import shares_for_reclaim
from muster.engine.guarantees import guarantees
from muster.engine.session import Session
from muster.engine.shares import cluster_total, dominant_share
from muster.model.queue import show_queue
from muster.model.resource_amounts import short_name, show_amount
from muster.state.node_table import BoolColumn
from muster.state.resource_columns import Amounts

_NOT_CONFIGURED = -1


@dataclass(frozen=True, slots=True)
class QueuePair:
    """The levels of a giving and of a taking queue, each from the queue itself up to just below their common ancestor."""

    giving: tuple[str, ...]
    taking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Share:
    """What one plugin says that a queue has a share of, by column: plain integers, of which there are few."""

    amounts: dict[int, int]
    contested: dict[int, int]


class QueueComparison:
    """Compares one asking queue with others. `contested`: the dimensions that count. `demand`: what is asked for in this queue."""

    def __init__(self, s: Session, queue: str, contested: BoolColumn, demand: Amounts) -> None:
        self.s, self.queue, self.contested, self.demand = s, queue, contested, demand
        self._shares = shares_for_reclaim(s)
        self._is_fair = s.policy.settings.reclaim_for == "fairShare"
        self._pairs: dict[str, QueuePair | None] = {}
        self._shares_of_level: dict[str, list[_Share]] = {}
        self._contested: list[int] = np.flatnonzero(contested).tolist()
        self._before = s.world.ledger.planned_in(np.arange(len(s.world.ledger)))
        self.own_evictable: Amounts = np.zeros_like(demand)
        """What could be evicted in the asking queue itself."""

    def pair(self, other: str) -> QueuePair | None:
        """None where one of the queues is an ancestor of the other, or both are the same."""
        if other not in self._pairs:
            tree = self.s.world.facts.tree
            mine, theirs = tree.path(self.queue), tree.path(other)
            above = {*mine} & {*theirs}
            giving = tuple(level for level in theirs if level not in above)
            taking = tuple(level for level in mine if level not in above)
            known = all(level in self.s.world.ledger for level in (*giving, *taking))
            self._pairs[other] = QueuePair(giving, taking) if giving and taking and known else None
        return self._pairs[other]

    # -- shares ------------------------------------------------------------------------------------------------------------------

    def _shares_of(self, level: str) -> list[_Share]:
        """The shares of a queue, of each plugin that has an opinion on it."""
        if level not in self._shares_of_level:
            row, found = self.s.world.ledger.row[level], []
            for shares in self._shares:
                amounts = {at: share for at, share in enumerate(shares[row].tolist()) if share != _NOT_CONFIGURED}
                if amounts:
                    found.append(_Share(amounts, {at: amounts[at] for at in self._contested if at in amounts}))
            self._shares_of_level[level] = found
        return self._shares_of_level[level]

    def _configured(self, level: str) -> list[_Share]:
        """Those of something contested."""
        return [share for share in self._shares_of(level) if share.contested]

    def _has_share(self, levels: tuple[str, ...]) -> bool:
        return any(share.contested for level in levels for share in self._shares_of(level))

    def _nobody_has_share(self, pair: QueuePair, freed: Amounts) -> bool:
        """The giving side has a share of nothing contested, the taking one of nothing that is freed: who deserves GPUs takes no
        CPUs for that from one who has borrowed them just as well."""
        if self._has_share(pair.giving):
            return False
        return not any(freed[at] > 0 for level in pair.taking for share in self._shares_of(level) for at in share.contested)

    def takes_within_parent(self, other: str) -> bool:
        """May the asking queue, though it borrows, take what the other one borrows below the same parent, by priority?"""
        pair = self.pair(other)
        return pair is not None and len(pair.taking) == 1 and self._preempts_within_parent(self.queue)

    def _preempts_within_parent(self, queue: str) -> bool:
        own = self.s.world.facts.tree.node(queue).preempt_within_parent
        return (own or self.s.policy.settings.preempt_within_parent) == "LowerPriority"

    def why_not_within_parent(self) -> str:
        """Why the parent of the asking queue would be over its share, with the ask and without what the plan evicts."""
        parent = self.s.world.facts.tree.parents.get(self.queue, "")
        if parent not in self.s.world.facts.tree.nodes:
            return ""
        usage = self.s.world.ledger.planned_list(parent)
        for share in self._shares_of(parent):
            if over := self._over(usage, share):
                return self._why_over(parent, usage, {at: share.amounts[at] for at in over})
        return ""

    def why_not_borrowed(self, other: str, freed: Amounts) -> str:
        """Why a unit of a sibling that frees so much is not taken by priority: it may give only what it borrows, and to the last
        unit; empty where it may."""
        pair = self.pair(other)
        if pair is None or not any(freed[at] > 0 for at in self._contested):
            return f"a unit of {show_queue(other)} frees nothing that is lacking"
        for level in pair.giving:
            why = self._why_protected(level, freed) or self._why_crosses(level, freed)
            if why:
                return why
            planned = self.s.world.ledger.planned_list(level)
            for share in self._configured(level):
                if not any(planned[at] > amount and freed[at] > 0 for at, amount in share.contested.items()):
                    return self._why_not_over(level, planned, share.contested, freed)
        return ""

    def both_borrow(self, other: str, freed: Amounts) -> bool:
        """Do both sides only borrow what a unit of the other queue frees?"""
        pair = self.pair(other)
        return pair is not None and self._nobody_has_share(pair, freed)

    # -- giving ------------------------------------------------------------------------------------------------------------------

    def why_never_giving(self, other: str, least: Amounts, *, borrowers_give: bool) -> str:
        """Why the other queue gives no unit at all, as usage is now, were it this `least_unit`; empty where it might give one."""
        first = ""
        for at in np.flatnonzero(least).tolist():
            lost = np.zeros_like(least)
            lost[at] = least[at]
            why = self.why_not_giving(other, least, lost=lost, may_cross=True, borrowers_give=borrowers_give)
            if not why:
                return ""
            first = first or why
        return first

    def why_not_giving(
        self,
        other: str,
        freed: Amounts,
        *,
        lost: Amounts | None = None,
        may_cross: bool,
        borrowers_give: bool = False,
        outranks: bool = False,
    ) -> str:
        """Why the other queue need not give a unit that frees so much, as usage is now; empty where it must.

        `lost`: what its part becomes smaller by, if not by all of that. `may_cross`: the last unit may take it below its share.
        `borrowers_give`: where neither side has a share, priority decides instead of the dominant share. `outranks`: the unit has a
        higher priority than the asking gang.
        """
        pair = self.pair(other)
        lost = freed if lost is None else lost
        if pair is None:
            return f"{show_queue(other)} and {show_queue(self.queue)} are not in different branches"
        if not any(freed[at] > 0 for at in self._contested):
            return f"a unit of {show_queue(other)} frees nothing that is lacking"
        if why := self.why_protected(other, freed):
            return why
        if not may_cross and (crossed := next(filter(None, (self._why_crosses(level, freed) for level in pair.giving)), "")):
            return crossed
        if not borrowers_give and self._nobody_has_share(pair, freed):
            return self._why_not_by_size(pair, lost, outranks=outranks)
        return next(filter(None, (self._why_within(pair, level, freed, lost) for level in pair.giving)), "")

    def _why_not_by_size(self, pair: QueuePair, lost: Amounts, *, outranks: bool) -> str:
        """Neither side has a share. What was taken by priority from those who only borrow is not taken back by size."""
        other = pair.giving[0]
        was_taken = len(pair.giving) == 1 and self._preempts_within_parent(other)
        if outranks and (other.startswith("quota/") or was_taken):
            what = "job" if other.startswith("quota/") else "gang"
            return f"{show_queue(other)} and {show_queue(self.queue)} only borrow, and its {what} has the higher priority"
        return self._why_share_not_larger(pair, lost, self._least_usage(pair))

    def why_protected(self, other: str, freed: Amounts) -> str:
        """Whether a level of another queue, below the common ancestor, is not reclaimable or would fall below its guarantee."""
        pair = self.pair(other)
        whys = [self._why_protected(level, freed) for level in pair.giving] if pair is not None else []
        return next(filter(None, whys), "")

    def _why_protected(self, level: str, freed: Amounts) -> str:
        node = self.s.world.facts.tree.node(level)
        if not node.reclaimable:
            return f"{show_queue(level)} is not reclaimable"
        if not node.guarantee or (found := guarantees(self.s)) is None:
            return ""
        ledger = self.s.world.ledger
        counted = found.counted[ledger.row[level]]
        below = (freed > 0) & (ledger.planned(level) - freed < counted)
        if not below.any():
            return ""
        at = min(np.flatnonzero(below).tolist(), key=self.s.world.columns.names.__getitem__)
        return self._why_below(level, "guarantee", freed, at, int(counted[at]))

    def _why_within(self, pair: QueuePair, level: str, freed: Amounts, lost: Amounts) -> str:
        """All plugins with an opinion must find it over its share, in something contested that the unit frees."""
        planned, before = self.s.world.ledger.planned_list(level), self._planned_before(level)
        for share in self._configured(level):
            is_below = any(before[at] >= amount > planned[at] for at, amount in share.amounts.items())
            if not is_below and any(planned[at] > amount and freed[at] > 0 for at, amount in share.contested.items()):
                continue
            if level == pair.giving[-1] and self._is_oversubscribed(pair) and self._uses_more(pair, lost):
                continue
            if is_below:
                return f"{show_queue(level)} is below its {self._share_name(level)} already"
            return self._why_not_over(level, planned, share.contested, freed)
        return ""

    def _why_not_over(self, level: str, planned: Sequence[int], share: dict[int, int], freed: Amounts) -> str:
        """It is within its share of what the unit frees, or over it in something else only."""
        counts = {at: amount for at, amount in share.items() if freed[at] > 0}
        over = [at for at, amount in share.items() if planned[at] > amount]
        if over and not counts:
            names = ", ".join(sorted(short_name(self.s.world.columns.names[at]) for at in over))
            return f"{show_queue(level)} is over its {self._share_name(level)} of {names}, of which the unit frees nothing"
        return f"{show_queue(level)} is within its {self._share_name(level)}: {self._figures(planned, counts or share)}"

    def _why_crosses(self, level: str, freed: Amounts) -> str:
        """A resource of which the queue would fall below its share without the unit, contested or not; or nothing."""
        planned = self.s.world.ledger.planned_list(level)
        for share in self._shares_of(level):
            for at in sorted(share.amounts, key=self.s.world.columns.names.__getitem__):
                amount = share.amounts[at]
                if freed[at] > 0 and planned[at] >= amount > planned[at] - freed[at]:
                    return self._why_below(level, self._share_name(level), freed, at, amount)
        return ""

    def _why_below(self, level: str, what: str, freed: Amounts, at: int, least: int) -> str:
        name, planned = self.s.world.columns.names[at], self.s.world.ledger.planned_list(level)
        used, lost, kept = (show_amount(name, amount) for amount in (planned[at], int(freed[at]), least))
        return f"{show_queue(level)} would fall below its {what} of {short_name(name)}: {used} used - {lost} evicted < {kept}"

    def _planned_before(self, level: str) -> list[int]:
        """What the queue used before the plan evicted anybody."""
        before: list[int] = self._before[self.s.world.ledger.row[level]].tolist()
        return before

    def is_below(self, level: str, freed: Amounts) -> bool:
        """Was the queue at its share or over it before the plan, and is it below without so much?"""
        before = self._planned_before(level)
        return any(
            before[at] >= amount > before[at] - freed[at]
            for share in self._shares_of(level)
            for at, amount in share.amounts.items()
        )

    def _share_name(self, queue: str) -> str:
        return "fair share" if self._is_fair else "minimum" if queue.startswith("quota/") else "deserved share"

    def _share_word(self, queue: str) -> str:
        return "fair share" if self._is_fair else "min" if queue.startswith("quota/") else "deserved"

    def _figures(self, planned: Sequence[int], share: dict[int, int]) -> str:
        names = self.s.world.columns.names
        return ", ".join(
            f"{short_name(names[at])} {show_amount(names[at], planned[at])} of {show_amount(names[at], share[at])}"
            for at in sorted(share, key=names.__getitem__)
        )

    def _least_usage(self, pair: QueuePair) -> Amounts:
        """What the asking side uses at least with the ask, were all evicted that may be evicted in its own queue."""
        taker = pair.taking[-1]
        least: Amounts = self._before[self.s.world.ledger.row[taker]] - self.own_evictable + self.demand
        return least

    def _why_share_not_larger(self, pair: QueuePair, freed: Amounts, usage: Amounts) -> str:
        """Neither side has a share: the other must keep at least as large a part of the cluster as this one gets."""
        giver, taker = pair.giving[-1], pair.taking[-1]
        left = dominant_share(self.s, giver, plus=-freed) / self._weight(giver)
        gets = dominant_share(self.s, taker, plus=usage - self.s.world.ledger.planned(taker)) / self._weight(taker)
        if left >= gets:
            return ""
        now = dominant_share(self.s, giver) / self._weight(giver)
        keeps = f"has ({now:.0%})" if gets > now else f"would keep ({left:.0%})"
        return f"{show_queue(taker)} would have a larger share of the cluster ({gets:.0%}) than {show_queue(giver)} {keeps}"

    def _weight(self, level: str) -> int:
        return max(self.s.world.facts.tree.node(level).weight, 1)

    def _is_oversubscribed(self, pair: QueuePair) -> bool:
        """Do the shares of the siblings add up to more than there is, in something contested?"""
        tree, ledger = self.s.world.facts.tree, self.s.world.ledger
        parent = tree.parents.get(pair.giving[-1], "")
        for shares in self._shares:
            rows = shares[[ledger.row[child] for child in tree.children[parent]]]
            there = cluster_total(self.s)
            if parent:
                own = shares[ledger.row[parent]]
                there = np.where(own != _NOT_CONFIGURED, np.minimum(own, there), there)
            if ((np.maximum(rows, 0).sum(axis=0) > there) & self.contested).any():
                return True
        return False

    def _uses_more(self, pair: QueuePair, lost: Amounts) -> bool:
        """Has the giver without the unit at least as much of its share of what is contested as the taker with the ask? A taker
        without a share of that cannot be measured so."""
        ledger = self.s.world.ledger
        giver, taker = pair.giving[-1], pair.taking[-1]
        if not self._configured(taker):
            return False
        return self._use_of_share(giver, ledger.planned(giver) - lost) >= self._use_of_share(
            taker, ledger.planned(taker) + self.demand
        )

    def _use_of_share(self, level: str, usage: Amounts) -> float:
        found = 0.0
        for each in self._configured(level):
            for at, share in each.contested.items():
                found = max(found, float(usage[at]) / share if share else (np.inf if usage[at] > 0 else 0.0))
        return found

    def least_unit(self, other: str) -> Amounts:
        """The least that a unit of the other queue could free of what is contested, without what guarantees keep of it. All of it
        where they keep everything."""
        least: Amounts = np.where(self.contested, np.minimum(self.s.world.ledger.planned(other), 1), 0)
        if not self.why_protected(other, least):
            return least
        each = [np.where(np.arange(len(least)) == at, least, 0) for at in self._contested]
        given: Amounts = np.sum([unit for unit in each if not self.why_protected(other, unit)], axis=0, dtype=np.int64)
        return given if given.any() else least

    # -- taking ------------------------------------------------------------------------------------------------------------------

    def why_not_taking(self, units: Iterable[tuple[str, Amounts]], later: Iterable[tuple[str, Amounts]] = ()) -> str:
        """Why this queue may not take what these units free, each in another queue, with the ask and without what the plan evicts;
        empty where it may. `later`: units that are evicted after these, for others."""
        sharing: dict[str, QueuePair] = {}
        borrowing: dict[str, QueuePair] = {}
        by_share: dict[str, Amounts] = {}
        for other, amounts in units:
            pair = self.pair(other)
            if pair is None:
                continue
            giver = pair.giving[-1]
            if self._nobody_has_share(pair, amounts):
                borrowing[giver] = pair
            else:
                sharing[other] = pair
                by_share[giver] = by_share.get(giver, 0) + amounts
        for other, amounts in later if borrowing else ():
            if (pair := self.pair(other)) is not None:
                by_share[pair.giving[-1]] = by_share.get(pair.giving[-1], 0) + amounts
        for giver, pair in borrowing.items():
            # Those that are judged by shares may be evicted after the others.
            kept = by_share.get(giver, np.zeros_like(self.demand))
            if why := self._why_share_not_larger(pair, -kept, self.s.world.ledger.planned(pair.taking[-1])):
                return why
        levels = max((pair.taking for pair in sharing.values()), key=len, default=())
        return self._why_not_within(list(sharing.values()), {level: self.s.world.ledger.planned(level) for level in levels})

    def is_met_by(self, freed: Amounts) -> bool:
        """Is so much all that is lacking here?"""
        return bool((freed >= self.demand)[self.contested].all())

    def why_never_taking(self, other: str) -> str:
        """Why no plan with a victim of the other queue can be allowed, whoever else is evicted, too."""
        pair = self.pair(other)
        if pair is None:
            return ""
        planned = dict.fromkeys(pair.taking, self.demand)
        planned[pair.taking[0]] = self.s.world.ledger.planned(pair.taking[0]) - self.own_evictable + self.demand
        why = self._why_not_within([pair], planned)
        if not why:
            return ""
        never = self._why_not_within([pair], dict.fromkeys(pair.taking, self.demand))
        return never or (f"even without its pods of lower priority, {why}" if self.own_evictable.any() else why)

    def is_over_with_ask(self) -> bool:
        """Would the queue, or one above it, be over its share with the ask? Then its own pods may have to be evicted, too. Where it
        has no share of something contested, these count in its part of the cluster."""
        ledger, path = self.s.world.ledger, self.s.world.facts.tree.path(self.queue)
        shared = {at for level in path for share in self._shares_of(level) for at in share.contested}
        if self.own_evictable.any() and not shared.issuperset(self._contested):
            return True
        for level in path:
            usage = (ledger.planned(level) + self.demand).tolist()
            if any(self._over(usage, share) for share in self._shares_of(level)):
                return True
        return False

    def _over(self, usage: Sequence[int], share: _Share) -> list[int]:
        """The columns in which so much is over the share, of those that are asked for."""
        return [at for at, amount in share.amounts.items() if usage[at] > amount and self.demand[at] > 0]

    def _why_not_within(self, pairs: list[QueuePair], planned: dict[str, Amounts]) -> str:
        """`planned`: what the levels that take will use. On the way to each giver one of them must have a share of something
        contested: what evicting anybody elsewhere would not change."""
        by_share = [pair for pair in pairs if self._has_share(pair.giving) or self._has_share(pair.taking)]
        if not by_share:
            return ""
        if not all(self._has_share(pair.taking) for pair in by_share):
            return f"{show_queue(self.queue)} has no deserved share of what it lacks: borrowing evicts nobody"
        for level, amounts in planned.items():
            usage = amounts.tolist()
            for share in self._shares_of(level):
                if over := self._over(usage, share):
                    return self._why_over(level, usage, {at: share.amounts[at] for at in over})
        return ""

    def _why_over(self, level: str, usage: Sequence[int], over: dict[int, int]) -> str:
        names, demand = self.s.world.columns.names, self.demand.tolist()
        said, has_rest = [], any(usage[at] != demand[at] for at in over)
        for at in sorted(over, key=names.__getitem__):
            used = f" + {show_amount(names[at], usage[at] - demand[at])} used" if has_rest else ""
            asks, most = show_amount(names[at], demand[at]), show_amount(names[at], over[at])
            said.append(f"{short_name(names[at])} {asks} requested{used} > {most} {self._share_word(level)}")
        what = f"would be over its {self._share_name(level)}" if has_rest else "can never reclaim that much"
        return f"{show_queue(level)} {what}: {', '.join(said)}"

    # -- what both have ------------------------------------------------------------------------------------------------------------

    def usage_text(self, other: str) -> str:
        """What the other queue and this one use of their shares or, where neither has one, of the cluster."""
        pair = self.pair(other)
        if pair is None:
            return ""
        levels = [next((level for level in side if self._configured(level)), side[-1]) for side in (pair.giving, pair.taking)]
        if not any(self._configured(level) for level in levels):
            parts = [f"{show_queue(level)} uses {dominant_share(self.s, level):.0%} of the cluster" for level in levels]
        else:
            parts = [self._usage_of_share(level) for level in levels]
        return ", ".join(parts)

    def _usage_of_share(self, level: str) -> str:
        planned, configured = self.s.world.ledger.planned_list(level), self._configured(level)
        if configured:
            return f"{show_queue(level)} uses {self._figures(planned, configured[0].contested)} {self._share_word(level)}"
        names = self.s.world.columns.names
        # By name: the order of columns depends on who came first.
        found = sorted((names[at], planned[at]) for at in self._contested)
        parts = [f"{short_name(name)} {show_amount(name, amount)}" for name, amount in found]
        return f"{show_queue(level)} uses {', '.join(parts)} and deserves none"

    # -- the order of queues -----------------------------------------------------------------------------------------------------

    def rank_key(self, other: str) -> tuple[float, ...]:
        """Which queue gives first: the lowest priority; then those without a share, by their part of the cluster; then the one
        furthest over its share. Judged just below the common ancestor."""
        pair = self.pair(other)
        level = pair.giving[-1] if pair is not None else other
        priority = self.s.world.facts.tree.node(level).priority
        if level not in self.s.world.ledger:
            return (priority, 0.0, 0.0)
        usage = self.s.world.ledger.planned_list(level)
        found = [[usage[at] / amount for at, amount in share.contested.items() if amount > 0] for share in self._configured(level)]
        ratios = [max(each) for each in found if each]
        if ratios:
            return (priority, 1.0, -round(min(ratios), 9))
        total = cluster_total(self.s)
        parts = [usage[at] / int(total[at]) for at in self._contested if total[at] > 0]
        return (priority, 0.0, -round(max(parts, default=0.0), 9))
