"""Subgroups: parts of a gang with a minimum and topology of their own, parts of these, and so on. Which of them are complete, and
which members would complete them. How they come to be is in `declared_subgroups`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from muster.model.gang import Gang, Subgroup
from muster.model.pod import PLACED_OR_NOMINATED, Phase
from muster.state.world import World

CountsMember = Callable[[str], bool]
"""Does the member with this UID count?"""
Pool = Mapping[str, int]
"""UIDs of members that could be added, and their place in the order in which they are placed."""

_MOST_WAYS = 8
"""Of a subgroup's subgroups so many ways to complete it are looked at."""


def all_subgroups(group: Gang | Subgroup) -> Iterator[Subgroup]:
    """Of all levels; each before its own."""
    for subgroup in group.subgroups:
        yield subgroup
        yield from all_subgroups(subgroup)


# -- which are complete ------------------------------------------------------------------------------------------------------------


def is_complete(subgroup: Subgroup, counts: CountsMember) -> bool:
    """Has it its own minimum, and enough complete subgroups, with the members that count and those that succeeded?"""
    return subgroup.succeeded + sum(map(counts, subgroup.members)) >= subgroup.min and has_subgroups(subgroup, counts)


def has_subgroups(group: Gang | Subgroup, counts: CountsMember) -> bool:
    """Are as many of its subgroups complete as it needs?"""
    return not group.min_subgroups or sum(is_complete(each, counts) for each in group.subgroups) >= group.min_subgroups


def in_phases(world: World, phases: Collection[Phase] = PLACED_OR_NOMINATED) -> CountsMember:
    """Members in one of these phases count."""
    placements, wanted = world.placements.by_uid, frozenset(phases)
    return lambda uid: (found := placements.get(uid)) is not None and found.phase in wanted


def placed_in_subgroup(world: World, subgroup: Subgroup, phases: Collection[Phase] = PLACED_OR_NOMINATED) -> int:
    """Members of the subgroup in these phases, or already succeeded."""
    return subgroup.succeeded + sum(map(in_phases(world, phases), subgroup.members))


def lowest_incomplete(group: Gang | Subgroup, counts: CountsMember) -> Gang | Subgroup:
    """Of a group that lacks complete subgroups: the first in it, or in a subgroup of it, that lacks them for want of members."""
    for subgroup in group.subgroups:
        if not is_complete(subgroup, counts) and not has_subgroups(subgroup, counts):
            return lowest_incomplete(subgroup, counts)
    return group


# -- what would complete them ------------------------------------------------------------------------------------------------------


def ways_to_complete(subgroup: Subgroup, counts: CountsMember, pool: Pool) -> Iterator[tuple[str, ...]]:
    """The members that would complete it, as few as can be; then other choices among its subgroups. None where there are too
    few."""
    for added in ways_to_have_subgroups(subgroup, counts, pool):
        short = subgroup.min - subgroup.succeeded - sum(map(counts, subgroup.members)) - len(added)
        grown = with_more(subgroup, counts, pool, added, short=short)
        if grown is not None:
            yield grown


def ways_to_have_subgroups(group: Gang | Subgroup, counts: CountsMember, pool: Pool) -> Iterator[tuple[str, ...]]:
    """The members with which as many of its subgroups are complete as it needs, as few as can be; then other choices."""
    incomplete = [each for each in group.subgroups if not is_complete(each, counts)] if group.min_subgroups else []
    missing = group.min_subgroups - (len(group.subgroups) - len(incomplete))
    if missing <= 0:
        yield ()
        return
    ways = [list(islice(ways_to_complete(each, counts, pool), _MOST_WAYS)) for each in incomplete]
    able = sorted((way for way in ways if way), key=lambda way: len(way[0]))
    if missing > len(able):
        # Anybody may write any number; `combinations` would take memory for it.
        return
    for some in combinations(able, missing):
        for chosen in product(*some):
            yield tuple(uid for one in chosen for uid in one)


def with_more(
    group: Gang | Subgroup,
    counts: CountsMember,
    pool: Pool,
    added: tuple[str, ...],
    *,
    short: int,
    among: Collection[str] | None = None,
) -> tuple[str, ...] | None:
    """These and so many more members (of those `among` which they must be), none of them in a subgroup that stays incomplete: those
    first that need no other subgroup. None where there are too few."""
    found = dict.fromkeys(added)
    wanted = pool.keys() if among is None else among
    while short > 0:
        now = _or_in(counts, found)
        singles, closed = _closed(group, now, pool)
        more = [uid for uid in singles if uid in wanted][:short] or _cheapest(closed, now, pool, wanted)
        if not more:
            return None
        short -= sum(uid in wanted for uid in more)
        found.update(dict.fromkeys(more))
    return tuple(found)


def _or_in(counts: CountsMember, found: Collection[str]) -> CountsMember:
    return lambda uid: uid in found or counts(uid)


def _cheapest(subgroups: Collection[Subgroup], counts: CountsMember, pool: Pool, wanted: Collection[str]) -> Sequence[str]:
    """The fewest members that complete one of these subgroups and of which one is wanted."""
    ways = [next(ways_to_complete(subgroup, counts, pool), ()) for subgroup in subgroups]
    return min((way for way in ways if any(uid in wanted for uid in way)), key=len, default=())


def _closed(group: Gang | Subgroup, counts: CountsMember, pool: Pool) -> tuple[list[str], list[Subgroup]]:
    """Members of the pool that may be added one by one, in their order, and the subgroups that must be completed first."""
    closed = list(_incomplete(group, counts))
    members = pool.keys() if isinstance(group, Gang) else pool.keys() & group.members
    inside = frozenset().union(*(subgroup.members for subgroup in closed))
    return sorted((uid for uid in members if uid not in inside and not counts(uid)), key=pool.__getitem__), closed


def _incomplete(group: Gang | Subgroup, counts: CountsMember) -> Iterator[Subgroup]:
    """Incomplete subgroups of a group and of its complete ones."""
    for subgroup in group.subgroups:
        if is_complete(subgroup, counts):
            yield from _incomplete(subgroup, counts)
        else:
            yield subgroup
