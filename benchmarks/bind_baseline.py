"""The baseline of the live workloads: binds given pods to given nodes, and nothing else.

Run as a program, with a kubeconfig and a number of connections as its arguments and the bindings on its standard input. It prints
its binds per second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.kube.write import patch_bodies
from muster.model.effects import Bind

PodBinding = tuple[str, str, str]
"""A pod's key, its UID, and a node."""


async def bind_all(kubeconfig: Path, bindings: list[PodBinding], *, connections: int) -> float:
    """With the client of a live scheduler. Binds per second."""
    client = Client(await read_access(kubeconfig))
    remaining = iter(bindings)
    try:
        async with asyncio.TaskGroup() as workers:
            began = time.monotonic()
            for _ in range(connections):
                workers.create_task(_bind_some(client, remaining))
        return len(bindings) / (time.monotonic() - began)
    finally:
        await client.close()


async def _bind_some(client: Client, remaining: Iterator[PodBinding]) -> None:
    for pod, uid, node in remaining:
        namespace, _, name = pod.rpartition("/")
        body = patch_bodies.binding(Bind(uid, pod, node, "", ""), now=0.0)
        await client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[PodBinding])
    print(asyncio.run(bind_all(Path(sys.argv[1]), wanted, connections=int(sys.argv[2]))))
