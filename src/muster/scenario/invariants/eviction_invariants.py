"""Invariants of evictions, computed from what a cycle decided."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Bind, Evict, Nominate, Reserve
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.scenario.invariants.checked_cycle import PLACED, CheckedCycle
from muster.scenario.invariants.gang_invariants import below_min


def eviction_has_beneficiary(case: CheckedCycle) -> Iterator[str]:
    """No pod is evicted in vain: the gang that it is evicted for is nominated to all the nodes that it needs."""
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = _beneficiary(case, effect)
        if gang is None:
            yield f"{effect.pod} is evicted for {effect.for_gang or 'no gang'}, which is no gang"
        elif not any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods()):
            yield f"{effect.pod} is evicted for {gang.full_name}, which is nominated to no node"
        else:
            yield from (f"{effect.pod} is evicted, and {text}" for text in below_min(case, gang, PLACED | {Phase.NOMINATED}))


def placed_gang_is_not_victim(case: CheckedCycle) -> Iterator[str]:
    """A gang with a pod bound or reserved in a cycle is not evicted in the same cycle."""
    served = {case.gang_key(effect.uid): effect for effect in case.placed() if isinstance(effect, Bind | Reserve)}
    for effect in case.outcome.effects:
        if isinstance(effect, Evict) and case.gang_key(effect.uid) in served:
            yield f"{effect.pod} is evicted, and its gang got {served[case.gang_key(effect.uid)].node} in the same cycle"


def nominated_gang_evicts_nobody(case: CheckedCycle) -> Iterator[str]:
    """A gang that is nominated to all the nodes it needs, and has lost none of them, causes no further eviction.

    A nomination that was lost and made again is another one, even on the same node.
    """
    world = case.world
    anew = {effect.uid for effect in case.outcome.effects if isinstance(effect, Nominate)}
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = _beneficiary(case, effect)
        nominations = case.history.nominations.get(gang.key, {}) if gang is not None else {}
        kept = all(
            uid not in anew and (now := world.placements.by_uid.get(uid)) is not None and now.node == node
            for uid, node in nominations.items()
        )
        if gang is not None and nominations and kept and len(nominations) >= gang.min:
            yield f"{effect.pod} is evicted for {gang.full_name}, whose {len(nominations)} nominations all stood"


def evictions_terminate(case: CheckedCycle) -> Iterator[str]:
    """Without an external change the number of evictions is bounded by the number of pods."""
    bound = 4 * len(case.world.facts.pods) + 20
    if case.history.evictions > bound:
        yield f"{case.history.evictions} evictions since the last external change, with {len(case.world.facts.pods)} pods in all"


def _beneficiary(case: CheckedCycle, effect: Evict) -> Gang | None:
    """Gangs of several API flavours, and a pod and the one that was created anew, may have one name: the one with nominations."""
    named = [gang for gang in case.world.facts.gangs.values() if effect.for_gang in (gang.key, gang.full_name)]
    nominated = [gang for gang in named if any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods())]
    return next(iter((*nominated, *named)), None)
