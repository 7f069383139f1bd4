"""Runtime quotas: how much each ElasticQuota may use right now, following what all of them request.

Per parent and resource: each gets its minimum as far as it requests it, the rest goes by shared weight. Minimums that do not
fit into the parent are scaled down together. A parent's runtime is the total of its children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.engine.quota import BY_QUEUE, UNLIMITED, queue_bounds
from muster.engine.session import Session
from muster.engine.shares import total_for
from muster.model.queue import Queue
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.plugins._fair_share import Sharer, requests_up_tree, share_down_tree
from muster.state.derived_values import Derived
from muster.state.queue_tree import is_reserved
from muster.state.resource_columns import Amounts


@dataclass(frozen=True, slots=True)
class RuntimeQuotas:
    """Rows as in the ledger. `runtime` is UNLIMITED where a quota configures nothing; `request` is what each branch requests."""

    runtime: Amounts
    request: Amounts


_TOTAL: Derived[Amounts] = Derived("what quotas share", Topic.CYCLE)
_RUNTIMES: Derived[RuntimeQuotas] = Derived("runtimes of quotas", *BY_QUEUE, Topic.DEMAND, most=4)
_MAXIMUMS: Derived[Amounts] = Derived("maximums of quotas", *BY_QUEUE)
_MINIMUMS: Derived[Amounts] = Derived("minimums of quotas", *BY_QUEUE)


def top_level_quotas(s: Session) -> tuple[str, ...]:
    """The quotas right below the root that take part in sharing."""
    nodes = s.world.facts.tree.nodes
    return tuple(key for key in s.world.facts.tree.children[""] if nodes[key].is_quota and not is_reserved(key))


def shareable_total(s: Session) -> Amounts:
    """What there is to share among the quotas. Fixed for the cycle, so that a trial's moves do not change it."""
    return _TOTAL.of(s.world, lambda: total_for(s, top_level_quotas(s)))


def runtime_quotas(s: Session, *, scale: bool) -> RuntimeQuotas:
    total = shareable_total(s)
    return _RUNTIMES.of(s.world, lambda: _compute_runtime_quotas(s, total, scale=scale), key=(scale, total.tobytes()))


def _compute_runtime_quotas(s: Session, total: Amounts, *, scale: bool) -> RuntimeQuotas:
    world, tops = s.world, top_level_quotas(s)
    quotas = list(tops)
    for key in quotas:
        quotas.extend(world.facts.tree.children.get(key, ()))
    nodes = {key: world.facts.tree.nodes[key] for key in quotas}
    children = {"": tops} | {key: world.facts.tree.children[key] for key in quotas if key in world.facts.tree.children}
    found = RuntimeQuotas(np.full((len(world.ledger), len(total)), UNLIMITED, dtype=np.int64), world.ledger.requested_in())
    for name in sorted({name for node in nodes.values() for name in configured_resources(node)}):
        _share_resource(s, found, nodes, children, name, int(total[world.columns.position[name]]), scale=scale)
    return found


def _share_resource(
    s: Session,
    found: RuntimeQuotas,
    nodes: Mapping[str, Queue],
    children: Mapping[str, tuple[str, ...]],
    name: str,
    total: int,
    *,
    scale: bool,
) -> None:
    """One resource, down the whole tree of quotas."""
    row, column = s.world.ledger.row, s.world.columns.position[name]
    requested: list[int] = found.request[:, column].tolist()

    def own(key: str) -> int:
        return requested[row[key]] - sum(requested[row[child]] for child in children.get(key, ()))

    def limited(key: str, total_request: int) -> int:
        node = nodes[key]
        request = total_request if node.lends else max(total_request, node.deserved[name])
        found.request[row[key], column] = request
        most = node.limit.get(name)
        return request if most is None else min(request, most)

    requests = requests_up_tree(children, own, limited, tops=children[""])

    def sharer(key: str) -> Sharer:
        return Sharer(key, _weight(nodes[key], name), requests[key], nodes[key].deserved[name], nodes[key].lends)

    for key, part in share_down_tree(total, children, sharer, scale=scale).items():
        if name in configured_resources(nodes[key]):
            found.runtime[row[key], column] = part


def configured_resources(node: Queue) -> frozenset[str]:
    """The resources that a quota configures."""
    return frozenset((*node.limit, *(name for name, value in node.deserved.items if value)))


def _weight(node: Queue, name: str) -> int:
    if node.weights:
        return node.weights[name]
    most = node.limit.get(name)
    return node.weight if most is None else most


def max_rows(s: Session) -> Amounts:
    """The maximum of every quota as rows; other queues are not bounded here."""
    return _MAXIMUMS.of(s.world, lambda: queue_bounds(s.world, lambda q: q.limit if q.is_quota else Resources()))


def min_rows(s: Session) -> Amounts:
    """The minimum of every quota as rows; UNLIMITED where none was configured. Zero leaves nothing to non-preemptible pods."""
    return _MINIMUMS.of(s.world, lambda: queue_bounds(s.world, lambda q: q.deserved if q.is_quota else Resources()))
