"""Laws of evictions, judged from what a cycle decided."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Bind, Evict, Hold, Nominate
from muster.model.pod import Phase
from muster.scenario.laws.case import SEATS, Case
from muster.scenario.laws.gangs import below_min


def eviction_has_beneficiary(case: Case) -> Iterator[str]:
    """Nobody is evicted for nothing: whoever it is for was promised all that it needs."""
    world = case.world
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = next((gang for gang in world.facts.gangs.values() if effect.for_gang in (gang.key, gang.title)), None)
        if gang is None:
            yield f"{effect.pod} is evicted for {effect.for_gang or 'nobody'}, which is no gang"
        elif not any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods()):
            yield f"{effect.pod} is evicted for {gang.title}, which was promised nothing"
        else:
            yield from (f"{effect.pod} is evicted, and {text}" for text in below_min(case, gang, SEATS | {Phase.NOMINATED}))


def nobody_served_is_victim(case: Case) -> Iterator[str]:
    """A gang that was given something in a cycle is not evicted in the same cycle."""
    served = {case.gang_key(effect.uid): effect for effect in case.placed() if isinstance(effect, Bind | Hold)}
    for effect in case.outcome.effects:
        if isinstance(effect, Evict) and case.gang_key(effect.uid) in served:
            yield f"{effect.pod} is evicted, and its gang was given {served[case.gang_key(effect.uid)].node} in the same cycle"


def redeemable_gang_evicts_nobody(case: Case) -> Iterator[str]:
    """A gang that was promised all it needs, and still has every promise, causes no further eviction.

    A promise that was lost and given anew is another one, though it may be of the same node.
    """
    world = case.world
    anew = {effect.uid for effect in case.outcome.effects if isinstance(effect, Nominate)}
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = next((gang for gang in world.facts.gangs.values() if effect.for_gang in (gang.key, gang.title)), None)
        claims = case.past.claims.get(gang.key, {}) if gang is not None else {}
        kept = all(
            uid not in anew and (now := world.placements.by_uid.get(uid)) is not None and now.node == node
            for uid, node in claims.items()
        )
        if gang is not None and claims and kept and len(claims) >= gang.min:
            yield f"{effect.pod} is evicted for {gang.title}, whose {len(claims)} promises all stood"


def evictions_end(case: Case) -> Iterator[str]:
    """With nothing new from outside there are not more evictions than pods could ever justify."""
    bound = 4 * len(case.world.facts.pods) + 20
    if case.past.evictions > bound:
        yield f"{case.past.evictions} evictions since anything new happened, with {len(case.world.facts.pods)} pods in all"
