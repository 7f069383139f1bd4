"""Who may give: units of other queues, judged one after the other on the ledger before each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.oracles.guarantees import counted_guarantee
from tests.oracles.plain_amounts import Amounts, shared_request_of, total
from tests.oracles.plan_units import Unit
from tests.oracles.queue_amounts import (
    Ledger,
    ShareTable,
    below_common_ancestor,
    charge,
    cluster_total,
    configured,
    dominant_share,
    highest_share,
    is_over,
    ledger_of,
)
from tests.oracles.snapshot import Snapshot

from muster.model.queue import show_queue

MOST_UNITS_IN_ANY_ORDER = 12


@dataclass(frozen=True, slots=True)
class Taker:
    """Members of the asker that are charged to one queue, and what is contested for them."""

    queue: str
    ask: Amounts
    contested: frozenset[str]
    lacks: bool = True
    """Whether these members find no capacity by themselves. Where all do, all lack something."""


@dataclass(slots=True)
class Giving:
    """The rules of giving for one plan. `may_cross`: the last unit of a queue may bring it below its share."""

    s: Snapshot
    takers: Sequence[Taker]
    tables: Sequence[ShareTable]
    finished: Ledger
    """The ledger with the ask and without all that the plan evicts."""
    may_cross: bool
    by_priority: bool
    """A job of a quota: among those who only borrow priority decides, and nobody within its share gives."""
    priority: int
    """The asker's: within its own queue it takes what has a lower one."""
    given_to: Mapping[Unit, str] = field(default_factory=dict)
    """For which taker a unit is taken, by its queue; any of them if it is not here."""
    start: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.start = ledger_of(self.s)

    def why_not(self, unit: Unit, taken: Iterable[Unit]) -> str:
        """Why the unit may not be taken after these, or nothing. One of the takers must be allowed to take it."""
        before = charge(self.s, self.start, [uid for other in taken for uid in other.pods], sign=-1)
        queue = self.given_to.get(unit)
        reasons = [self._why_not_from(unit, taker, before) for taker in self.takers if queue in (None, taker.queue)]
        return "" if "" in reasons else next(iter(reasons), "nobody asks for anything")

    def _why_not_from(self, unit: Unit, taker: Taker, before: Ledger) -> str:
        """A unit that spans queues is taken only if each of them may give."""
        freed = freed_by_queue(self.s, unit)
        after = charge(self.s, before, unit.pods, sign=-1)
        for queue, amounts in sorted(freed.items()):
            if queue == taker.queue:
                if unit.priority >= self.priority:
                    return f"it is in the asker's own queue and has priority {unit.priority} against {self.priority}"
                continue
            theirs, ours = below_common_ancestor(self.s, queue, taker.queue)
            why = self._why_not_queue(theirs, ours, taker, before, after, amounts, unit.priority)
            if why:
                return why
        return ""

    def _why_not_queue(
        self, theirs: list[str], ours: list[str], taker: Taker, before: Ledger, after: Ledger, freed: Amounts, priority: int
    ) -> str:
        for level in theirs:
            why = self.why_protected(level, after, freed)
            if why:
                return why
        if not set(freed) & taker.contested:
            return f"it frees nothing of {_names(taker.contested)}"
        if not self.by_priority and nobody_has_share(self.tables, theirs, ours, taker, freed):
            if priority > self.priority and theirs and self._took_by_priority(theirs):
                return f"{show_queue(theirs[0])} only borrows, and its unit has the higher priority"
            below = [level for level in theirs if not self.may_cross and self.crossed(level, after)]
            return f"{show_queue(below[0])} falls below its share" if below else self._why_not_larger(theirs, ours, after)
        for level in theirs:
            why = self._why_not_over(level, taker, before, after, freed)
            if why and level == theirs[-1] and self._is_oversubscribed(level, taker):
                why = self._why_not_more_of_its_share(level, ours, taker, after)
            if why:
                return why
        return ""

    def _took_by_priority(self, theirs: list[str]) -> bool:
        """Could the queue have taken what it borrows from the asker's by priority?"""
        if theirs[0].startswith("quota/"):
            return True
        own = self.s.queues[theirs[0]].preempt_within_parent if theirs[0] in self.s.queues else ""
        return len(theirs) == 1 and (own == "LowerPriority" if own else self.s.rules.within_parent)

    def why_protected(self, level: str, after: Ledger, freed: Amounts) -> str:
        queue = self.s.queues.get(level)
        if queue is None:
            return ""
        if not queue.reclaimable:
            return f"{show_queue(level)} is not reclaimable"
        for name, _ in queue.guarantee.items:
            if freed.get(name) and after.get(level, {}).get(name, 0) < counted_guarantee(self.s, level, name):
                return f"{show_queue(level)} falls below its guarantee of {name}"
        return ""

    def _why_not_over(self, level: str, taker: Taker, before: Ledger, after: Ledger, freed: Amounts) -> str:
        judged = configured(self.tables, level) & taker.contested
        if not judged:
            # It has only borrowed in what is contested; where nobody may cross, it keeps its share of everything else, too.
            below = not self.may_cross and self.crossed(level, after)
            return f"{show_queue(level)} falls below its share of what is not contested" if below else ""
        if not any(freed.get(name) and is_over(self.tables, before, level, name) for name in judged):
            used = ", ".join(f"{name} {before.get(level, {}).get(name, 0)}" for name in sorted(judged))
            return f"{show_queue(level)} is not over its share of {_names(judged)} that the unit frees (it uses {used})"
        if self.crossed(level, before):
            return f"{show_queue(level)} was brought below its share by the unit before"
        if not self.may_cross and self.crossed(level, after):
            return f"{show_queue(level)} falls below its share"
        return ""

    def crossed(self, level: str, ledger: Ledger) -> bool:
        """Whether the level was at or above its share in a dimension at the start and is below it in this ledger."""
        for name in configured(self.tables, level):
            share = highest_share(self.tables, level, name)
            if share is not None and self.start.get(level, {}).get(name, 0) >= share > ledger.get(level, {}).get(name, 0):
                return True
        return False

    def _why_not_larger(self, theirs: list[str], ours: list[str], after: Ledger) -> str:
        """Nobody has a share: the giver's dominant share stays at least the taker's."""
        if not theirs or not ours:
            return "one of the queues lies above the other"
        giver, taker = dominant_share(self.s, after, theirs[-1]), dominant_share(self.s, self.finished, ours[-1])
        if giver >= taker:
            return ""
        sizes = f"{float(giver):.3f} against {float(taker):.3f}"
        return f"{show_queue(theirs[-1])} then has a smaller share of the cluster than {show_queue(ours[-1])} ({sizes})"

    def _is_oversubscribed(self, level: str, taker: Taker) -> bool:
        """Whether the shares of the siblings add up to more than there is for them: their parent's share, or the cluster."""
        parent = self.s.parents.get(level, "")
        siblings = [queue for queue in self.s.queues if self.s.parents.get(queue, "") == parent]
        there = cluster_total(self.s)
        for table in self.tables:
            for name in taker.contested:
                most = min(there.get(name, 0), table.get(parent, {}).get(name, there.get(name, 0)))
                if sum(table.get(queue, {}).get(name, 0) for queue in siblings) > most:
                    return True
        return False

    def _why_not_more_of_its_share(self, giving: str, ours: list[str], taker: Taker, after: Ledger) -> str:
        """By use against share: the giver's stays at least the taker's, who must have a share to be measured so."""
        if not ours:
            return "one of the queues lies above the other"
        if not self.may_cross and self.crossed(giving, after):
            return f"{show_queue(giving)} falls below its share"
        giver = use_of_share(self.tables, after, giving, taker.contested)
        mine = use_of_share(self.tables, self.finished, ours[-1], taker.contested)
        if giver is not None and mine is not None and giver >= mine:
            return ""
        return f"{show_queue(giving)} then has a smaller part of its share than {show_queue(ours[-1])}"


def nobody_has_share(
    tables: Sequence[ShareTable], theirs: Sequence[str], ours: Sequence[str], taker: Taker, freed: Amounts
) -> bool:
    """The giving side has a share of nothing contested, the taking side of nothing contested that is freed."""
    if any(configured(tables, level) & taker.contested for level in theirs):
        return False
    return not any(configured(tables, level) & taker.contested & set(freed) for level in ours)


def use_of_share(tables: Sequence[ShareTable], ledger: Ledger, queue: str, names: Iterable[str]) -> float | Fraction | None:
    """The largest part of its share of these that the queue uses; None where it has none. Of a share of nothing any use is over."""
    parts: list[float | Fraction] = []
    for name in names:
        used = ledger.get(queue, {}).get(name, 0)
        for share in (table[queue][name] for table in tables if name in table.get(queue, {})):
            parts.append(Fraction(used, share) if share else (math.inf if used > 0 else 0.0))
    return max(parts, default=None)


def freed_by_queue(s: Snapshot, unit: Unit) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for uid in unit.pods:
        queue = s.queue_of(uid)
        found[queue] = total((found.get(queue, {}), shared_request_of(s.pods[uid])))
    return found


def order_of_giving(giving: Giving, units: Sequence[Unit]) -> tuple[list[Unit], Mapping[Unit, str]]:
    """An order in which each unit may be taken when its turn comes, or as far as one gets, and why the others may not."""
    if len(units) <= MOST_UNITS_IN_ANY_ORDER:
        found = _search(giving, list(units), [], set())
        if found is not None:
            return found, {}
    taken: list[Unit] = []
    left = list(units)
    while left:
        able = [unit for unit in left if not giving.why_not(unit, taken)]
        if not able:
            break
        chosen = min(able, key=lambda unit: _crosses(giving, unit, taken))
        taken.append(chosen)
        left.remove(chosen)
    return taken, {unit: giving.why_not(unit, taken) for unit in left}


def _crosses(giving: Giving, unit: Unit, taken: Sequence[Unit]) -> bool:
    after = charge(giving.s, giving.start, [uid for other in (*taken, unit) for uid in other.pods], sign=-1)
    return any(giving.crossed(level, after) for uid in unit.pods for level in giving.s.path(giving.s.queue_of(uid)))


def _search(giving: Giving, left: list[Unit], taken: list[Unit], dead: set[frozenset[Unit]]) -> list[Unit] | None:
    if not left:
        return taken
    if frozenset(left) in dead:
        return None
    for unit in left:
        if not giving.why_not(unit, taken):
            found = _search(giving, [other for other in left if other is not unit], [*taken, unit], dead)
            if found is not None:
                return found
    dead.add(frozenset(left))
    return None


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
