"""What must be true after every cycle of every scenario, whatever the policy.

Each law is judged from facts (pods, placements, nodes, effects) by plain sums over dictionaries: none of the code that it watches
takes part, except to be read. A breach is a bug in Muster, never in the world. What a law is for stands in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Evict, Outcome, Spare
from muster.model.pod import Phase
from muster.scenario.laws.case import Breach, Case, Past
from muster.scenario.laws.evictions import (
    eviction_has_beneficiary,
    evictions_end,
    nobody_served_is_victim,
    redeemable_gang_evicts_nobody,
)
from muster.scenario.laws.gangs import everything_says_why, strict_gang_whole
from muster.scenario.laws.pods import no_deed_twice, no_pod_twice
from muster.scenario.laws.queues import ledger_is_sum, no_queue_over_limit
from muster.scenario.laws.room import columns_are_sums, no_device_over_capacity, no_node_over_capacity
from muster.scenario.laws.topology import hard_topology_holds
from muster.state.world import World

LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    "no node over capacity": no_node_over_capacity,
    "no device over capacity": no_device_over_capacity,
    "node columns are sums": columns_are_sums,
    "the ledger is a sum": ledger_is_sum,
    "no queue over its limit": no_queue_over_limit,
    "no pod twice": no_pod_twice,
    "no deed twice": no_deed_twice,
    "a strict gang is whole": strict_gang_whole,
    "everything says why": everything_says_why,
    "hard topology holds": hard_topology_holds,
    "an eviction has a beneficiary": eviction_has_beneficiary,
    "nobody served is a victim": nobody_served_is_victim,
    "a redeemable gang evicts nobody": redeemable_gang_evicts_nobody,
    "evictions come to an end": evictions_end,
}
NO_TRACE = "a rolled-back trial leaves no trace"
SAME_AGAIN = "same input, same output"


class Judge:
    """Looks at every cycle. `news` tells it that something happened outside that may rightly cause evictions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._past = Past()

    def news(self) -> None:
        self._past.evictions = 0

    def failed(self, uid: str) -> None:
        """A deed on this pod failed: it may be done again."""
        self._past.binding.pop(uid, None)
        self._past.going.pop(uid, None)

    def restarted(self, policy: Policy) -> None:
        """Another scheduler takes over; it knows what the cluster holds, and no more."""
        self._policy = policy
        self._past = Past(evictions=self._past.evictions)

    def look(self, world: World, outcome: Outcome) -> list[Breach]:
        case = Case(world, outcome, self._policy, self._past)
        found = [Breach(law, outcome.cycle, outcome.now, text) for law, judge in LAWS.items() for text in judge(case)]
        _remember(case)
        return found


def _remember(case: Case) -> None:
    world, past = case.world, case.past
    past.binding = {uid: node for uid, node in past.binding.items() if uid in world.facts.pods}
    past.going = {uid: None for uid in past.going if uid in world.facts.pods}
    for effect in case.outcome.effects:
        if isinstance(effect, Bind):
            past.binding[effect.uid] = effect.node
        elif isinstance(effect, Evict):
            past.going[effect.uid] = None
            past.evictions += 1
        elif isinstance(effect, Spare):
            # It was told that it may stay, so it may be told to go again.
            past.going.pop(effect.uid, None)
    past.claims = {}
    for uid in world.placements.claims:
        placement = world.placements.by_uid[uid]
        if placement.phase is Phase.NOMINATED:
            past.claims.setdefault(case.gang_key(uid), {})[uid] = placement.node or ""


__all__ = ["LAWS", "NO_TRACE", "SAME_AGAIN", "Breach", "Judge"]
