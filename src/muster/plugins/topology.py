"""Gangs stay together: which domains a gang or one of its cells may go to, and which of them is best.

A hard wish is kept: one domain at or below the highest tier allowed. A soft one is tried tier by tier, up to the whole cluster.
Members that come later go where the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from muster.engine.evict.seats import seat_table
from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session
from muster.engine.slots import ROOM_FOR, Bounds, Ints, Room, Spans, bounds, fitting, lots, slots
from muster.model.effects import Condition, Verdict
from muster.model.gang import Mode
from muster.model.pod import PROMISED, Pod
from muster.model.resources import PODS, Resources, show
from muster.model.topology import TopologyAsk
from muster.plugins._filled import DEFAULT_WEIGHTS
from muster.plugins._options import option
from muster.state.domains import Domain, DomainTree, domain_tree, label_tree, node_tree
from muster.state.store import HOLDS, ROOM
from muster.state.table import BoolColumn, FloatColumn

NO_ROOM = "NoRoomInDomain"
NO_DOMAIN = "NoDomain"
UNKNOWN_TIER = "UnknownTier"
APART = "MembersApart"
BAD_DOMAIN = "BadDomain"

# Koordinator's names for the tiers that every tree has.
_NODE_NAMES = ("node", "NodeTopologyLayer")
_CLUSTER_NAMES = ("cluster", "ClusterTopologyLayer")

# So many levels of victims' priorities are told apart when domains are ordered by what it costs to enter them.
_LEVELS = 8


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is asked for, in terms of a tree: nothing above the tier `highest`, if `hard`."""

    tree: DomainTree
    highest: int
    hard: bool

    @property
    def limit(self) -> str:
        return f"highest tier allowed: {self.tree.show_tier(self.highest)}"


@dataclass(frozen=True)
class Topology:
    """Keep the members of a gang close to each other, by HyperNodes or by labels of nodes.

    A hard wish puts the whole gang (or role, or sub-group) into one domain at or below the highest tier allowed; a soft one prefers
    the narrowest domain in which all find room. Of equal domains the fuller is better.
    """

    weight: float = option(1.0, "How much this score of domains counts beside the others.", least=0)
    tiers: Mapping[str, str] = option(
        dict[str, str], "Tiers made of node labels, for nodes in no HyperNode: the name of each and its label, the lowest first."
    )
    resources: Mapping[str, float] = option(
        lambda: dict(DEFAULT_WEIGHTS), "How much each resource counts in how full a domain is.", least=0, resources=True
    )
    evict_domains: int = option(8, "In so many domains victims are looked for at most, the cheapest to enter first.", least=1)
    name: str = "topology"

    # -- problems --------------------------------------------------------------------------------------------------------------

    def prepare(self, s: Session) -> None:
        """Tell the owners of HyperNodes what is wrong with them, or no longer wrong, where that changed."""
        told = s.world.domain_conditions
        if not s.world.domains and not told:
            return
        problems = self._tree(s).problems
        for name in [name for name in told if name not in problems]:
            del told[name]
            if name in s.world.domains:
                s.extra.append(Condition("domain", name, True, "Usable", "all of it is used"))
        for name in sorted(problems):
            why = "; ".join(f"{problem.field}: {problem.text}" for problem in problems[name])
            now = Condition("domain", name, False, BAD_DOMAIN, why)
            if told.get(name) != now:
                s.extra.append(now)
            told[name] = now

    # -- where -----------------------------------------------------------------------------------------------------------------

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None:
        wish = self._wish(s, ask)
        if wish is None or isinstance(wish, Verdict):
            return wish
        search = _Search(s, ask, wish)
        if not search.allowed:
            return search.apart()
        if not ask.pods:
            return search.allowed
        return search.cheapest(self.evict_domains) if ask.purpose is Purpose.EVICT else search.roomy()

    def fill_order(self, s: Session, ask: Ask, domain: Domain) -> Sequence[Domain]:
        """Parts with members of the gang first; then as few parts as can be: the largest, until one takes all that are left."""
        wish = self._wish(s, ask)
        if wish is None or isinstance(wish, Verdict):
            return ()
        parts = [part for part in wish.tree.parts_of(domain) if part.tier]
        if len(parts) < 2:
            return ()
        room = ROOM_FOR[ask.purpose]
        most = bounds(s, ask, parts, lambda pod: slots(s, pod, room)).most
        here = np.zeros(len(s.world.table), dtype=np.int64)
        np.add.at(here, np.array(_seated_rows(s, ask), dtype=np.intp), 1)
        return [parts[at] for at in _fewest(len(ask.pods), most, Spans(parts).sums(here))]

    def _tree(self, s: Session) -> DomainTree:
        return domain_tree(s.world, tuple(self.tiers.items()))

    def _wish(self, s: Session, ask: Ask) -> _Wish | Verdict | None:
        written = ask.gang.topology if ask.cell is None else ask.cell.topology
        if written is None:
            return None
        tree = self._tree(s)
        if written.highest_tier_name:
            return self._named(s, tree, written)
        if written.highest_tier is None:
            return _Wish(tree, tree.top_tier - 1, written.hard)
        if written.highest_tier == 0 and not any(domain.tier == 0 and domain.tier_name for domain in tree.domains):
            return _Wish(node_tree(s.world), 0, written.hard)
        return _Wish(tree, written.highest_tier, written.hard)

    def _named(self, s: Session, tree: DomainTree, written: TopologyAsk) -> _Wish | Verdict:
        """A tier by its name, or by the label of nodes that makes it."""
        name = written.highest_tier_name
        if name in tree.tier_numbers:
            return _Wish(tree, tree.tier_numbers[name], written.hard)
        if name in _NODE_NAMES:
            return _Wish(node_tree(s.world), 0, written.hard)
        if name in _CLUSTER_NAMES or not written.hard:
            return _Wish(tree, tree.top_tier, written.hard)
        by_label = label_tree(s.world, name)
        if by_label is not None:
            return _Wish(by_label, 1, written.hard)
        known = [*tree.tier_numbers, _NODE_NAMES[0]]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        why = f"no tier and no node label is called {name!r}; {hint}"
        return Verdict(ok=False, why=why, code=UNKNOWN_TIER, wakes=(ROOM,))

    # -- which is best ---------------------------------------------------------------------------------------------------------

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float:
        return float(self._scores(s, ask, (domain,), placed=True)[0])

    def score_domains(self, s: Session, ask: Ask, domains: Sequence[Domain]) -> FloatColumn:
        return self._scores(s, ask, domains, placed=False)

    def _scores(self, s: Session, ask: Ask, domains: Sequence[Domain], *, placed: bool) -> FloatColumn:
        """A lower tier is always better; in one tier the fuller domain. `placed`: the ask is in the figures already."""
        tree = self._tree(s)
        rank = {tier: at for at, tier in enumerate((0, *(tier for tier in tree.tiers if tier), tree.top_tier))}
        tier = np.array([rank.get(tree.top_tier if d.tier is None else d.tier, len(rank) - 1) for d in domains], dtype=np.float64)
        return (len(rank) - 1 - tier + self._fullness(s, ask, domains, placed=placed)) / len(rank)

    def _fullness(self, s: Session, ask: Ask, domains: Sequence[Domain], *, placed: bool) -> FloatColumn:
        """The weighted mean, over what the ask asks for, of how full each domain is with the ask in it."""
        table, position = s.world.table, s.world.columns.position
        need = np.zeros(len(position), dtype=np.int64)
        for lot in lots(s.world, ask.pods):
            need += s.world.request(lot.pod) * lot.count
        weighed = [(position[name], weight) for name, weight in self.resources.items() if weight and name in position]
        weighed = [(column, weight) for column, weight in weighed if need[column]]
        total = np.zeros(len(domains), dtype=np.float64)
        if not weighed:
            return total
        columns = np.array([column for column, _ in weighed], dtype=np.intp)
        spans = Spans(domains)
        taken = spans.sums(table.taken[:, columns]) + (0 if placed else need[columns])
        shares = np.minimum(taken / np.maximum(spans.sums(table.allocatable[:, columns]), 1), 1.0)
        for at, (_, weight) in enumerate(weighed):
            total += weight * shares[:, at]
        return total / sum(weight for _, weight in weighed)


class _Search:
    """The domains that one ask may go to, and why there are none."""

    def __init__(self, s: Session, ask: Ask, wish: _Wish) -> None:
        self.s, self.ask, self.wish = s, ask, wish
        self.seated = _seated_rows(s, ask)
        self.allowed = self._up_to(wish.highest if wish.hard else wish.tree.top_tier)

    def _up_to(self, highest: int) -> tuple[Domain, ...]:
        """Domains up to that tier that hold every member who is placed already, and that lie where the ask has to stay."""
        tree, within = self.wish.tree, self.ask.within
        found = tree.containing(self.seated) if self.seated else tree.up_to(highest)
        found = tuple(domain for domain in found if (domain.tier or 0) <= highest) if self.seated else found
        if within is None or within.rows is None:
            return tuple(found)
        inside = np.zeros(len(self.s.world.table), dtype=np.int64)
        inside[within.rows] = 1
        spans = Spans(found)
        held = spans.sums(inside) == spans.sums(np.ones_like(inside))
        kept = [domain for domain, fits in zip(found, held.tolist(), strict=True) if fits]
        # The soft wish of a cell ends where its gang has to stay.
        return (*kept, within) if not self.wish.hard and within not in kept else tuple(kept)

    # -- room ------------------------------------------------------------------------------------------------------------------

    def roomy(self) -> tuple[Domain, ...] | Verdict:
        """All domains that could take what the gang needs, the narrowest first."""
        found = self._bounds(self.allowed, ROOM_FOR[self.ask.purpose])
        keep: BoolColumn = found.could & (found.most > 0)
        if self.ask.gang.mode is Mode.NON_STRICT:
            # It gathers what it gets, but only where all of it will have room one day.
            keep = self._bounds(self.allowed, Room.EMPTY).could & (found.most > 0)
        if not self.wish.hard:
            keep[-1] = True
        if not keep.any():
            return self._no_room(found)
        return self._kept(keep)

    def _kept(self, keep: BoolColumn) -> tuple[Domain, ...]:
        return self.allowed if keep.all() else tuple(self.allowed[at] for at in np.flatnonzero(keep).tolist())

    def _bounds(self, domains: Sequence[Domain], room: Room) -> Bounds:
        return bounds(self.s, self.ask, domains, lambda pod: slots(self.s, pod, room))

    # -- what it costs to enter ------------------------------------------------------------------------------------------------

    def cheapest(self, count: int) -> tuple[Domain, ...] | Verdict:
        """Domains that the ask could enter if everybody left whom it may evict: fewest seats lacking, then the least important
        victims, then the narrowest."""
        soon = self._bounds(self.allowed, Room.SOON)
        lacking = len(self.ask.pods) - soon.most
        level = np.full(len(self.allowed), _LEVELS + 1, dtype=np.int64)
        level[soon.could] = 0
        evicted = soon
        for number, column in enumerate(self._evicting(), start=1):
            evicted = bounds(self.s, self.ask, self.allowed, column)
            level[evicted.could & (level > number)] = number
        enterable = np.flatnonzero(level <= _LEVELS)
        if not len(enterable):
            return self._no_room(evicted, evicting=True)
        order = enterable[np.lexsort((enterable, level[enterable], lacking[enterable]))]
        return tuple(self.allowed[at] for at in order[:count].tolist())

    def _evicting(self) -> list[Callable[[Pod], Ints]]:
        """How many pods each node could take with the victims of the lowest priorities gone, then of more and more."""
        s = self.s
        seats = seat_table(s.world)
        at = np.flatnonzero(self._evictable())
        if not len(at):
            return []
        priority = seats.gang_priority[seats.gang[at]]
        steps = np.unique(priority)
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, _LEVELS).round().astype(np.intp))]
        return [self._without(at[priority <= step]) for step in steps.tolist()]

    def _evictable(self) -> BoolColumn:
        """Seats that might be taken: of lower priority in the asker's own queues, or in others where the action looks there."""
        seats, gang = seat_table(self.s.world), self.ask.gang
        size = len(seats.pods)
        number = seats.gang[:size]
        queues = {role.queue for role in gang.roles}
        own = np.array([bool({role.queue for role in each.roles} & queues) for each in seats.gangs], dtype=np.bool_)
        lower = seats.gang_priority[: len(seats.gangs)] < gang.priority
        eligible = (own & lower) if self.ask.action in ("preempt", "gang-preempt") else (~own | lower)
        eligible[seats.gang_number[gang.key]] = False
        found: BoolColumn = seats.alive[:size] & ~seats.bars[:size] & (seats.row[:size] >= 0)
        found[found] = eligible[number[found]]
        return found

    def _without(self, at: Ints) -> Callable[[Pod], Ints]:
        s, seats = self.s, seat_table(self.s.world)
        free = s.world.table.allocatable - s.world.table.taken
        np.add.at(free, seats.row[at], seats.request[at])

        def column(pod: Pod) -> Ints:
            return np.where(s.columns(pod, soon=True).match, fitting(free, s.world.request(pod)), 0)

        return column

    # -- why not ---------------------------------------------------------------------------------------------------------------

    def apart(self) -> Verdict:
        """No domain is allowed at all: there is none, or the members that are placed share none."""
        tree, wish = self.wish.tree, self.wish
        if self.seated:
            common = tree.lowest_common(self.seated)
            where = common.name if common.rows is None else f"{common.title} of tier {common.tier}"
            why = f"its {_members(len(self.seated))} that have a node share no domain below {where} ({wish.limit})"
            return Verdict(ok=False, why=f"{why}{self._cure()}", code=APART, wakes=(ROOM, HOLDS))
        lowest = next((tier for tier in tree.tiers if tier), None)
        there = "there are no HyperNodes, and the policy names no tiers"
        there = there if lowest is None else f"the lowest is {tree.show_tier(lowest)}"
        inside = "" if self.ask.within is None else f" in {self.ask.within.title}"
        why = f"there is no domain of such a tier{inside} ({wish.limit}): {there}"
        return Verdict(ok=False, why=why, code=NO_DOMAIN, wakes=(ROOM,))

    def _no_room(self, found: Bounds, *, evicting: bool = False) -> Verdict:
        """How far the domains are from enough, and what would be."""
        minimum = self.ask.minimum or self.ask.pods
        alone = self._bounds(self.allowed, Room.EMPTY)
        never = not self.seated and not alone.could.any()
        most = alone.most if never else found.most
        best = int(np.argmax(most))
        nearest = self.allowed[best]
        want = f"{_members(len(minimum))}{_each(minimum)}"
        if self.seated:
            others = "its other member is" if len(self.seated) == 1 else f"its other {len(self.seated)} members are"
            why = f"{nearest.title}, where {others}, has room for {most[best]} of {len(self.ask.pods)} more"
        else:
            when = " even when empty" if never else " even with everybody gone whom it may evict" if evicting else ""
            why = f"no {self._noun()} has room for {want}{when}"
            why += f": best of {len(self.allowed)} is {nearest.name} with room for {most[best]}"
        return Verdict(
            ok=False,
            why=f"{why} ({self.wish.limit}){self._cure()}",
            code=NO_DOMAIN if never else NO_ROOM,
            curable=not never and not evicting,
            wakes=(ROOM, HOLDS),
        )

    def _noun(self) -> str:
        tiers = sorted({domain.tier or 0 for domain in self.allowed if domain.tier} or {self.wish.highest})
        noun = self.wish.tree.noun(tiers[-1])
        return noun if len(tiers) == 1 else f"{noun} nor anything narrower"

    def _cure(self) -> str:
        """Which higher tier would do, and where."""
        tree = self.wish.tree
        wider = [domain for domain in self._up_to(tree.top_tier) if (domain.tier or 0) > self.wish.highest]
        if not wider:
            return ""
        found = self._bounds(wider, ROOM_FOR[self.ask.purpose])
        enough = np.flatnonzero(found.could & (found.most == max(1, int(found.most.max()))))
        if not len(enough):
            return "; no higher tier has room for it either"
        where = wider[int(enough[0])]
        tier = "" if where.rows is None else f" with tier {tree.show_tier(where.tier or 0)} allowed"
        return f"; it would find room{tier} in {where.title}, for {found.most[enough[0]]}"


def _seated_rows(s: Session, ask: Ask) -> list[int]:
    """The nodes of the gang's members, or of the cell's, that have one. Nodes that are gone hold nobody together."""
    world = s.world
    uids = [pod.uid for pod in ask.gang.pods()] if ask.cell is None else sorted(ask.cell.members)
    placed = [world.placements[uid] for uid in uids if uid in world.placements]
    rows = [world.table.row.get(placement.node or "") for placement in placed if placement.phase in PROMISED]
    return [row for row in rows if row is not None]


def _fewest(wanted: int, most: Ints, members: Ints) -> list[int]:
    """The order in which parts are filled, by how many more each could take and how many members are there already."""
    order = np.lexsort((np.arange(len(most)), -most, -members)).tolist()
    left = wanted
    chosen: list[int] = []
    while order and left > 0:
        at = order[0]
        if not members[at]:
            enough = [part for part in order if most[part] >= left]
            at = min(enough, key=lambda part: (most[part], part)) if enough else at
        order.remove(at)
        chosen.append(at)
        left -= int(most[at])
    return [at for at in (*chosen, *order) if most[at] > 0]


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _each(pods: Sequence[Pod]) -> str:
    """What each of them asks for, where that is the same for all."""
    requests = {pod.kind.request for pod in pods}
    if len(requests) != 1:
        return ""
    shown = Resources(tuple((name, amount) for name, amount in requests.pop().items if name != PODS))
    return f" ({show(shown)} each)" if shown else ""
