"""All objects of the watched resources as they are now. Nothing else is requested: no secret is ever read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.kube.read.object_references import Manifest
from muster.kube.watch.api_resources import WATCHED, ApiResource
from muster.kube.watch.client import ApiError, Client
from muster.snapshot.strip import strip_object

_NOT_FOUND = 404
_PAGE_SIZE = 500
_TIMEOUT_S = 60.0


class _Page(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[Manifest] | None = None


async def capture(client: Client) -> list[Manifest]:
    """Stripped, in the order of `WATCHED`: objects that others refer to come first."""
    found: list[Manifest] = []
    for resource in WATCHED:
        async for version, items in _list_objects(client, resource):
            type_meta = {"apiVersion": resource.api_version(version), "kind": resource.kind}
            found.extend(strip_object({**type_meta, **item}, kind=resource.key) for item in items)
    return found


async def _list_objects(client: Client, resource: ApiResource) -> AsyncIterator[tuple[str, list[Manifest]]]:
    """Pages of the first version that is served; none of an optional resource that is not served."""
    for version in resource.versions:
        try:
            async for items in _pages(client, resource.path(version)):
                yield version, items
            return
        except ApiError as error:
            if error.status != _NOT_FOUND or not resource.optional:
                raise


async def _pages(client: Client, path: str) -> AsyncIterator[list[Manifest]]:
    params = {"limit": str(_PAGE_SIZE)}
    while True:
        page = msgspec.json.decode(await client.request("GET", path, params=params, timeout_s=_TIMEOUT_S), type=_Page)
        yield page.items or []
        token = page.metadata.get("continue")
        if not token:
            return
        params["continue"] = token
