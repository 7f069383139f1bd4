"""What queues use, what their shares are, and whether they are over them: sums over pods, rolled up the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from tests.oracles.fair_shares import configured_deserved, fair_share_table
from tests.oracles.guarantees import counted_guarantee
from tests.oracles.plain_amounts import Amounts, request_of, shared_request_of, total
from tests.oracles.snapshot import CHARGED, ON_NODE, Snapshot

from muster.model.pod import Pod
from muster.model.resource_amounts import PODS

Ledger = dict[str, Amounts]
"""By queue, everything below it included, after all releases."""
ShareTable = Mapping[str, Mapping[str, int]]
"""By queue, the dimensions that it configures."""


def ledger_of(s: Snapshot) -> Ledger:
    return charge(s, {}, (uid for uid, placement in s.placements.items() if placement.phase in CHARGED))


def charge(s: Snapshot, ledger: Ledger, uids: Iterable[str], *, sign: int = 1) -> Ledger:
    """The ledger with these pods charged to their queues and all above, or taken off."""
    found = {queue: dict(amounts) for queue, amounts in ledger.items()}
    for uid in uids:
        if uid not in s.members or uid not in s.pods:
            continue
        for queue in s.path(s.queue_of(uid)):
            amounts = found.setdefault(queue, {})
            for name, value in request_of(s.pods[uid]).items():
                amounts[name] = amounts.get(name, 0) + sign * value
    return found


def cluster_total(s: Snapshot) -> Amounts:
    found = total({name: value for name, value in node.allocatable.items if name != PODS} for node in s.nodes.values())
    return {name: value for name, value in found.items() if value}


def share_tables(s: Snapshot) -> list[ShareTable]:
    """What each share plugin of the policy that has an opinion says each queue's share is."""
    if s.rules.fair_shares:
        return [fair_share_table(s, _deserved(s))]
    tables: list[ShareTable] = []
    if s.rules.plugins & {"capacity", "elastic-quota"}:
        tables.append(_configured_shares(s))
    if "proportion" in s.rules.plugins:
        tables.append(_at_least_guaranteed(s, _shares_by_weight(s, up_to_requests=True)))
    if "drf" in s.rules.plugins:
        tables.append(_at_least_guaranteed(s, _shares_by_weight(s, up_to_requests=False)))
    return tables


def _deserved(s: Snapshot) -> ShareTable:
    if s.rules.plugins & {"capacity", "elastic-quota"}:
        return configured_deserved(s, limited="capacity" in s.rules.plugins)
    return _shares_by_weight(s, up_to_requests="proportion" in s.rules.plugins) if s.rules.plugins & {"proportion", "drf"} else {}


def _at_least_guaranteed(s: Snapshot, table: ShareTable) -> ShareTable:
    found = {key: dict(shares) for key, shares in table.items()}
    for key, queue in s.queues.items():
        for name, value in queue.guarantee.items:
            if value and name != PODS:
                found[key][name] = max(value, found[key].get(name, 0))
    return found


def _configured_shares(s: Snapshot) -> ShareTable:
    found: dict[str, Amounts] = {}
    for key, queue in s.queues.items():
        own = {name: value for name, value in queue.deserved.items if name != PODS}
        for name, value in queue.guarantee.items:
            if value and name != PODS:
                own[name] = max(counted_guarantee(s, key, name), own.get(name, 0))
        found[key] = own
    return found


def configured(tables: Iterable[ShareTable], queue: str) -> frozenset[str]:
    return frozenset(name for table in tables for name in table.get(queue, {}))


def is_over(tables: Iterable[ShareTable], ledger: Ledger, queue: str, name: str) -> bool:
    """Over its share in a dimension, as all say that have an opinion on it."""
    opinions = [table[queue][name] for table in tables if name in table.get(queue, {})]
    return bool(opinions) and all(ledger.get(queue, {}).get(name, 0) > share for share in opinions)


def is_within(tables: Iterable[ShareTable], ledger: Ledger, queue: str, name: str) -> bool:
    """Within its share, as all say that have an opinion."""
    opinions = [table[queue][name] for table in tables if name in table.get(queue, {})]
    return all(ledger.get(queue, {}).get(name, 0) <= share for share in opinions)


def highest_share(tables: Iterable[ShareTable], queue: str, name: str) -> int | None:
    """The share in a dimension that it configures: below the smallest opinion everybody finds it below its share."""
    return min((table[queue][name] for table in tables if name in table.get(queue, {})), default=None)


def below_common_ancestor(s: Snapshot, one: str, other: str) -> tuple[list[str], list[str]]:
    """The levels of each side below the common ancestor, from the queue up."""
    ours, theirs = s.path(one), s.path(other)
    return [level for level in ours if level not in theirs], [level for level in theirs if level not in ours]


def dominant_share(s: Snapshot, ledger: Ledger, queue: str) -> Fraction:
    """The largest part of any resource of the cluster that the queue uses, by its weight."""
    used = ledger.get(queue, {})
    parts = [Fraction(max(used.get(name, 0), 0), there) for name, there in cluster_total(s).items()]
    weight = s.queues[queue].weight if queue in s.queues else 1
    return max(parts, default=Fraction(0)) / max(weight, 1)


# -- shares by weight --------------------------------------------------------------------------------------------------------------


def _shares_by_weight(s: Snapshot, *, up_to_requests: bool) -> ShareTable:
    """The cluster without what pods of no queue take, divided by weight down the tree: up to what each queue requests, or evenly
    among all that request anything."""
    there = cluster_total(s)
    for uid, placement in s.placements.items():
        # An overdue pod fills its node and counts in no queue; nor does one whose queue is gone.
        is_charged = uid in s.members and s.queue_of(uid) in s.queues and placement.phase in CHARGED
        if placement.phase in ON_NODE and not is_charged and uid in s.pods and placement.node in s.nodes:
            for name, value in shared_request_of(s.pods[uid]).items():
                there[name] = there.get(name, 0) - value
    requests = charge(s, {}, s.members)
    asking = {queue for queue, amounts in requests.items() if any(amounts.values())}
    found: dict[str, Amounts] = {key: {} for key in s.queues}
    for name, amount in there.items():
        wanted = (
            _limited_requests(s, requests, name) if up_to_requests else {queue: int(queue in asking) << 62 for queue in s.queues}
        )
        _divide(s, "", max(amount, 0), name, wanted, found, guarantees=up_to_requests)
    return found if up_to_requests else {queue: shares if queue in asking else {} for queue, shares in found.items()}


def _limited_requests(s: Snapshot, requests: Ledger, name: str) -> dict[str, int]:
    children = _children(s)

    def of(queue: str) -> int:
        below = sum(of(child) for child in children.get(queue, []))
        own = requests.get(queue, {}).get(name, 0) - sum(requests.get(child, {}).get(name, 0) for child in children.get(queue, []))
        limit = s.queues[queue].limit.get(name)
        return own + below if limit is None else min(own + below, limit)

    return {queue: of(queue) for queue in s.queues}


def _children(s: Snapshot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for queue in sorted(s.queues):
        found.setdefault(s.parents.get(queue, ""), []).append(queue)
    return found


def _divide(
    s: Snapshot, parent: str, amount: int, name: str, requests: Mapping[str, int], found: dict[str, Amounts], *, guarantees: bool
) -> None:
    children = _children(s).get(parent, [])
    least = {queue: s.queues[queue].guarantee[name] if guarantees else 0 for queue in children}
    if sum(least.values()) > amount:
        least = {queue: amount * value // sum(least.values()) for queue, value in least.items()}
    parts = {queue: Fraction(min(least[queue], requests[queue])) for queue in children}
    hungry = [queue for queue in children if requests[queue] > parts[queue]]
    left = amount - sum(parts.values())
    while hungry and left > 0:
        weights = sum(s.queues[queue].weight for queue in hungry)
        filled = [queue for queue in hungry if (requests[queue] - parts[queue]) * weights <= left * s.queues[queue].weight]
        for queue in filled:
            left -= requests[queue] - parts[queue]
            parts[queue] = Fraction(requests[queue])
        if not filled:
            for queue in hungry:
                parts[queue] += Fraction(left) * s.queues[queue].weight / max(weights, 1)
            break
        hungry = [queue for queue in hungry if queue not in filled]
    for queue, part in _rounded(parts).items():
        found[queue][name] = part
        _divide(s, queue, part, name, requests, found, guarantees=guarantees)


def _rounded(parts: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole units: what the fractions add up to goes to the largest, ties by name."""
    found = {queue: int(part) for queue, part in parts.items()}
    left = int(sum(parts.values())) - sum(found.values())
    for queue in sorted(parts, key=lambda queue: (-(parts[queue] - found[queue]), queue))[:left]:
        found[queue] += 1
    return found


def demand_by_queue(s: Snapshot, pods: Iterable[Pod]) -> dict[str, Amounts]:
    """What these members ask in each queue that they are charged to."""
    found: dict[str, Amounts] = {}
    for pod in pods:
        queue = s.queue_of(pod.uid)
        found[queue] = total((found.get(queue, {}), shared_request_of(pod)))
    return found
