"""A copy of a world without placements: the nodes and queues as they are, one gang, and no other pod."""

from __future__ import annotations

from collections.abc import Sequence

from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.state.world import World


def empty_world(world: World, gang: Gang, pods: Sequence[Pod]) -> World:
    """`pods` are the gang's members as they should take part."""
    empty, facts = World(), world.facts
    empty.now = world.now
    empty.facts.nodes, empty.facts.queues, empty.facts.tree = facts.nodes, facts.queues, facts.tree
    empty.facts.namespaces, empty.facts.domains, empty.facts.storage = facts.namespaces, facts.domains, facts.storage
    empty.table.lay_out_empty(facts.nodes)
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
    return empty
