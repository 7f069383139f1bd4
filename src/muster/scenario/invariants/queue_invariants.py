"""Invariants of queues: amounts that are sums, and limits that hold."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Bind, Nominate, Reserve
from muster.model.pod import Phase
from muster.scenario.invariants.checked_cycle import (
    ALL_PHASES,
    NOMINATED,
    PLACED,
    TERMINATING,
    CheckedCycle,
    ResourceSums,
    add_requests,
    reserve_pods,
    sum_of,
    touched_resources,
    unequal_amounts,
)
from muster.state.resource_columns import Amounts
from muster.state.world import World

_DEEPEST = 64


def ledger_is_sum(case: CheckedCycle) -> Iterator[str]:
    """Each queue's amounts are the sums over its members and those of all queues below it, and none is negative."""
    world = case.world
    sums: dict[tuple[str, bool, Phase], ResourceSums] = {}
    paths: dict[str, list[str]] = {}
    for uid, member in world.facts.members.items():
        pod = world.facts.pods.get(uid)
        if pod is None:
            yield f"member {uid} of {member.gang} is no live pod"
            continue
        path = paths.get(member.queue) or paths.setdefault(member.queue, _ancestors(world, member.queue))
        for queue in path:
            add_requests(sums.setdefault((queue, member.preemptible, case.phase(uid)), {}), pod)
    for uid, reserve in reserve_pods(world).items():
        for queue in _ancestors(world, reserve.member.queue):
            add_requests(sums.setdefault((queue, reserve.member.preemptible, case.phase(uid)), {}), reserve)
    for queue in world.ledger.names:
        for column, recorded, parts, phases in _ledger_amounts(world, queue):
            expected = sum_of(sums.get((queue, part, phase), {}).items() for part in parts for phase in phases)
            amounts = recorded.tolist()
            yield from unequal_amounts(f"{queue}: {column}", world.columns.names, amounts, expected)
            if any(amount < 0 for amount in amounts):
                yield f"{queue}: {column} is negative: {amounts}"


def no_queue_over_limit(case: CheckedCycle) -> Iterator[str]:
    """Where this cycle placed a pod, no queue above it except the root exceeds its limit in a resource that the pod requests.

    A limit may be lowered below what is used, and a queue may get another parent: that is no violation.
    """
    facts = case.world.facts

    def queues_above(effect: Bind | Reserve | Nominate) -> list[str]:
        member = facts.members.get(effect.uid)
        return [] if member is None else _ancestors(case.world, member.queue)

    for queue, resources in touched_resources(case, queues_above).items():
        limits = dict(facts.queues[queue].limit.items) if queue in facts.queues else {}
        for phases, what in ((PLACED | TERMINATING, "used"), (PLACED | NOMINATED, "planned")):
            sums = _sum_in_queue(case, queue, phases) if limits else {}
            for name in sorted(resources.keys() & limits.keys()):
                if (resources[name] or what == "planned") and sums.get(name, 0) > limits[name]:
                    yield f"{queue} has a limit of {limits[name]} of {name}, and {sums[name]} {what}"


def _sum_in_queue(case: CheckedCycle, queue: str, phases: frozenset[Phase]) -> ResourceSums:
    facts = case.world.facts
    members = [*facts.members.values(), *(pod.member for pod in reserve_pods(case.world).values())]
    below = {name for name in {member.queue for member in members} if queue in _ancestors(case.world, name)}
    counted = (uid for uid, member in facts.members.items() if member.queue in below and case.phase(uid) in phases)
    kept = (pod for pod in reserve_pods(case.world).values() if Phase.MOVING in phases and pod.member.queue in below)
    return sum_of(pod.signature.request.items for pod in (*(facts.pods[uid] for uid in counted), *kept))


def _ledger_amounts(world: World, queue: str) -> Iterator[tuple[str, Amounts, tuple[bool, ...], frozenset[Phase]]]:
    """The ledger's amounts of a queue: their name, the amounts, whose pods they count, and in which phases."""
    ledger, both = world.ledger, (True, False)
    yield "used", ledger.used(queue), both, PLACED | TERMINATING
    yield "planned", ledger.planned(queue), both, PLACED | NOMINATED
    yield "releasing", ledger.releasing(queue), both, TERMINATING
    yield "nominated", ledger.nominated(queue), both, NOMINATED
    for part, column in ((True, "preemptible"), (False, "non-preemptible")):
        yield f"{column} used", ledger.used_part(queue, preemptible=part), (part,), PLACED | TERMINATING
        yield f"{column} planned", ledger.planned_part(queue, preemptible=part), (part,), PLACED | NOMINATED
        yield f"{column} requested", ledger.requested_part(queue, preemptible=part), (part,), ALL_PHASES - {Phase.MOVING}


def _ancestors(world: World, queue: str) -> list[str]:
    """The queue and all above it. One whose parents lead back to itself, or that lies too deep, is a child of the root."""
    path = [queue]
    while (parent := _parent(world, path[-1])) and parent not in path and not _is_cyclic(world, path[-1]):
        path.append(parent)
    return [*path[: (len(path) - 1) % _DEEPEST + 1], "root"]


def _is_cyclic(world: World, queue: str) -> bool:
    seen = [queue]
    while (parent := _parent(world, seen[-1])) and parent not in seen:
        seen.append(parent)
    return parent == queue


def _parent(world: World, queue: str) -> str:
    found = world.facts.queues.get(queue)
    named = found.parent if found is not None else ""
    if named.startswith("quota/?/"):
        own = f"quota/{queue.split('/')[1]}/{named.rsplit('/', 1)[1]}"
        same = sorted(
            (q.created, q.key) for q in world.facts.queues.values() if q.is_quota and q.key.split("/")[2] == own.split("/")[2]
        )
        named = own if own in world.facts.queues else same[0][1] if same else ""
    return named if named in world.facts.queues and named != "queue/root" else ""
