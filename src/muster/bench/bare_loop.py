"""The least that a scheduler could do: bind these pods to these nodes, and nothing else. What a live scheduler is measured against.

Run as a program, with a kubeconfig as its argument and the pods on its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from muster.adapters.kube import encode
from muster.adapters.kube.access import read_access
from muster.adapters.kube.client import Client
from muster.adapters.kube.writer import DEFAULT_PACE
from muster.model.effects import Bind

Seat = tuple[str, str, str]
"""A pod's title, its UID, and a node."""


async def bind_all(kubeconfig: Path, seats: list[Seat]) -> None:
    """With the client of a live scheduler, and as many at once."""
    client = Client(await read_access(kubeconfig))
    left = iter(seats)
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(DEFAULT_PACE.deeds_at_once):
                workers.create_task(_bind_some(client, left))
    finally:
        await client.close()


async def _bind_some(client: Client, left: Iterator[Seat]) -> None:
    for pod, uid, node in left:
        namespace, _, name = pod.rpartition("/")
        body = encode.binding(Bind(uid, pod, node, "", ""), now=0.0)
        await client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)


if __name__ == "__main__":
    asyncio.run(bind_all(Path(sys.argv[1]), msgspec.json.decode(sys.stdin.buffer.read(), type=list[Seat])))
