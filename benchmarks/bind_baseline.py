"""The baseline of the live workloads: binds given pods to given nodes, and nothing else.

Run as a program, with a kubeconfig as its argument and the bindings on its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.kube.write import patch_bodies
from muster.kube.write.effect_writer import DEFAULT_WRITE_LIMITS
from muster.model.effects import Bind

PodBinding = tuple[str, str, str]
"""A pod's key, its UID, and a node."""


async def bind_all(kubeconfig: Path, bindings: list[PodBinding]) -> None:
    """With the client and the concurrency of a live scheduler."""
    client = Client(await read_access(kubeconfig))
    remaining = iter(bindings)
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(DEFAULT_WRITE_LIMITS.pod_write_concurrency):
                workers.create_task(_bind_some(client, remaining))
    finally:
        await client.close()


async def _bind_some(client: Client, remaining: Iterator[PodBinding]) -> None:
    for pod, uid, node in remaining:
        namespace, _, name = pod.rpartition("/")
        body = patch_bodies.binding(Bind(uid, pod, node, "", ""), now=0.0)
        await client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)


if __name__ == "__main__":
    asyncio.run(bind_all(Path(sys.argv[1]), msgspec.json.decode(sys.stdin.buffer.read(), type=list[PodBinding])))
