"""Which versions of the watched resources an API server serves."""

from __future__ import annotations

import asyncio

import msgspec

from muster.kube.read.api_resources import WATCHED
from muster.kube.watch.client import ApiError, Client

_NOT_FOUND = 404


class _NamedResource(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    resources: list[_NamedResource] = []


async def discover_versions(client: Client) -> dict[tuple[str, str], str]:
    """The served version of each watched resource; those that are not served are missing."""
    group_versions = sorted({(resource.group, version) for resource in WATCHED for version in resource.versions})
    answers = await asyncio.gather(*(_served(client, group, version) for group, version in group_versions))
    served = dict(zip(group_versions, answers, strict=True))
    return {
        resource.key: version
        for resource in WATCHED
        for version in reversed(resource.versions)
        if resource.plural in served[resource.group, version]
    }


async def _served(client: Client, group: str, version: str) -> frozenset[str]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await client.request("GET", path)
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return frozenset()
        raise
    return frozenset(entry.name for entry in msgspec.json.decode(answer, type=_ResourceList).resources)
