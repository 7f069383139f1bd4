"""A copy of a world with one gang and no other pod of ours: the nodes, the queues and other schedulers' pods as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.model.gang import Gang
from muster.model.pod import Placement, Pod
from muster.state.world import World


def empty_world(world: World, gang: Gang, pods: Sequence[Pod], placed: Mapping[str, Placement]) -> World:
    """`pods` are the gang's members as they should take part; `placed` are the placements of those that keep theirs, by UID. Pods
    of other schedulers stay unless they are being released."""
    empty, facts = World(), world.facts
    empty.now = world.now
    empty.facts.nodes, empty.facts.queues, empty.facts.tree = facts.nodes, facts.queues, facts.tree
    empty.facts.namespaces, empty.facts.domains, empty.facts.storage = facts.namespaces, facts.domains, facts.storage
    empty.table.lay_out(facts.nodes)
    for queue in facts.queues.values():
        # Every column must exist before the session begins: amounts of one cycle are equally wide.
        for amounts in (queue.limit, queue.deserved, queue.guarantee):
            empty.columns.require(amounts)
    empty.ledger.lay_out(world.ledger.parents)
    for pod in pods:
        member = empty.facts.members[pod.uid] = facts.members[pod.uid]
        empty.facts.pods[pod.uid] = pod
        empty.ledger.request(member.queue, empty.request(pod), preemptible=member.preemptible, count=1)
    empty.facts.gangs[gang.key] = gang
    empty.placements.count_unplaced(gang.key, gang.size)
    for pod in pods:
        if pod.uid in placed:
            empty.placements.move(pod, placed[pod.uid])
    for pod in facts.pods.values():
        if not pod.ours and pod.uid not in world.placements.releasing:
            empty.facts.pods[pod.uid] = pod
            empty.placements.move(pod, world.placement(pod))
    return empty
