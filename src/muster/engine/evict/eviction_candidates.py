"""Whom an action could choose as victims for given members on given nodes, as things are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from muster.engine.evict.contested import contested, usable_domains
from muster.engine.evict.eviction_policy import EvictionPolicy, allows_eviction
from muster.engine.evict.victim_search import ActionCache, EvictionAsk, VictimSearch
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import WHOLE_CLUSTER, Ask
from muster.engine.session import Session
from muster.model.pod import Phase, Pod


def evictable_now(
    s: Session, ask: Ask, policy: EvictionPolicy, *, nodes: Set[str], victims: Sequence[Pod]
) -> tuple[set[str], tuple[str, ...]]:
    """The UIDs of those victims that are placed and that the action could choose now for this ask on these nodes, and the gangs of
    all of them that bring a queue below its share.

    They are judged as one plan, before any of them left: what the ask lacks was decided with all of them in place."""
    by_gang: dict[str, list[Pod]] = {}
    for victim in victims:
        if (member := s.world.facts.members.get(victim.uid)) is not None:
            by_gang.setdefault(member.gang, []).append(victim)
    left = {victim.uid for victim in victims if s.world.phase(victim) is Phase.BOUND}
    with s.trial("judged before any of them left", cause="") as trial:
        for victim in victims:
            if s.world.phase(victim) is Phase.TERMINATING:
                trial.change_phase(victim, phase=Phase.BOUND)
        found, crossing = _choosable(s, ask, policy, nodes=nodes, by_gang=by_gang, left=left)
    return left & found, crossing


def _choosable(
    s: Session, ask: Ask, policy: EvictionPolicy, *, nodes: Set[str], by_gang: Mapping[str, Sequence[Pod]], left: Set[str]
) -> tuple[set[str], tuple[str, ...]]:
    eviction_ask = EvictionAsk(
        s, ask, policy, contested(s, ask, usable_domains(s, ask)), ActionCache(), s.policy.settings.max_placements
    )
    search = VictimSearch(eviction_ask, WHOLE_CLUSTER)
    candidates = {search.victim_table.pods[at].uid for at in search.units.victim.tolist()}
    found: set[str] = set()
    for key, theirs in by_gang.items():
        if any(victim.uid not in left for victim in theirs):
            # The eviction of a gang that has begun is completed: what is left of it is of no use to anybody.
            may = not any(_is_protected(search.victim_table, victim) for victim in theirs if victim.uid in left)
        else:
            may = candidates.issuperset(victim.uid for victim in theirs) and _frees_what_is_needed(s, ask, theirs, nodes)
            may = may and allows_eviction(s, ask, eviction_ask.rules, theirs, priority=s.world.facts.gangs[key].priority).ok
        found.update(victim.uid for victim in theirs if may)
    return found, eviction_ask.rules.crossing_gangs([victim for theirs in by_gang.values() for victim in theirs])


def _is_protected(victim_table: VictimTable, pod: Pod) -> bool:
    at = victim_table.index.get(pod.uid)
    return at is None or bool(victim_table.not_evictable[at] or victim_table.non_preemptible[at])


def _frees_what_is_needed(s: Session, ask: Ask, pods: Sequence[Pod], nodes: Set[str]) -> bool:
    """Are they on one of the nodes, or in one of the ask's own queues?"""
    queues = {role.queue for role in ask.gang.roles}
    return any(pod.node in nodes or s.world.facts.members[pod.uid].queue in queues for pod in pods)
