"""What happens in the demonstration on a real API server: who submits what and when, and which node fails.

Times are shares of the whole, so that it can be told faster. The nodes have eight GPUs each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from muster.adapters.kube import names
from muster.adapters.kube.client import Client
from muster.adapters.kube.refs import POD, Manifest
from muster.adapters.kube.resources import resource_of
from muster.adapters.sim.wishes import CONTROLLER, PREFIX
from muster.lab.kubelet import Kubelets

GPU: Final = "nvidia.com/gpu"
GPUS_A_NODE: Final = 8
NODES: Final = tuple(f"gpu-{number:02d}" for number in range(1, 17))
NAMESPACE: Final = "default"
GANG_LABEL: Final = "demo/gang"
CLASSES: Final = {"low": 10, "usual": 100, "urgent": 1000}
_GROUPS: Final = (names.VOLCANO_GROUP, "PodGroup")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Gang:
    """`at` and `runs` are shares of the whole story. One that is evicted is submitted again by its owner."""

    name: str
    pods: int
    gpus: int
    priority: str
    at: float
    runs: float

    @property
    def gpus_in_all(self) -> int:
        return self.pods * self.gpus


GANGS: Final = (
    Gang("pretrain", pods=8, gpus=8, priority="usual", at=0.0, runs=2.0),
    Gang("tune", pods=8, gpus=4, priority="low", at=0.0, runs=0.55),
    Gang("evaluate", pods=4, gpus=4, priority="low", at=0.05, runs=0.25),
    Gang("serve", pods=4, gpus=2, priority="usual", at=0.1, runs=2.0),
    Gang("sweep", pods=12, gpus=2, priority="low", at=0.2, runs=0.3),
    Gang("incident", pods=4, gpus=8, priority="urgent", at=0.4, runs=0.3),
)
FAILS_AT, RETURNS_AT = 0.6, 0.8


class Story:
    """Told on a cluster that has nodes and kubelets already. `tell` is told what is done to it."""

    def __init__(self, client: Client, kubelets: Kubelets, *, seconds: float, tell: Tell) -> None:
        self._client = client
        self._kubelets = kubelets
        self._seconds = seconds
        self._tell = tell

    async def prepare(self) -> None:
        for name, value in CLASSES.items():
            path = resource_of(names.NATIVE_GROUP, "PriorityClass").path("v1")
            await self._client.request("POST", path, body={"metadata": {"name": name}, "value": value})
        await self._kubelets.register(_node(name) for name in NODES)

    async def run(self, *, node_of: Callable[[str], str]) -> None:
        """Until its time is over. `node_of` names a node on which a gang runs: the one that will fail."""
        async with asyncio.TaskGroup() as parts:
            for gang in GANGS:
                parts.create_task(self._submit(gang))
            parts.create_task(self._break_a_node(node_of))
            parts.create_task(self._wait(1.0))

    async def _submit(self, gang: Gang) -> None:
        await self._wait(gang.at)
        size = f"{gang.pods} x {gang.gpus} GPUs"
        self._tell(f"{gang.name} is submitted: {size}, priority {gang.priority}")
        group = {
            "apiVersion": f"{names.VOLCANO_GROUP}/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": gang.name},
            "spec": {"minMember": gang.pods, "priorityClassName": gang.priority},
        }
        await self._client.request("POST", resource_of(*_GROUPS).path("v1beta1", namespace=NAMESPACE), body=group)
        for pod in _pods(gang, runs_s=gang.runs * self._seconds):
            await self._client.request("POST", resource_of(*POD).path("v1", namespace=NAMESPACE), body=pod)

    async def _break_a_node(self, node_of: Callable[[str], str]) -> None:
        await self._wait(FAILS_AT)
        node = node_of(GANGS[0].name) or NODES[0]
        self._tell(f"node {node} fails")
        self._kubelets.fail_node(node)
        await self._wait(RETURNS_AT - FAILS_AT)
        self._tell(f"node {node} is back")
        self._kubelets.return_node(node)

    async def _wait(self, share: float) -> None:
        await asyncio.sleep(share * self._seconds)


def _pods(gang: Gang, *, runs_s: float) -> Iterator[Manifest]:
    annotations = {names.VOLCANO_GROUP_NAME: gang.name, f"{PREFIX}run-seconds": f"{runs_s:.1f}", CONTROLLER: "recreate"}
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gang.gpus)}, "requests": {"cpu": "1"}}}
    for number in range(gang.pods):
        yield {
            "metadata": {"name": f"{gang.name}-{number}", "labels": {GANG_LABEL: gang.name}, "annotations": annotations},
            "spec": {
                "schedulerName": "muster",
                "priorityClassName": gang.priority,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }


def _node(name: str) -> Manifest:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": room, "allocatable": room},
    }
