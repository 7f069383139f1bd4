"""Synthetic clusters and gangs as events, for the workloads: deterministic and cheap to make."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.events import Event, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.model.topology_spec import TopologyConstraint

GI = 2**30


def nodes(count: int, *, gpus: int = 8, cpus: int = 64, labels: dict[str, str] | None = None) -> Iterator[Event]:
    allocatable = Resources.of({CPU: cpus * 1000, MEMORY: 512 * GI, PODS: 110, GPU: gpus})
    for number in range(count):
        zone = {"topology.kubernetes.io/zone": f"zone-{number % 3}", "kubernetes.io/hostname": f"node-{number:05d}"}
        yield Upsert(
            Node(f"node-{number:05d}", uid=f"node-{number}", version=1, allocatable=allocatable, labels=zone | (labels or {}))
        )


def signature(*, cpu_m: int = 1000, memory: int = GI, gpus: int = 0) -> PodSignature:
    amounts = {CPU: cpu_m, MEMORY: memory, PODS: 1}
    if gpus:
        amounts[GPU] = gpus
    return PodSignature(request=Resources.of(amounts))


def gang(
    name: str,
    size: int,
    each: PodSignature,
    *,
    created: float = 0.0,
    priority: int = 0,
    queue: str = "",
    min_member: int | None = None,
    on_nodes: list[str] | None = None,
    started: float = 0.0,
    highest_tier: int | None = None,
) -> Iterator[Event]:
    """A gang of equal pods; `on_nodes`: the node of each pod, where it is running already."""
    key = f"volcano:bench/{name}"
    topology = TopologyConstraint(hard=True, highest_tier=highest_tier) if highest_tier is not None else None
    min_member = size if min_member is None else min_member
    group = PodGroup(
        ApiFlavour.VOLCANO,
        "bench",
        name,
        uid=key,
        created=created,
        version=1,
        min_member=min_member,
        queue=queue,
        topology=topology,
    )
    yield Upsert(group)
    membership = Membership(ApiFlavour.VOLCANO, name)
    for index in range(size):
        node = on_nodes[index] if on_nodes is not None else None
        yield pod(f"{name}-{index}", each, created=created, priority=priority, node=node, started=started, membership=membership)


def pod(
    name: str,
    each: PodSignature,
    *,
    created: float = 0.0,
    priority: int = 0,
    node: str | None = None,
    started: float = 0.0,
    membership: Membership | None = None,
    run_s: float | None = None,
    movable_by: str = "",
) -> Event:
    """`node`: where it is running already, since `started`. `movable_by`: the controller of a pod that may be moved."""
    return Upsert(
        Pod(
            uid=name,
            namespace="bench",
            name=name,
            signature=each,
            created=created,
            version=1,
            priority=priority,
            membership=membership,
            node=node,
            status_phase=PodStatusPhase.PENDING if node is None else PodStatusPhase.RUNNING,
            started=None if node is None else started,
            run_s=run_s,
            controller=movable_by,
            movable=bool(movable_by) or None,
        )
    )
