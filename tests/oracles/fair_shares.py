"""Fair shares, in exact fractions: what a queue deserves, as far as it asks for it, and by weight what that leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from tests.oracles.guarantees import counted_guarantee, room_of
from tests.oracles.plain_amounts import Amounts, request_of, shared_request_of, total
from tests.oracles.snapshot import CHARGED, ON_NODE, Snapshot

from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.resource_amounts import PODS


def fair_share_table(s: Snapshot, deserved: Mapping[str, Mapping[str, int]]) -> dict[str, Amounts]:
    """Of every queue in every dimension that the cluster has, as it was when the cycle began."""
    s = replace(s, placements=s.began_with) if s.began_with is not None else s
    found: dict[str, Amounts] = {key: {} for key in s.queues}
    for name, amount in shared_total(s).items():
        own = {key: max(deserved.get(key, {}).get(name, 0), counted_guarantee(s, key, name)) for key in s.queues}
        _divide(s, "", Fraction(amount), name, {key: _deserved(s, own, key) for key in s.queues}, found)
    return found


def shared_total(s: Snapshot) -> Amounts:
    """What the nodes have, without what pods take there that are charged to no queue."""
    there = total({name: value for name, value in node.allocatable.items if name != PODS} for node in s.nodes.values())
    found = {name: value for name, value in there.items() if value}
    for uid, placement in s.placements.items():
        # An overdue pod fills its node and counts in no queue; nor does one whose queue is gone.
        is_charged = uid in s.members and s.queue_of(uid) in s.queues and placement.phase in CHARGED
        if placement.phase in ON_NODE and not is_charged and uid in s.pods and placement.node in s.nodes:
            for name, value in shared_request_of(s.pods[uid]).items():
                if name in found:
                    found[name] -= value
    return {name: max(value, 0) for name, value in found.items()}


def configured_deserved(s: Snapshot, *, limited: bool) -> dict[str, Amounts]:
    """What was configured, no more than the queue may have; of quotas their minimum."""
    return {
        key: {name: min(value, _most(s, key, name)) if limited else value for name, value in queue.deserved.items if name != PODS}
        for key, queue in s.queues.items()
    }


def _most(s: Snapshot, queue: str, name: str) -> int:
    return min(room_of(s, level, name) for level in ("", *s.path(queue)) if level in s.queues or not level)


def _deserved(s: Snapshot, own: Mapping[str, int], queue: str) -> int:
    """Its own, or what its children deserve together."""
    return own[queue] or sum(_deserved(s, own, child) for child in _children(s, queue))


def _children(s: Snapshot, parent: str) -> list[str]:
    return sorted(key for key in s.queues if s.parents.get(key, "") == parent)


def asks(s: Snapshot, queue: str, name: str) -> int:
    """Its use and the requests of its gangs that could be admitted by themselves, up to its limit; at least what it keeps."""
    own = sum(request_of(s.pods[uid]).get(name, 0) for uid, member in s.members.items() if member.queue == queue and _asks(s, uid))
    wanted = max(own + sum(asks(s, child, name) for child in _children(s, queue)), counted_guarantee(s, queue, name))
    limit = s.queues[queue].limit.get(name)
    return wanted if limit is None else min(wanted, limit)


def _asks(s: Snapshot, uid: str) -> bool:
    placement = s.placements.get(uid)
    if uid not in s.pods:
        return False
    if placement is not None and placement.phase is not Phase.PENDING:
        return placement.phase in CHARGED
    return could_be_admitted(s, s.gangs[s.members[uid].gang])


def could_be_admitted(s: Snapshot, gang: Gang) -> bool:
    """Were nothing else there: its minimum is within the limits on the paths of its queues."""
    for queue in {s.queue_of(pod.uid) for pod in gang.pods()} & set(s.queues):
        least = total(request_of(pod) for pod in gang.pods()[: gang.min] if s.queue_of(pod.uid) == queue)
        for level in s.path(queue):
            limit = s.queues[level].limit
            if any(name in limit and value > limit[name] for name, value in least.items()):
                return False
    return True


def _divide(s: Snapshot, parent: str, amount: Fraction, name: str, deserved: Mapping[str, int], found: dict[str, Amounts]) -> None:
    """Water is poured into the vessels of siblings, each as wide as its weight, until all are full or nothing is left."""
    children = _children(s, parent)
    wanted = {child: asks(s, child, name) for child in children}
    part = {child: Fraction(max(min(wanted[child], deserved[child]), counted_guarantee(s, child, name))) for child in children}
    left = amount - sum(part.values())
    while left > 0:
        open_ = {child: weight(s, child, name) for child in children if wanted[child] > part[child] and weight(s, child, name)}
        if not open_:
            break
        rise = min(left / sum(open_.values()), *((wanted[child] - part[child]) / width for child, width in open_.items()))
        for child, width in open_.items():
            part[child] += rise * width
            left -= rise * width
    whole = {child: int(own) for child, own in part.items()}
    odd = int(sum(part.values())) - sum(whole.values())
    for child in sorted(children, key=lambda child: (whole[child] - part[child], child))[:odd]:
        whole[child] += 1
    for child in children:
        found[child][name] = whole[child]
        _divide(s, child, Fraction(whole[child]), name, deserved, found)


def weight(s: Snapshot, queue: str, name: str) -> int:
    """A quota's is its shared weight, and without one its maximum."""
    node = s.queues[queue]
    if node.weights:
        return node.weights[name]
    most = node.limit.get(name) if queue.startswith("quota/") else None
    return node.weight if most is None else most
