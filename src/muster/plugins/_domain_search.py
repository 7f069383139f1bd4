"""The domains that one ask may go to, in the order in which they are worth trying, or why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.seats import SeatTable, seat_table
from muster.engine.explain import CAPACITY
from muster.engine.hooks import Ask, Domain
from muster.engine.session import Session
from muster.engine.slots import ROOM_FOR, Bounds, Figures, Ints, Room, RoomFigures, Spans, bounds, fitting
from muster.model.effects import Verdict
from muster.model.gang import Mode
from muster.model.pod import PROMISED, Pod
from muster.model.resources import PODS, Resources, show
from muster.model.topics import Topic
from muster.plugins._wishes import Wish
from muster.state.columns import Amounts
from muster.state.table import BoolColumn, RowIndex

NO_ROOM = "NoRoomInDomain"
NO_DOMAIN = "NoDomain"
APART = "MembersApart"

# So many levels of victims' priorities are told apart when domains are ordered by what it costs to enter them.
_LEVELS = 8

# Actions that evict in the asker's own queues only, and only whom has a lower priority.
_OWN_QUEUES_ONLY = ("preempt", "gang-preempt")


class DomainSearch:
    """`allowed`: the narrowest first, whether or not there is room."""

    def __init__(self, s: Session, ask: Ask, wish: Wish) -> None:
        self.s, self.ask, self.wish = s, ask, wish
        self.seated = seated_rows(s, ask)
        self.allowed = self._up_to(wish.highest if wish.hard else wish.tree.top_tier)

    def _up_to(self, highest: int) -> tuple[Domain, ...]:
        """Domains up to that tier that hold every member who is placed already, and that lie where the ask has to stay."""
        tree, within = self.wish.tree, self.ask.within
        found: tuple[Domain, ...] = tree.up_to(highest)
        if self.seated:
            found = tuple(domain for domain in tree.containing(self.seated) if (domain.tier or 0) <= highest)
        if within is None or within.rows is None:
            return found
        inside = np.zeros(len(self.s.world.table), dtype=np.int64)
        inside[within.rows] = 1
        spans = Spans(found)
        held = spans.sums(inside) == spans.sums(np.ones_like(inside))
        kept = tuple(domain for domain, fits in zip(found, held.tolist(), strict=True) if fits)
        # The soft wish of a cell ends where its gang has to stay.
        return kept if self.wish.hard or within in kept else (*kept, within)

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
        return self.allowed if keep.all() else tuple(self.allowed[at] for at in np.flatnonzero(keep).tolist())

    def _bounds(self, domains: Sequence[Domain], room: Room) -> Bounds:
        return bounds(self.s, self.ask, domains, RoomFigures(self.s, room))

    # -- what it costs to enter ------------------------------------------------------------------------------------------------

    def cheapest(self, count: int) -> tuple[Domain, ...] | Verdict:
        """Domains that the ask could enter if everybody left whom it may evict: fewest seats lacking, then the least important
        victims, then the narrowest."""
        found = self._bounds(self.allowed, Room.SOON)
        lacking = len(self.ask.pods) - found.most
        level = np.where(found.could, 0, _LEVELS + 1)
        for number, figures in enumerate(evicting(self.s, self.ask), start=1):
            found = bounds(self.s, self.ask, self.allowed, figures)
            level[found.could & (level > number)] = number
        enterable = np.flatnonzero(level <= _LEVELS)
        if not len(enterable):
            return self._no_room(found, evicting=True)
        order = enterable[np.lexsort((enterable, level[enterable], lacking[enterable]))]
        return tuple(self.allowed[at] for at in order[:count].tolist())

    # -- why not ---------------------------------------------------------------------------------------------------------------

    def apart(self) -> Verdict:
        """No domain is allowed at all: there is none, or the members that are placed share none."""
        tree, wish = self.wish.tree, self.wish
        if self.seated:
            common = tree.lowest_common(self.seated)
            where = common.name if common.rows is None else f"{common.title} of tier {common.tier}"
            why = f"its {_members(len(self.seated))} that have a node share no domain below {where} ({wish.limit})"
            return Verdict(ok=False, why=f"{why}{self._cure()}", code=APART, topics=CAPACITY)
        there = "there are no HyperNodes, and the policy names no tiers"
        there = there if tree.lowest is None else f"the lowest is {tree.show_tier(tree.lowest)}"
        inside = "" if self.ask.within is None else f" in {self.ask.within.title}"
        why = f"there is no domain of such a tier{inside} ({wish.limit}): {there}"
        return Verdict(ok=False, why=why, code=NO_DOMAIN, topics=(Topic.FREE_CAPACITY.any,))

    def _no_room(self, found: Bounds, *, evicting: bool = False) -> Verdict:
        """How far the domains are from enough, and what would be."""
        alone = self._bounds(self.allowed, Room.EMPTY)
        never = not self.seated and not alone.could.any()
        most = alone.most if never else found.most
        best = int(np.argmax(most))
        if self.seated:
            others = "its other member is" if len(self.seated) == 1 else f"its other {len(self.seated)} members are"
            why = f"{self.allowed[best].title}, where {others}, has room for {most[best]} of {len(self.ask.pods)} more"
        else:
            minimum = self.ask.minimum or self.ask.pods
            when = " even when empty" if never else " even with everybody gone whom it may evict" if evicting else ""
            why = f"no {self._noun()} has room for {_members(len(minimum))}{_each(minimum)}{when}"
            why += f": best of {len(self.allowed)} is {self.allowed[best].name} with room for {most[best]}"
        return Verdict(
            ok=False,
            why=f"{why} ({self.wish.limit}){self._cure()}",
            code=NO_DOMAIN if never else NO_ROOM,
            curable=not never and not evicting,
            topics=CAPACITY,
        )

    def _noun(self) -> str:
        tiers = sorted({domain.tier or 0 for domain in self.allowed if domain.tier} or {self.wish.highest})
        noun = self.wish.tree.noun(tiers[-1])
        return noun if len(tiers) == 1 else f"{noun} nor anything narrower"

    def _cure(self) -> str:
        """Which higher tier would do, and where."""
        tree = self.wish.tree
        wider = [domain for domain in self._up_to(tree.top_tier) if (domain.tier or 0) > self.wish.highest]
        if not wider or not self.ask.pods:
            return ""
        for room, when in ((ROOM_FOR[self.ask.purpose], ""), (Room.EMPTY, " when that is empty")):
            found = self._bounds(wider, room)
            enough = np.flatnonzero(found.could & (found.most == max(1, int(found.most.max()))))
            if len(enough):
                where = wider[int(enough[0])]
                tier = "" if where.rows is None else f" with tier {tree.show_tier(where.tier or 0)} allowed"
                return f"; it would find room{tier} in {where.title}{when}, for {found.most[enough[0]]}"
        return "; no higher tier could hold it either"


def seated_rows(s: Session, ask: Ask) -> list[int]:
    """The nodes of the gang's members, or of the cell's, that have one. Nodes that are gone hold nobody together."""
    world = s.world
    uids = [pod.uid for pod in ask.gang.pods()] if ask.cell is None else sorted(ask.cell.members)
    placed = [world.placements.by_uid[uid] for uid in uids if uid in world.placements.by_uid]
    rows = [world.table.row.get(placement.node or "") for placement in placed if placement.phase in PROMISED]
    return [row for row in rows if row is not None]


# -- with victims gone -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WithoutVictims:
    """The figures as they would be if some left. What a node refuses for its labels or taints it would refuse then, too."""

    s: Session
    amounts: Amounts

    def slots(self, pod: Pod) -> Ints:
        return np.where(self.s.columns(pod, soon=True).match, fitting(self.amounts, self.s.world.request(pod)), 0)

    def free(self) -> Amounts:
        return self.amounts


def evicting(s: Session, ask: Ask) -> Iterator[Figures]:
    """The figures with the victims of the lowest priorities gone, then with more and more of those whom the ask might evict."""
    seats = seat_table(s.world)
    at = np.flatnonzero(_evictable(ask, seats))
    priority = seats.gang_priority[seats.gang[at]]
    steps = np.unique(priority)
    if len(steps) > _LEVELS:
        steps = steps[np.linspace(0, len(steps) - 1, _LEVELS).round().astype(np.intp)]
    for step in steps.tolist():
        yield _WithoutVictims(s, _free_without(s, seats, at[priority <= step]))


def _evictable(ask: Ask, seats: SeatTable) -> BoolColumn:
    """Seats that might be taken: of lower priority in the asker's own queues, or in others where the action looks there."""
    size, gangs = len(seats.pods), len(seats.gangs)
    queues = {role.queue for role in ask.gang.roles}
    numbers = [seats.queue_number[queue] for queue in sorted(queues) if queue in seats.queue_number]
    own: BoolColumn = np.isin(seats.gang_queue[:gangs], numbers)
    for number, theirs in seats.mixed.items():
        own[number] = bool(queues & theirs)
    lower = seats.gang_priority[:gangs] < ask.gang.priority
    eligible = (own & lower) if ask.action in _OWN_QUEUES_ONLY else (~own | lower)
    eligible[seats.gang_number[ask.gang.key]] = False
    found: BoolColumn = seats.alive[:size] & ~seats.bars[:size] & (seats.row[:size] >= 0)
    found[found] = eligible[seats.gang[:size][found]]
    return found


def _free_without(s: Session, seats: SeatTable, at: RowIndex) -> Amounts:
    free = s.world.table.allocatable - s.world.table.taken
    np.add.at(free, seats.row[at], seats.request[at])
    return free


# -- words -------------------------------------------------------------------------------------------------------------------------


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _each(pods: Sequence[Pod]) -> str:
    """What each of them asks for, where that is the same for all."""
    requests = {pod.kind.request for pod in pods}
    if len(requests) != 1:
        return ""
    shown = Resources(tuple((name, amount) for name, amount in requests.pop().items if name != PODS))
    return f" ({show(shown)} each)" if shown else ""
