"""The ask of a gang as the searches for victims take it, as an evicting action would make it."""

from __future__ import annotations

from muster.engine.evict.contested import contested, usable_domains
from muster.engine.evict.eviction_policy import EvictionPolicy
from muster.engine.evict.victim_search import ActionCache, EvictionAsk
from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session
from muster.model.pod import Pod


def eviction_ask(
    s: Session, gang: str, policy: EvictionPolicy, *, pods: tuple[Pod, ...] = (), cache: ActionCache | None = None
) -> EvictionAsk:
    """`gang`: by its full name. `pods`: the members that are asked for; all of them where there are none."""
    found = next(each for each in s.world.facts.gangs.values() if each.full_name == gang)
    ask = Ask(found, pods or found.pods(), Purpose.EVICT, policy.name)
    lacking = contested(s, ask, usable_domains(s, ask))
    return EvictionAsk(s, ask, policy, lacking, cache or ActionCache(), s.policy.settings.max_placements)
