"""Notices that the API server's data went back to an earlier state: its etcd was restored from a backup.

Watches do not tell: a server whose versions are below the one that a watch starts at just stays silent, and what was deleted since
the backup is there again. So its present version is read from time to time; it never falls otherwise. What watches received since
it was last read counts as well: a server that is restored soon after many writes is soon beyond the version read before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from muster.kube.read.text_values import read_version
from muster.kube.read.wire import WireObject
from muster.kube.watch.client import ApiError, Client

CHECK_INTERVAL_S: Final = 5.0
_PATH: Final = "/api/v1/namespaces"
_TIMEOUT_S: Final = 5.0


async def until_restored(client: Client, *, received: Callable[[], int], interval_s: float = CHECK_INTERVAL_S) -> str:
    """Returns what happened once the server's version is lower than it was. A server that does not answer tells nothing.

    `received`: the newest version that any watch has had."""
    newest = 0
    while True:
        newest = max(newest, received())
        try:
            version = await _present_version(client)
        except (ApiError, msgspec.DecodeError):
            version = newest
        if version < newest:
            return f"the server's version fell from {newest} to {version}"
        newest = version
        await asyncio.sleep(interval_s)


async def _present_version(client: Client) -> int:
    """Of a list that is not served from a cache, which may be behind."""
    answer = await client.request("GET", _PATH, params={"limit": "1"}, timeout_s=_TIMEOUT_S)
    return read_version(msgspec.json.decode(answer, type=WireObject).metadata.resource_version)
