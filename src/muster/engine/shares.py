"""Shares of the cluster: what there is to share, and how much of it a queue has. Fractions here, amounts everywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np

from muster.engine.guarantees import guarantees
from muster.engine.hooks import DeservedShares
from muster.engine.session import Session
from muster.model.pod import PLACED, Phase
from muster.model.resource_amounts import PODS, Resources
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

_CHARGED = PLACED | {Phase.NOMINATED}

_TOTAL: Derived[Amounts] = Derived("cluster total", Topic.ALLOCATABLE)
_TO_SHARE: Derived[Amounts] = Derived("what is shared", Topic.CYCLE, Topic.LEDGER_LAYOUT)
_DIMENSIONS: Derived[list[tuple[int, int]]] = Derived("dimensions of shares", Topic.ALLOCATABLE)


def cluster_total(s: Session) -> Amounts:
    """What all nodes have together."""
    table = s.world.table
    return _TOTAL.of(s.world, lambda: np.asarray(table.allocatable.sum(axis=0), dtype=np.int64))


def total_for(s: Session, tops: tuple[str, ...]) -> Amounts:
    """What there is to share among these children of the root: all that the nodes have, without what others take of it. Fixed for
    the cycle from when it is first asked for, so that a trial's moves do not change it."""
    return _TO_SHARE.of(s.world, lambda: _compute_total_for(s, tops), key=tops)


def _compute_total_for(s: Session, tops: tuple[str, ...]) -> Amounts:
    world, among = s.world, frozenset(tops)
    own = world.ledger.planned_in(np.array([world.ledger.row[queue] for queue in tops], dtype=np.intp)).sum(axis=0)
    others = world.table.planned.sum(axis=0) - own + _used_on_deleted_nodes(s, among)
    total: Amounts = np.maximum(cluster_total(s) - others, 0)
    return total


def _used_on_deleted_nodes(s: Session, branches: Set[str]) -> Amounts:
    """What pods of these branches use of nodes that are not there any more: it is charged to their queues and to no node."""
    world, placements = s.world, s.world.placements
    used: Amounts = np.zeros(len(world.columns.names), dtype=np.int64)
    for node in placements.on_node.keys() - world.table.row.keys():
        for uid, pod in placements.on_node[node].items():
            member = world.facts.members.get(uid)
            if (
                member is not None
                and placements.by_uid[uid].phase in _CHARGED
                and not branches.isdisjoint(world.ledger.path(member.queue))
            ):
                used += world.request(pod)
    return used


def dimensions(s: Session) -> list[tuple[int, int]]:
    """The columns in which shares are counted and what the cluster has of each. The number of pods is none of them."""

    def find() -> list[tuple[int, int]]:
        pods = s.world.columns.position[PODS]
        return [(i, value) for i, value in enumerate(cluster_total(s).tolist()) if value > 0 and i != pods]

    return _DIMENSIONS.of(s.world, find)


_CONFIGURED: Derived[Amounts] = Derived("shares by queue", Topic.CYCLE, Topic.QUEUES, Topic.LEDGER_LAYOUT, Topic.ALLOCATABLE)


def configured_shares(s: Session, plugin: DeservedShares) -> Amounts:
    """The share of every queue as one plugin sees it, at least its guarantee: rows as in the ledger, -1 where it has none."""
    return _CONFIGURED.of(s.world, lambda: _compute_configured(s, plugin), key=plugin.name)


def _compute_configured(s: Session, plugin: DeservedShares) -> Amounts:
    world = s.world
    found = guarantees(s)
    rows = np.full((len(world.ledger), len(world.columns.names)), -1, dtype=np.int64)
    for key, node in world.facts.tree.nodes.items():
        row = rows[world.ledger.row[key]]
        for name, value in plugin.configured_share(s, key).items:
            row[world.columns.position[name]] = value
        for name, value in node.guarantee.items:
            if value and found is not None:
                column = world.columns.position[name]
                row[column] = max(found.counted[world.ledger.row[key], column], row[column])
    rows[:, world.columns.position[PODS]] = -1
    return rows


def of_dimensions(s: Session, row: Amounts) -> Resources:
    """A row as amounts, in the dimensions in which shares are counted."""
    amounts = row.tolist()
    return Resources.of({s.world.columns.names[column]: amounts[column] for column, _ in dimensions(s)})


def dominant_share(s: Session, queue: str, *, plus: Amounts | None = None) -> float:
    """The largest part of any resource of the cluster that the queue has, or would have with `plus` added."""
    ledger = s.world.ledger
    taken: list[int] = ledger.planned_list(queue) if plus is None else (ledger.planned(queue) + plus).tolist()
    return largest_share(taken, dimensions(s))


def largest_share(taken: Sequence[float], totals: Iterable[tuple[int, int]]) -> float:
    """The largest part of any of these totals that is taken. Each is a column and an amount."""
    share = 0.0
    for column, total in totals:
        part = taken[column] / total
        share = part if part > share else share
    return share
