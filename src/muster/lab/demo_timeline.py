"""The timeline of the demo on a real API server: which gangs are submitted when, and which node fails.

Times are fractions of the duration. Each node has eight GPUs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.kube.read import names
from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import POD, Manifest
from muster.kube.watch.client import Client
from muster.lab.kubelets import Kubelets
from muster.sim.pod_behaviour import BEHAVIOUR_PREFIX, CONTROLLER_ANNOTATION

GPU: Final = "nvidia.com/gpu"
GPUS_PER_NODE: Final = 8
NODES: Final = tuple(f"gpu-{number:02d}" for number in range(1, 17))
NAMESPACE: Final = "default"
GANG_LABEL: Final = "demo/gang"
PRIORITY_CLASSES: Final = {"low": 10, "usual": 100, "urgent": 1000}
_POD_GROUP_KIND: Final = (names.VOLCANO_GROUP, "PodGroup")


@dataclass(frozen=True, slots=True)
class DemoGang:
    """`submit_at` and `runtime` are fractions of the duration. Evicted pods are recreated by a controller."""

    name: str
    pods: int
    gpus: int
    priority: str
    submit_at: float
    runtime: float

    @property
    def total_gpus(self) -> int:
        return self.pods * self.gpus


GANGS: Final = (
    DemoGang("pretrain", pods=8, gpus=8, priority="usual", submit_at=0.0, runtime=2.0),
    DemoGang("tune", pods=8, gpus=4, priority="low", submit_at=0.0, runtime=0.55),
    DemoGang("evaluate", pods=4, gpus=4, priority="low", submit_at=0.05, runtime=0.25),
    DemoGang("serve", pods=4, gpus=2, priority="usual", submit_at=0.1, runtime=2.0),
    DemoGang("sweep", pods=12, gpus=2, priority="low", submit_at=0.2, runtime=0.3),
    DemoGang("incident", pods=4, gpus=8, priority="urgent", submit_at=0.4, runtime=0.3),
)
NODE_FAILS_AT, NODE_RETURNS_AT = 0.6, 0.8


class DemoTimeline:
    """Runs on a cluster with kubelets. `report` gets each step."""

    def __init__(self, client: Client, kubelets: Kubelets, *, seconds: float, report: Callable[[str], None]) -> None:
        self._client = client
        self._kubelets = kubelets
        self._duration_s = seconds
        self._report = report

    async def prepare(self) -> None:
        for name, value in PRIORITY_CLASSES.items():
            path = resource_of(names.NATIVE_GROUP, "PriorityClass").path("v1")
            await self._client.request("POST", path, body={"metadata": {"name": name}, "value": value})
        await self._kubelets.register(_node(name) for name in NODES)

    async def run(self, *, nodes_of: Callable[[str], Sequence[str]]) -> None:
        """Run for the whole duration. `nodes_of` returns the nodes of a gang: the first will fail."""
        async with asyncio.TaskGroup() as tasks:
            for gang in GANGS:
                tasks.create_task(self._submit(gang))
            tasks.create_task(self._fail_node(nodes_of))
            tasks.create_task(self._wait(1.0))

    async def _submit(self, gang: DemoGang) -> None:
        await self._wait(gang.submit_at)
        size = f"{gang.pods} x {gang.gpus} GPUs"
        self._report(f"{gang.name} is submitted: {size}, priority {gang.priority}")
        group = {
            "apiVersion": f"{names.VOLCANO_GROUP}/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": gang.name},
            "spec": {"minMember": gang.pods, "priorityClassName": gang.priority},
        }
        await self._client.request("POST", resource_of(*_POD_GROUP_KIND).path("v1beta1", namespace=NAMESPACE), body=group)
        for pod in _pods(gang, runs_s=gang.runtime * self._duration_s):
            await self._client.request("POST", resource_of(*POD).path("v1", namespace=NAMESPACE), body=pod)

    async def _fail_node(self, nodes_of: Callable[[str], Sequence[str]]) -> None:
        await self._wait(NODE_FAILS_AT)
        node = next(iter(nodes_of(GANGS[0].name)), NODES[0])
        self._report(f"node {node} fails")
        self._kubelets.fail_node(node)
        await self._wait(NODE_RETURNS_AT - NODE_FAILS_AT)
        self._report(f"node {node} is back")
        self._kubelets.recover_node(node)

    async def _wait(self, fraction: float) -> None:
        await asyncio.sleep(fraction * self._duration_s)


def _pods(gang: DemoGang, *, runs_s: float) -> Iterator[Manifest]:
    annotations = {
        names.VOLCANO_GROUP_NAME: gang.name,
        f"{BEHAVIOUR_PREFIX}run-seconds": f"{runs_s:.1f}",
        CONTROLLER_ANNOTATION: "recreate",
    }
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
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": capacity, "allocatable": capacity},
    }
