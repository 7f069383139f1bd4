"""Invariants of pods: one placement, and each effect once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster.model.effects import Bind, Evict
from muster.model.pod import Phase
from muster.model.resource_amounts import GPU
from muster.scenario.invariants.checked_cycle import CheckedCycle, reserve_pods


def no_pod_twice(case: CheckedCycle) -> Iterator[str]:
    """A pod has one placement, is listed on that node and no other, and every index agrees."""
    world = case.world
    nodes_of: dict[str, list[str]] = {}
    kept = reserve_pods(world)
    for node, here in world.placements.on_node.items():
        for uid in here:
            nodes_of.setdefault(uid, []).append(node)
    for uid, placement in world.placements.by_uid.items():
        if uid not in world.facts.pods and uid not in kept:
            yield f"{uid} is placed on {placement.node}, and is no live pod"
        if nodes_of.get(uid) != [placement.node]:
            yield f"{uid} is placed on {placement.node}, and is listed on {', '.join(nodes_of.get(uid, [])) or 'no node'}"
    for uid in sorted(nodes_of.keys() - world.placements.by_uid.keys()):
        yield f"{uid} is listed on {nodes_of[uid][0]}, and is not placed"
    yield from _check_index(
        "reservations and nominations", world.placements.reservations.keys(), case, frozenset({Phase.RESERVED, Phase.NOMINATED})
    )
    yield from _check_index("reserved pods", world.placements.reserved.keys(), case, frozenset({Phase.RESERVED}))
    yield from _check_index(
        "terminating pods", world.placements.releasing.keys(), case, frozenset({Phase.TERMINATING, Phase.OVERDUE})
    )
    yield from _check_unplaced_counts(case)
    asking = (pod.signature for pod in world.facts.pods.values() if pod.ours)
    if world.facts.gpu_pods != Counter(each for each in asking if each.devices or each.request[GPU]):
        yield "the number of pods that ask for GPUs is wrong"


def _check_index(name: str, recorded: object, case: CheckedCycle, phases: frozenset[Phase]) -> Iterator[str]:
    found = {uid for uid, placement in case.world.placements.by_uid.items() if placement.phase in phases}
    if recorded != found:
        yield f"the index of {name} is wrong about {sorted(set(recorded) ^ found)}"  # type: ignore[call-overload]


def _check_unplaced_counts(case: CheckedCycle) -> Iterator[str]:
    counts: dict[str, int] = {}
    for uid, member in case.world.facts.members.items():
        if case.phase(uid) in (Phase.PENDING, Phase.NOMINATED, Phase.RESERVED):
            counts[member.gang] = counts.get(member.gang, 0) + 1
    if counts != case.world.placements.unplaced_members:
        wrong = sorted({gang for gang, _ in counts.items() ^ case.world.placements.unplaced_members.items()})
        yield f"the count of unplaced members is wrong for {', '.join(wrong)}"


def no_effect_twice(case: CheckedCycle) -> Iterator[str]:
    """No pod is bound or evicted twice, unless the first time failed."""
    for effect in case.outcome.effects:
        match effect:
            case Bind(uid=uid, node=node) if uid in case.history.binding:
                yield f"{effect.pod} is bound to {node}, and was bound to {case.history.binding[uid]} before"
            case Evict(uid=uid) if uid in case.history.evicting:
                yield f"{effect.pod} is evicted a second time"
