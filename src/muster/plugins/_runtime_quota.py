"""Runtime quotas: how much each ElasticQuota may use right now, following what all of them request.

Per parent and resource: each gets its minimum as far as it requests it, the rest goes by shared weight. Minimums that do not
fit into the parent are scaled down together. A parent's runtime is the total of its children.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.fair_shares import weights
from muster.engine.quota import BY_QUEUE, UNLIMITED, queue_bounds
from muster.engine.session import Session
from muster.engine.shares import total_for
from muster.engine.sharing import Claims, branches, requests_up_tree, share_out
from muster.model.queue import Queue
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.queue_tree import is_reserved
from muster.state.resource_columns import Amounts


@dataclass(frozen=True, slots=True)
class RuntimeQuotas:
    """Rows as in the ledger. `runtime` is UNLIMITED where a quota configures nothing; `request` is what each branch requests."""

    runtime: Amounts
    request: Amounts


_RUNTIMES: Derived[RuntimeQuotas] = Derived("runtimes of quotas", *BY_QUEUE, Topic.DEMAND, most=4)
_MAXIMUMS: Derived[Amounts] = Derived("maximums of quotas", *BY_QUEUE)
_MINIMUMS: Derived[Amounts] = Derived("minimums of quotas", *BY_QUEUE)


def top_level_quotas(s: Session) -> tuple[str, ...]:
    """The quotas right below the root that take part in sharing."""
    nodes = s.world.facts.tree.nodes
    return tuple(key for key in s.world.facts.tree.children[""] if nodes[key].is_quota and not is_reserved(key))


def shareable_total(s: Session) -> Amounts:
    """What there is to share among the quotas."""
    return total_for(s, top_level_quotas(s))


def runtime_quotas(s: Session, *, scale: bool) -> RuntimeQuotas:
    total = shareable_total(s)
    return _RUNTIMES.of(s.world, lambda: _compute_runtime_quotas(s, total, scale=scale), key=(scale, total.tobytes()))


def _compute_runtime_quotas(s: Session, total: Amounts, *, scale: bool) -> RuntimeQuotas:
    world, tree = s.world, branches(s.world, top_level_quotas(s))
    minimum = np.where(min_rows(s) < UNLIMITED, min_rows(s), 0)
    kept, configured = np.zeros_like(minimum), np.zeros(minimum.shape, dtype=np.bool_)
    for row in tree.rows.tolist():
        node = world.facts.tree.nodes[world.ledger.names[row]]
        kept[row] = 0 if node.lends else minimum[row]
        configured[row, [world.columns.position[name] for name in configured_resources(node)]] = True
    columns = np.flatnonzero(configured.any(axis=0))
    asked, request = requests_up_tree(tree, world.ledger.requested_in(), kept, max_rows(s))
    parts = share_out(total, tree, Claims(request, weights(s), minimum, kept, is_scaled=scale), columns.tolist())
    shown = world.ledger.requested_in()
    shown[np.ix_(tree.rows, columns)] = asked[np.ix_(tree.rows, columns)]
    return RuntimeQuotas(np.where(configured, parts, UNLIMITED), shown)


def configured_resources(node: Queue) -> frozenset[str]:
    """The resources that a quota configures."""
    return frozenset((*node.limit, *(name for name, value in node.deserved.items if value)))


def max_rows(s: Session) -> Amounts:
    """The maximum of every quota as rows; other queues are not bounded here."""
    return _MAXIMUMS.of(s.world, lambda: queue_bounds(s.world, lambda q: q.limit if q.is_quota else Resources()))


def min_rows(s: Session) -> Amounts:
    """The minimum of every quota as rows; UNLIMITED where none was configured. Zero leaves nothing to non-preemptible pods."""
    return _MINIMUMS.of(s.world, lambda: queue_bounds(s.world, lambda q: q.deserved if q.is_quota else Resources()))
