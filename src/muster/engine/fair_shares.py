"""Fair shares: what a queue deserves as far as it asks for it, and its part by weight of what all deserved shares leave.

A queue asks for what it uses and for what its gangs request that could be admitted by themselves, up to its limit. What is
guaranteed to a queue it keeps, whatever it asks for. Fixed for the cycle: a trial's moves change no fair share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from muster.engine.guarantees import guarantees
from muster.engine.past_use import past_use
from muster.engine.quota import BY_QUEUE, limits
from muster.engine.session import Session
from muster.engine.shares import configured_shares, dimensions, largest_share, total_for
from muster.engine.sharing import Branches, Claims, branches, of_branches, requests_up_tree, share_out
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.queue import Queue
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts

_Amounts = tuple[tuple[int, int], ...]
"""Some columns of a row and their amounts."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """Rows as in the ledger."""

    rows: Amounts
    short: tuple[_Amounts, ...]
    """Where a queue asks for more than its fair share: in these columns its use is compared with that of others."""


@dataclass(frozen=True, slots=True)
class SharesByQueue:
    """What queues deserve: rows as in the ledger, and the same by queue where anything is configured."""

    rows: Amounts
    by_queue: dict[str, _Amounts]

    @classmethod
    def of(cls, s: Session, rows: Amounts) -> SharesByQueue:
        lists = zip(s.world.ledger.names, rows.tolist(), strict=True)
        by_queue = {queue: tuple((i, value) for i, value in enumerate(row) if value > 0) for queue, row in lists}
        return cls(rows, {queue: row for queue, row in by_queue.items() if row})


_ASKED: Derived[Amounts] = Derived("what queues ask for", Topic.CYCLE, Topic.LEDGER_LAYOUT)
_FAIR: Derived[FairShares] = Derived("fair shares", Topic.CYCLE, Topic.LEDGER_LAYOUT)
_WEIGHTS: Derived[Amounts] = Derived("weights of queues", *BY_QUEUE)
_NEVER_ADMITTED: Derived[tuple[str, ...]] = Derived("gangs beyond limits", *BY_QUEUE, Topic.DEMAND)


def prepare_shares(s: Session) -> None:
    """What is shared and who asks for how much, as it is when the cycle begins."""
    if s.policy.deserved_shares:
        all_to_share(s)
        _asked(s)


def all_to_share(s: Session) -> Amounts:
    """What there is to share among all queues."""
    return total_for(s, s.world.facts.tree.children[""])


def all_branches(s: Session) -> Branches:
    return branches(s.world, s.world.facts.tree.children[""])


def fair_shares(s: Session) -> FairShares:
    return _FAIR.of(s.world, lambda: _compute(s))


def _compute(s: Session) -> FairShares:
    world, tree = s.world, all_branches(s)
    columns = [column for column, _ in dimensions(s)]
    asked, found = _asked(s), guarantees(s)
    kept = np.zeros_like(asked) if found is None else found.counted
    minimum = of_branches(tree, np.maximum(s.deserved_rows(), kept))
    _, request = requests_up_tree(tree, asked, kept, limits(world).rows)
    rows = share_out(all_to_share(s), tree, Claims(request, weights(s), minimum, kept, is_scaled=False), columns)
    short = (request > rows)[:, columns]
    found_short = [
        tuple((columns[at], int(rows[row, columns[at]])) for at in np.flatnonzero(short[row]).tolist()) for row in range(len(rows))
    ]
    return FairShares(rows, tuple(found_short))


def shares_for_reclaim(s: Session) -> list[Amounts]:
    """Up to what a queue reclaims and beyond what it gives, as each plugin with an opinion sees it: rows as in the ledger, -1 where
    a queue has no share. Of its fair share everybody has one, in every dimension."""
    if s.policy.settings.reclaim_for == "deserved":
        return [configured_shares(s, plugin) for plugin in s.policy.deserved_shares]
    found = fair_shares(s)
    rows, columns = np.full_like(found.rows, -1), np.array([column for column, _ in dimensions(s)], dtype=np.intp)
    shared = np.ix_(all_branches(s).rows, columns)
    rows[shared] = found.rows[shared]
    return [rows]


def weights(s: Session) -> Amounts:
    """The weight of each queue, by resource."""
    return _WEIGHTS.of(s.world, lambda: _compute_weights(s))


def _compute_weights(s: Session) -> Amounts:
    world = s.world
    rows = np.ones((len(world.ledger), len(world.columns.names)), dtype=np.int64)
    for key, node in world.facts.tree.nodes.items():
        rows[world.ledger.row[key]] = [weight_of(node, name) for name in world.columns.names]
    return rows


def weight_of(node: Queue, name: str) -> int:
    """Of a quota that declares no weight its maximum counts."""
    if node.weights:
        return node.weights[name]
    most = node.limit.get(name) if node.is_quota else None
    return node.weight if most is None else most


# -- what queues ask for -----------------------------------------------------------------------------------------------------------


def _asked(s: Session) -> Amounts:
    return _ASKED.of(s.world, lambda: _compute_asked(s))


def _compute_asked(s: Session) -> Amounts:
    """What is used or requested: pods that are leaving ask for nothing, nor do those that wait in a gang of which no limit on its
    path would admit the minimum."""
    world, ledger = s.world, s.world.ledger
    asked = ledger.requested_in()
    never = _NEVER_ADMITTED.of(world, lambda: _compute_never_admitted(s))
    waiting = [pod.uid for key in never for pod in world.facts.gangs[key].pods() if world.phase(pod) is Phase.PENDING]
    for uid in (*world.placements.releasing, *waiting):
        member = world.facts.members.get(uid)
        if member is not None and member.queue in ledger:
            asked[[ledger.row[key] for key in ledger.path(member.queue)]] -= world.request(world.facts.pods[uid])
    return asked


def _compute_never_admitted(s: Session) -> tuple[str, ...]:
    """Gangs whose minimum alone is more than a limit on their path."""
    world, ledger, bounds = s.world, s.world.ledger, limits(s.world)
    found: dict[str, None] = {}
    for queue, gangs in world.facts.gangs_in_queue.items() if bounds.is_limited else ():
        if queue not in world.facts.tree.nodes:
            continue
        most = bounds.rows[ledger.rows_up(queue)].min(axis=0)
        if (ledger.requested(queue) > most).any():
            found.update((key, None) for key in gangs if _is_over(s, world.facts.gangs[key], queue, most))
    return tuple(found)


def _is_over(s: Session, gang: Gang, queue: str, most: Amounts) -> bool:
    members = s.world.facts.members
    least = [s.world.request(pod) for pod in gang.pods()[: gang.min] if members[pod.uid].queue == queue]
    return bool((np.sum(least, axis=0) > most).any()) if least else False


# -- the order of queues -----------------------------------------------------------------------------------------------------------


def share_key(s: Session, queue: str, deserved: _Amounts) -> tuple[int, float]:
    """Queues below what they deserve come first, by the part of it that they use; the others by their use against fair share, in
    what they ask for in vain. Use in the past counts there, too."""
    used = s.world.ledger.planned_list(queue)
    if deserved and (part := largest_share(used, deserved)) < 1.0:
        return (0, part)
    if len(s.world.facts.tree.nodes) == 1 or queue not in s.world.facts.tree.nodes:
        return (1, 0.0)
    past = past_use(s, queue)
    short = fair_shares(s).short[s.world.ledger.row[queue]]
    return (1, max(_parts(used, past, short), default=0.0))


def _parts(used: list[int], past: dict[int, float], short: _Amounts) -> Iterator[float]:
    for column, fair in short:
        use = used[column] + past.get(column, 0.0)
        yield use / fair if fair else inf if use > 0 else 0.0
