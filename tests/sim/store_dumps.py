"""All that a store knows, as plain values: two stores that know the same have equal pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from muster.model.events import Event
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.state.resource_columns import Amounts
from muster.state.store import Store
from muster.state.world import World

StoreContents = dict[str, object]


def store_contents(store: Store, *, now: float) -> StoreContents:
    world = store.world(now)
    return {
        "pods": world.facts.pods,
        "placements": world.placements.by_uid,
        "on node": {node: sorted(pods) for node, pods in world.placements.on_node.items()},
        "nodes": world.facts.nodes,
        "rows": {name: _row(world, name) for name in world.table.names},
        "gangs": {key: _without_versions(gang) for key, gang in world.facts.gangs.items()},
        "members": world.facts.members,
        "unplaced members": world.placements.unplaced_members,
        "reservations": sorted(world.placements.reservations),
        "releasing": sorted(world.placements.releasing),
        "without pods": sorted(world.facts.without_pods),
        "queues": world.facts.queues,
        "in queue": {queue: sorted(gangs) for queue, gangs in world.facts.gangs_in_queue.items()},
        "domains": world.facts.domains,
        "namespaces": world.facts.namespaces,
        "ledger": {queue: figures for queue in world.ledger.names if any(figures := _ledger_amounts(world, queue))},
        "queues without a row": [queue for queue in world.facts.gangs_in_queue if queue not in world.ledger],
    }


def _without_versions(gang: Gang) -> Gang:
    """News of a pod that says nothing new is no reason to make its gang anew."""
    roles = (replace(role, pods=_at_zero(role.pods), terminating=_at_zero(role.terminating)) for role in gang.roles)
    # When a gang was created is not saved with its members that succeeded.
    created = 0.0 if any(role.succeeded for role in gang.roles) else gang.created
    return replace(gang, roles=tuple(roles), created=created)


def _at_zero(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    return tuple(replace(pod, version=0) for pod in pods)


def differences(one: StoreContents, other: StoreContents) -> dict[str, tuple[object, object]]:
    return {part: (one[part], other[part]) for part in one if one[part] != other[part]}


def fresh_store(events: Iterable[Event]) -> Store:
    store = Store()
    for event in events:
        store.fold(event)
    return store


def _row(world: World, name: str) -> tuple[dict[str, int], ...]:
    table, row = world.table, world.table.row[name]
    return tuple(_named(world, amounts[row]) for amounts in (table.allocatable, table.used, table.planned))


def _ledger_amounts(world: World, queue: str) -> tuple[dict[str, int], ...]:
    ledger = world.ledger
    split = (ledger.used_part, ledger.planned_part, ledger.requested_part)
    parts = [part(queue, preemptible=preemptible) for part in split for preemptible in (True, False)]
    return tuple(_named(world, amounts) for amounts in (*parts, ledger.releasing(queue), ledger.nominated(queue)))


def _named(world: World, amounts: Amounts) -> dict[str, int]:
    """By name and without zeros: the order of columns depends on who came first."""
    return {name: int(value) for name, value in zip(world.columns.names, amounts, strict=True) if value}
