"""Invariant of nodes that are kept for gangs that have waited long."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.gang import Gang
from muster.scenario.invariants.checked_cycle import CheckedCycle
from muster.state.reserve_pods import MOVED


def kept_nodes_stay_closed(case: CheckedCycle) -> Iterator[str]:
    """No gang of the same queue and priority that was created later gets a node that was kept before the cycle and still is, where
    nobody knows when the holder starts. Of those that have a node, or had one, nothing is said: they may come first."""
    world, history = case.world, case.history
    for effect in case.placed() if history.kept_nodes else ():
        gang = world.facts.gangs.get(case.gang_key(effect.uid))
        placement = world.placements.by_uid.get(effect.uid)
        if gang is None or effect.uid in history.binding or gang.key in history.placed_gangs:
            continue
        if placement is None or placement.plan.startswith(MOVED):
            continue
        for key, nodes in history.kept_nodes.items():
            kept, holder = world.memory.backfill_reservations.get(key), world.facts.gangs.get(key)
            if (
                holder is None
                or kept is None
                or kept.starts_at is not None
                or effect.node not in nodes
                or effect.node not in kept.nodes
            ):
                continue
            if _is_after(gang, holder):
                yield f"{effect.pod} gets {effect.node}, which is kept for {holder.full_name}"


def _is_after(gang: Gang, holder: Gang) -> bool:
    if {role.queue for role in gang.roles} != {role.queue for role in holder.roles} or gang.key == holder.key:
        return False
    return gang.priority == holder.priority and gang.created > holder.created


def unknown_starts(case: CheckedCycle) -> dict[str, tuple[str, ...]]:
    """The nodes of those of whom nobody knows when they start, by gang."""
    return {
        key: kept.nodes for key, kept in case.world.memory.backfill_reservations.items() if kept.nodes and kept.starts_at is None
    }


def gangs_with_nodes(case: CheckedCycle) -> frozenset[str]:
    return frozenset(case.gang_key(uid) for uid in case.world.placements.by_uid)
