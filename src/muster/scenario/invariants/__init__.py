"""Invariants: what must be true after every cycle of every scenario, whatever the policy. `muster sim` reports violations.

Each is computed from pods, placements, nodes and effects by plain sums over dictionaries, never by the code that it checks. A
violation is a bug in Muster, never in the cluster.

May be changed here: a new invariant is a function with a docstring and a line in `INVARIANTS`. Must not: use the engine or the
ledger's own sums. Tests: tests/scenario/test_invariants.py has a bug for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.engine.hooks import Policy
from muster.model.effects import Bind, CancelEviction, Evict, Outcome
from muster.model.pod import Phase
from muster.scenario.invariants.capacity_invariants import no_device_over_capacity, no_node_over_capacity, node_columns_are_sums
from muster.scenario.invariants.checked_cycle import CheckedCycle, InvariantHistory, Violation
from muster.scenario.invariants.eviction_invariants import (
    eviction_has_beneficiary,
    evictions_terminate,
    nominated_gang_evicts_nobody,
    placed_gang_is_not_victim,
)
from muster.scenario.invariants.gang_invariants import (
    every_effect_says_why,
    no_incomplete_subgroup_is_placed,
    strict_gang_all_or_nothing,
)
from muster.scenario.invariants.kept_nodes_invariants import gangs_with_nodes, kept_nodes_stay_closed, unknown_starts
from muster.scenario.invariants.move_invariants import (
    moved_controllers,
    moved_pods_have_a_place,
    nobody_is_moved_twice,
    only_movable_pods_are_moved,
    reserve_pods_belong_to_moves,
)
from muster.scenario.invariants.pod_invariants import no_effect_twice, no_pod_twice
from muster.scenario.invariants.queue_invariants import ledger_is_sum, no_queue_over_limit
from muster.scenario.invariants.topology_invariants import hard_topology_holds
from muster.state.world import World

INVARIANTS: dict[str, Callable[[CheckedCycle], Iterator[str]]] = {
    "no node over capacity": no_node_over_capacity,
    "no device over capacity": no_device_over_capacity,
    "node columns are sums": node_columns_are_sums,
    "the ledger is a sum": ledger_is_sum,
    "no queue over its limit": no_queue_over_limit,
    "no pod twice": no_pod_twice,
    "no effect twice": no_effect_twice,
    "a strict gang is placed whole or not at all": strict_gang_all_or_nothing,
    "a subgroup is placed only when it is complete": no_incomplete_subgroup_is_placed,
    "every effect and every wait says why": every_effect_says_why,
    "hard topology holds": hard_topology_holds,
    "an eviction has a beneficiary": eviction_has_beneficiary,
    "a gang placed in a cycle is not a victim in it": placed_gang_is_not_victim,
    "a gang whose nominations all stand evicts nobody": nominated_gang_evicts_nobody,
    "evictions come to an end": evictions_terminate,
    "a moved pod has a place": moved_pods_have_a_place,
    "only movable pods are moved": only_movable_pods_are_moved,
    "nobody is moved twice in a while": nobody_is_moved_twice,
    "what is kept belongs to a move": reserve_pods_belong_to_moves,
    "kept nodes stay closed": kept_nodes_stay_closed,
}


class InvariantChecker:
    """Checks every cycle. `on_external_change`: something changed in the cluster that may rightly cause evictions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._history = InvariantHistory()

    def on_external_change(self) -> None:
        self._history.evictions = 0

    def on_failure(self, uid: str) -> None:
        """An effect on this pod failed: it may be repeated."""
        self._history.binding.pop(uid, None)
        self._history.evicting.pop(uid, None)

    def on_restart(self, policy: Policy) -> None:
        """Another scheduler starts, which knows the cluster's objects and nothing else."""
        self._policy = policy
        self._history = InvariantHistory(evictions=self._history.evictions, moved=self._history.moved)

    def check_cycle(self, world: World, outcome: Outcome) -> list[Violation]:
        case = CheckedCycle(world, outcome, self._policy, self._history)
        found = [
            Violation(invariant, outcome.cycle, outcome.now, text)
            for invariant, check in INVARIANTS.items()
            for text in check(case)
        ]
        _update_history(case)
        return found


def _update_history(case: CheckedCycle) -> None:
    world, history = case.world, case.history
    history.binding = {uid: node for uid, node in history.binding.items() if uid in world.facts.pods}
    history.evicting = {uid: None for uid in history.evicting if uid in world.facts.pods}
    for effect in case.outcome.effects:
        if isinstance(effect, Bind):
            history.binding[effect.uid] = effect.node
        elif isinstance(effect, Evict):
            history.evicting[effect.uid] = None
            history.evictions += 1
        elif isinstance(effect, CancelEviction):
            # Its eviction was cancelled, so it may be evicted again.
            history.evicting.pop(effect.uid, None)
    for key in moved_controllers(case):
        history.moved[key] = case.outcome.now
    history.kept_nodes = unknown_starts(case)
    history.placed_gangs = gangs_with_nodes(case) if history.kept_nodes else frozenset()
    history.nominations = {}
    for uid in world.placements.reservations:
        placement = world.placements.by_uid[uid]
        if placement.phase is Phase.NOMINATED:
            history.nominations.setdefault(case.gang_key(uid), {})[uid] = placement.node or ""


__all__ = ["INVARIANTS", "InvariantChecker", "Violation"]
