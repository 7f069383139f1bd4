"""The queues in amounts, for reports and metrics: what each uses and deserves, and the gangs that wait in it. No decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.engine.fair_shares import fair_shares
from muster.engine.hooks import Policy
from muster.engine.past_use import past_use
from muster.engine.session import Session
from muster.engine.shares import cluster_total, dominant_share
from muster.model.queue import ROOT_QUEUE
from muster.model.resource_amounts import CPU, NOTHING, Resources, short_name
from muster.state import resource_columns
from muster.state.world import World

ResourceAmounts = tuple[tuple[str, int], ...]
"""Amounts by resource, in the model's units."""

SHARE_OF_DESERVED, SHARE_OF_CLUSTER = "deserved", "cluster"

_MAX_QUEUES_SAMPLED = 64
"""A chart of more queues is unreadable: then only the children of the root are sampled."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue; the root comes first and every parent before its children.

    `share` is the dominant share of what it deserves, or of the cluster where it deserves nothing (`share_of` says which).
    `fair_share` is what it deserves as far as it asks for it, and its part of what that leaves; `past_use` what it used on
    average before. `planned` is what will be used when all that is under way has happened, `reclaimable` whether queues elsewhere
    may reclaim from it. `waiting` counts gangs with unplaced members, and `requested` is what those members request.
    """

    queue: str
    parent: str
    depth: int
    used: ResourceAmounts
    nominated: ResourceAmounts
    planned: ResourceAmounts
    deserved: ResourceAmounts
    fair_share: ResourceAmounts
    past_use: ResourceAmounts
    guarantee: ResourceAmounts
    limit: ResourceAmounts
    reclaimable: bool
    share: float
    share_of: str
    waiting: int
    requested: ResourceAmounts


def queue_rows(world: World, policy: Policy) -> tuple[QueueRow, ...]:
    """The root, and below it every queue, each parent before its children and siblings by name."""
    s = Session(world, policy)
    s.prepare()
    waiting, requested = _waiting(world)
    return tuple(_row(s, queue, depth, waiting, requested) for queue, depth in _tree_order(world, "", 0))


def queue_shares(world: World, policy: Policy) -> tuple[tuple[str, float], ...]:
    """The share of each queue; nothing where there is only the default queue."""
    queues = list(world.facts.tree.nodes)
    if len(queues) < 2:
        return ()
    s = Session(world, policy)
    s.prepare()
    sampled = queues if len(queues) <= _MAX_QUEUES_SAMPLED else world.facts.tree.children[""][:_MAX_QUEUES_SAMPLED]
    return tuple((queue, _share(s, queue, _deserved(s, queue))[0]) for queue in sampled)


def _tree_order(world: World, parent: str, depth: int) -> Iterator[tuple[str, int]]:
    if not parent:
        yield ROOT_QUEUE, 0
    for queue in world.facts.tree.children.get(parent, ()):
        yield queue, depth + 1
        yield from _tree_order(world, queue, depth + 1)


def _row(s: Session, queue: str, depth: int, waiting: dict[str, int], requested: dict[str, Resources]) -> QueueRow:
    ledger, node = s.world.ledger, s.world.facts.tree.nodes.get(queue)
    deserved = _deserved(s, queue)
    share, share_of = _share(s, queue, deserved)
    return QueueRow(
        queue=queue,
        parent="" if node is None else s.world.facts.tree.parents[queue] or ROOT_QUEUE,
        depth=depth,
        used=_amounts(s.world, ledger.used(queue)),
        nominated=_amounts(s.world, ledger.nominated(queue)),
        planned=_amounts(s.world, ledger.planned(queue)),
        deserved=deserved.items,
        fair_share=() if node is None else _amounts(s.world, fair_shares(s).rows[ledger.row[queue]]),
        past_use=tuple(sorted((s.world.columns.names[column], round(use)) for column, use in past_use(s, queue).items())),
        guarantee=() if node is None else node.guarantee.items,
        limit=() if node is None else node.limit.items,
        reclaimable=all(s.world.facts.tree.node(key).reclaimable for key in ledger.path(queue)),
        share=share,
        share_of=share_of,
        waiting=waiting.get(queue, 0),
        requested=requested.get(queue, NOTHING).items,
    )


def _deserved(s: Session, queue: str) -> Resources:
    """The deserved amounts of the policy, else those of the queue's spec; the root deserves the whole cluster."""
    if queue == ROOT_QUEUE:
        return Resources(_amounts(s.world, cluster_total(s)))
    return s.deserved(queue) or s.world.facts.tree.nodes[queue].deserved


def _share(s: Session, queue: str, deserved: Resources) -> tuple[float, str]:
    if queue == ROOT_QUEUE or not deserved:
        return dominant_share(s, queue), SHARE_OF_CLUSTER
    planned, position = s.world.ledger.planned(queue).tolist(), s.world.columns.position
    parts = [planned[position[name]] / value for name, value in deserved.items if value and name in position]
    return max(parts, default=0.0), SHARE_OF_DESERVED


def _waiting(world: World) -> tuple[dict[str, int], dict[str, Resources]]:
    """Gangs with unplaced members, and what those members request, by queue and by each of its ancestors."""
    gangs: dict[str, int] = {}
    requested: dict[str, Resources] = {}
    for key in sorted(world.placements.unplaced_members):
        gang, touched = world.facts.gangs[key], dict[str, None]()
        for role in gang.roles:
            unplaced = [pod for pod in role.pods if pod.uid not in world.placements.by_uid]
            path = world.ledger.path(role.queue) if unplaced and role.queue in world.ledger else ()
            for queue in path:
                touched[queue] = None
                for pod in unplaced:
                    requested[queue] = requested.get(queue, NOTHING).plus(pod.signature.request)
        for queue in touched:
            gangs[queue] = gangs.get(queue, 0) + 1
    return gangs, requested


def _amounts(world: World, row: resource_columns.Amounts) -> ResourceAmounts:
    return tuple(sorted((name, value) for name, value in zip(world.columns.names, row.tolist(), strict=True) if value))


def main_resource(world: World) -> str:
    """GPUs where a node has any, else CPUs."""
    names = [name for name in world.columns.names if short_name(name).endswith("gpu")]
    totals = {name: int(world.table.allocatable[:, world.columns.position[name]].sum()) for name in names}
    return max(sorted(totals), key=lambda name: totals[name], default=CPU) if any(totals.values()) else CPU
