"""Laws of single pods: in one place, and told once."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Bind, Evict
from muster.model.pod import Phase
from muster.scenario.laws.case import Case


def no_pod_twice(case: Case) -> Iterator[str]:
    """A pod has one placement, stands on that node and no other, and every index says so."""
    world = case.world
    stands: dict[str, list[str]] = {}
    for node, here in world.placements.on_node.items():
        for uid in here:
            stands.setdefault(uid, []).append(node)
    for uid, placement in world.placements.by_uid.items():
        if uid not in world.facts.pods:
            yield f"{uid} is placed on {placement.node}, and is no live pod"
        if stands.get(uid) != [placement.node]:
            yield f"{uid} is placed on {placement.node}, and stands on {', '.join(stands.get(uid, [])) or 'no node'}"
    for uid in sorted(stands.keys() - world.placements.by_uid.keys()):
        yield f"{uid} stands on {stands[uid][0]}, and is not placed"
    yield from _index("claims", world.placements.claims.keys(), case, frozenset({Phase.HELD, Phase.NOMINATED}))
    yield from _index("holds", world.placements.held.keys(), case, frozenset({Phase.HELD}))
    yield from _index("going", world.placements.going.keys(), case, frozenset({Phase.LEAVING, Phase.OVERDUE}))
    yield from _unseated(case)


def _index(name: str, said: object, case: Case, phases: frozenset[Phase]) -> Iterator[str]:
    found = {uid for uid, placement in case.world.placements.by_uid.items() if placement.phase in phases}
    if said != found:
        yield f"the index of {name} is wrong about {sorted(set(said) ^ found)}"  # type: ignore[call-overload]


def _unseated(case: Case) -> Iterator[str]:
    counts: dict[str, int] = {}
    for uid, member in case.world.facts.members.items():
        if case.phase(uid) in (Phase.PENDING, Phase.NOMINATED, Phase.HELD):
            counts[member.gang] = counts.get(member.gang, 0) + 1
    if counts != case.world.placements.unseated:
        wrong = sorted({gang for gang, _ in counts.items() ^ case.world.placements.unseated.items()})
        yield f"the count of members without a seat is wrong for {', '.join(wrong)}"


def no_deed_twice(case: Case) -> Iterator[str]:
    """Nobody is told to bind, or to go, twice, unless the first time failed."""
    for effect in case.outcome.effects:
        match effect:
            case Bind(uid=uid, node=node) if uid in case.past.binding:
                yield f"{effect.pod} is bound to {node}, and was bound to {case.past.binding[uid]} before"
            case Evict(uid=uid) if uid in case.past.going:
                yield f"{effect.pod} is evicted a second time"
