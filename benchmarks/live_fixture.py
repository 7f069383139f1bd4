"""Nodes and pods on a real API server, and a recorder of its watches, for the workloads of a live scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.crds.crd_install import install
from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError, Client

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
ALL_PODS: Final = "/api/v1/pods"
GANG_SIZE: Final = 20
_KOORDINATOR_GANG: Final = "gang.scheduling.koordinator.sh"
_CONCURRENCY: Final = 48
_CHECK_INTERVAL_S: Final = 1.0
_MERGE_PATCH: Final = "application/merge-patch+json"
_WATCH_LIST_PARAMS: Final = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
}

Batches = list[list[bytes]]
"""Lines of a watch in the batches in which they arrived."""


class LiveFixture:
    """Creates and deletes objects as the admin. Belongs to one event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rounds = 0

    async def make_nodes(self, count: int) -> None:
        async def make(number: int) -> None:
            name = node_name(number)
            capacity = {"cpu": "64", "memory": "512Gi", "pods": "250"}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
            status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
            await self._client.request("POST", NODES, body={"metadata": {"name": name}, "status": status})
            # The server taints every new node as not ready.
            patch = {"spec": {"taints": None}}
            await self._client.request("PATCH", f"{NODES}/{name}", body=patch, content_type=_MERGE_PATCH)

        await _run_bounded(make(number) for number in range(count))

    async def make_pods(self, count: int, *, scheduler: str, bound_to: int = 0, native: bool = False) -> list[tuple[str, str]]:
        """Half of them in gangs, half single; name and UID of each. `bound_to`: spread over so many nodes, as bound pods.
        `native`: all of them in gangs, each with a PodGroup of Kubernetes itself."""
        made: list[tuple[str, str]] = []
        if native:
            # Kubernetes deletes those of the round before only when their pods are gone.
            self._rounds += 1
            await _run_bounded(self._make_group(f"gang-{self._rounds}-{gang}") for gang in range(-(-count // GANG_SIZE)))

        async def make(number: int) -> None:
            node = node_name(number % bound_to) if bound_to else ""
            answer = await self._client.request(
                "POST", PODS, body=_pod(number, count=count, scheduler=scheduler, node=node, rounds=self._rounds if native else 0)
            )
            metadata = msgspec.json.decode(answer, type=_Object).metadata
            made.append((metadata.name, metadata.uid))

        await _run_bounded(make(number) for number in range(count))
        return made

    async def _make_group(self, name: str) -> None:
        spec = {"schedulingPolicy": {"gang": {"minCount": GANG_SIZE}}}
        await self._client.request("POST", GROUPS, body={"metadata": {"name": name}, "spec": spec})

    async def remove_pods(self) -> None:
        """Delete all pods, and wait until they are gone."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        await self._client.request("DELETE", PODS, body=options, timeout_s=120.0)
        while msgspec.json.decode(await self._client.request("GET", PODS, params={"limit": "1"}), type=_PodPage).items:
            await asyncio.sleep(0.1)
        with suppress(ApiError):
            await self._client.request("DELETE", GROUPS, body=options, timeout_s=120.0)

    @asynccontextmanager
    async def recording(self, path: str) -> AsyncIterator[WatchRecorder]:
        watch = WatchRecorder()
        recording = asyncio.create_task(watch.record(self._client, path))
        try:
            await watch.synced.wait()
            yield watch
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)


class WatchRecorder:
    """The lines of a watch from its beginning, and when each pod was first seen on a node."""

    def __init__(self) -> None:
        self.recorded: Batches = []
        self.synced = asyncio.Event()
        self.bound_at: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def record(self, client: Client, path: str) -> None:
        """Until cancelled. A server ends a watch that is too slow; the next one lists everything again."""
        while True:
            self.recorded.clear()
            async with aclosing(client.watch_batches(path, params=_WATCH_LIST_PARAMS)) as batches:
                async for lines in batches:
                    now = time.monotonic()
                    self.recorded.append(lines)
                    for line in lines:
                        self._record_event(_EVENT.decode(line), now)
                    self._changed.set()

    def _record_event(self, event: _WatchLine, now: float) -> None:
        if event.type == "BOOKMARK":
            self.synced.set()
        elif event.object.spec.node_name:
            self.bound_at.setdefault(event.object.metadata.name, now)

    async def wait_until_bound(self, count: int, *, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until so many pods have a node. `check` is called regularly, and raises where that cannot happen any more."""
        deadline = time.monotonic() + timeout_s
        while len(self.bound_at) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self.bound_at)} of {count} pods were bound within {timeout_s:.0f} s")
            check()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL_S):
                    await self._changed.wait()

    def binds_per_second(self) -> float:
        """The rate from the first pod that was seen on a node to the last."""
        times = self.bound_at.values()
        return (len(times) - 1) / (max(times) - min(times))


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def _pod(number: int, *, count: int, scheduler: str, node: str, rounds: int = 0) -> Manifest:
    """`rounds`: of native PodGroups, or none."""
    requests = {"cpu": "500m", "memory": "1Gi"}
    gang, in_gang = number // GANG_SIZE, number // GANG_SIZE < count // 2 // GANG_SIZE
    annotations = (
        {f"{_KOORDINATOR_GANG}/name": f"gang-{gang}", f"{_KOORDINATOR_GANG}/min-available": str(GANG_SIZE)}
        if in_gang and not rounds
        else {}
    )
    spec: Manifest = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
    }
    if rounds:
        spec["schedulingGroup"] = {"podGroupName": f"gang-{rounds}-{gang}"}
    if node:
        spec["nodeName"] = node
    labels = {"app": f"gang-{gang}" if in_gang else "single"}
    return {"metadata": {"name": f"pod-{number:05d}", "labels": labels, "annotations": annotations}, "spec": spec}


async def _run_bounded(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """With a bounded number of tasks."""
    remaining = iter(work)

    async def run_some() -> None:
        for coroutine in remaining:
            await coroutine

    async with asyncio.TaskGroup() as workers:
        for _ in range(_CONCURRENCY):
            workers.create_task(run_some())


@asynccontextmanager
async def open_fixture(kubeconfig: Path) -> AsyncIterator[LiveFixture]:
    client = Client(await read_access(kubeconfig))
    try:
        await install(client, group=names.MUSTER_GROUP)
        yield LiveFixture(client)
    finally:
        await client.close()


class _WatchedMeta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _WatchedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _WatchedMeta = msgspec.field(default_factory=_WatchedMeta)
    spec: _WatchedSpec = msgspec.field(default_factory=_WatchedSpec)


class _WatchLine(msgspec.Struct):
    type: str
    object: _Object


class _PodPage(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_EVENT: Final = msgspec.json.Decoder(_WatchLine)
