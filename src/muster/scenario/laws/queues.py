"""Laws of queues: figures that are sums, and limits that hold."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Nominate
from muster.model.pod import Phase
from muster.scenario.laws.case import LEAVES, LIVES, PROMISED, STAYS_IN_QUEUE, Case, Sums, add, total_of, unequal
from muster.state.columns import Amounts
from muster.state.world import World


def ledger_is_sum(case: Case) -> Iterator[str]:
    """Each queue's figures are the sums over its members and those of all queues below it, and none is negative."""
    world = case.world
    sums: dict[tuple[str, bool, Phase], Sums] = {}
    paths: dict[str, list[str]] = {}
    for uid, member in world.facts.members.items():
        pod = world.facts.pods.get(uid)
        if pod is None:
            yield f"member {uid} of {member.gang} is no live pod"
            continue
        path = paths.get(member.queue) or paths.setdefault(member.queue, _path_up(world, member.queue))
        for queue in path:
            add(sums.setdefault((queue, member.preemptible, case.phase(uid)), {}), pod)
    for queue in world.ledger.names:
        for word, said, parts, phases in _figures(world, queue):
            expected = total_of(found for part in parts for phase in phases if (found := sums.get((queue, part, phase))))
            amounts = said.tolist()
            yield from unequal(f"{queue}: {word}", world.columns.names, amounts, expected)
            if any(amount < 0 for amount in amounts):
                yield f"{queue}: {word} is negative: {amounts}"


def no_queue_over_limit(case: Case) -> Iterator[str]:
    """Where this cycle placed somebody, no queue above them but the root has more than its limit of what they ask for.

    A limit may be lowered below what is used, and a queue may move: that is not because of us.
    """
    world = case.world
    touched: dict[str, dict[str, bool]] = {}
    for effect in case.placed():
        member, pod = world.facts.members.get(effect.uid), world.facts.pods.get(effect.uid)
        for queue in _path_up(world, member.queue) if member is not None else ():
            for name, amount in pod.kind.request.items if pod is not None else ():
                here = touched.setdefault(queue, {})
                here[name] = here.get(name, False) or (amount > 0 and not isinstance(effect, Nominate))
    for queue, resources in touched.items():
        limits = dict(world.facts.queues[queue].limit.items) if queue in world.facts.queues else {}
        for phases, what in ((STAYS_IN_QUEUE | LEAVES, "used"), (STAYS_IN_QUEUE | PROMISED, "taken")):
            sums = _sum_in_queue(case, queue, phases) if limits else {}
            for name in sorted(resources.keys() & limits.keys()):
                if (phases & PROMISED or resources[name]) and sums.get(name, 0) > limits[name]:
                    yield f"{queue} has a limit of {limits[name]} of {name}, and {sums[name]} {what}"


def _sum_in_queue(case: Case, queue: str, phases: frozenset[Phase]) -> Sums:
    world = case.world
    below = {name for name in {member.queue for member in world.facts.members.values()} if queue in _path_up(world, name)}
    sums: Sums = {}
    for uid, member in world.facts.members.items():
        if member.queue in below and case.phase(uid) in phases:
            add(sums, world.facts.pods[uid])
    return sums


def _figures(world: World, queue: str) -> Iterator[tuple[str, Amounts, tuple[bool, ...], frozenset[Phase]]]:
    """What the ledger says of a queue: the figure's name, its amounts, whose pods it counts, and in which phases."""
    ledger, both = world.ledger, (True, False)
    yield "used", ledger.used(queue), both, STAYS_IN_QUEUE | LEAVES
    yield "taken", ledger.taken(queue), both, STAYS_IN_QUEUE | PROMISED
    yield "leaving", ledger.leaving(queue), both, LEAVES
    yield "promised", ledger.promised(queue), both, PROMISED
    for part, word in ((True, "preemptible"), (False, "non-preemptible")):
        yield f"{word} used", ledger.used_part(queue, preemptible=part), (part,), STAYS_IN_QUEUE | LEAVES
        yield f"{word} taken", ledger.taken_part(queue, preemptible=part), (part,), STAYS_IN_QUEUE | PROMISED
        yield f"{word} requested", ledger.requested_part(queue, preemptible=part), (part,), LIVES


def _path_up(world: World, queue: str) -> list[str]:
    """The queue and all above it. One whose parents lead back to itself is a child of the root."""
    path = [queue]
    while (parent := _parent(world, path[-1])) and parent not in path and not _leads_back(world, path[-1]):
        path.append(parent)
    return [*path, "root"]


def _leads_back(world: World, queue: str) -> bool:
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
