"""Clusters and gangs for the workloads, as events: made fast and always the same."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.events import Event, Seen
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Kind, Membership, Pod, Running
from muster.model.resources import CPU, GPU, MEMORY, PODS, Resources
from muster.model.topology import TopologyAsk

GI = 2**30


def nodes(count: int, *, gpus: int = 8, cpus: int = 64, labels: dict[str, str] | None = None) -> Iterator[Event]:
    allocatable = Resources.of({CPU: cpus * 1000, MEMORY: 512 * GI, PODS: 110, GPU: gpus})
    for number in range(count):
        zone = {"topology.kubernetes.io/zone": f"zone-{number % 3}", "kubernetes.io/hostname": f"node-{number:05d}"}
        yield Seen(
            Node(f"node-{number:05d}", uid=f"node-{number}", version=1, allocatable=allocatable, labels=zone | (labels or {}))
        )


def kind(*, cpu_m: int = 1000, memory: int = GI, gpus: int = 0) -> Kind:
    amounts = {CPU: cpu_m, MEMORY: memory, PODS: 1}
    if gpus:
        amounts[GPU] = gpus
    return Kind(request=Resources.of(amounts))


def gang(
    name: str,
    size: int,
    each: Kind,
    *,
    created: float = 0.0,
    priority: int = 0,
    queue: str = "",
    least: int | None = None,
    on: list[str] | None = None,
    started: float = 0.0,
    highest_tier: int | None = None,
) -> Iterator[Event]:
    """A gang of equal pods; `on` names the node of each where it runs already."""
    key = f"volcano:bench/{name}"
    topology = TopologyAsk(hard=True, highest_tier=highest_tier) if highest_tier is not None else None
    least = size if least is None else least
    group = Group(
        Dialect.VOLCANO, "bench", name, uid=key, created=created, version=1, min_member=least, queue=queue, topology=topology
    )
    yield Seen(group)
    membership = Membership(Dialect.VOLCANO, name)
    for index in range(size):
        yield Seen(
            Pod(
                uid=f"{name}-{index}",
                namespace="bench",
                name=f"{name}-{index}",
                kind=each,
                created=created,
                version=1,
                priority=priority,
                membership=membership,
                node=on[index] if on is not None else None,
                running=Running.RUNNING if on is not None else Running.PENDING,
                started=started if on is not None else None,
            )
        )


def lone(name: str, each: Kind, *, created: float = 0.0, priority: int = 0, node: str | None = None) -> Event:
    return Seen(
        Pod(
            uid=name,
            namespace="bench",
            name=name,
            kind=each,
            created=created,
            version=1,
            priority=priority,
            node=node,
            running=Running.PENDING if node is None else Running.RUNNING,
            started=None if node is None else 0.0,
        )
    )
