"""All objects of the watched resources as they are now. Nothing else is requested: no secret is ever read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.kube.read.api_resources import WATCHED, ApiResource
from muster.kube.read.object_references import NODE, POD, GroupKind, Manifest
from muster.kube.watch.client import FORBIDDEN, NOT_FOUND, ApiError, Client
from muster.snapshot.strip import strip_object

_PAGE_SIZE = 500
_TIMEOUT_S = 60.0


class _Page(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


async def capture(client: Client) -> list[Manifest]:
    """Stripped, in the order of `WATCHED`: objects that others refer to come first."""
    found: list[Manifest] = []
    for resource in WATCHED:
        async for version, items in _list_objects(client, resource):
            type_meta = {"apiVersion": resource.api_version(version), "kind": resource.kind}
            found.extend(strip_object({**type_meta, **msgspec.json.decode(item)}, kind=resource.key) for item in items)
    return found


async def list_raw(client: Client, unread: list[str]) -> AsyncIterator[tuple[GroupKind, list[msgspec.Raw]]]:
    """Page by page what somebody may read who only asks: whatever is not served is left out, and what is forbidden is named in
    `unread`, unless it is nodes or pods."""
    for resource in WATCHED:
        try:
            async for _, items in _list_objects(client, resource):
                yield resource.key, items
        except ApiError as error:
            if error.status == FORBIDDEN and resource.key not in (NODE, POD):
                unread.append(resource.plural)
            elif error.status != NOT_FOUND:
                raise


async def _list_objects(client: Client, resource: ApiResource) -> AsyncIterator[tuple[str, list[msgspec.Raw]]]:
    """Pages of the first version that is served; none of an optional resource that is not served."""
    for version in resource.versions:
        try:
            async for items in _pages(client, resource.path(version)):
                yield version, items
            return
        except ApiError as error:
            if error.status != NOT_FOUND or not resource.optional:
                raise


async def _pages(client: Client, path: str) -> AsyncIterator[list[msgspec.Raw]]:
    params = {"limit": str(_PAGE_SIZE)}
    while True:
        page = msgspec.json.decode(await client.request("GET", path, params=params, timeout_s=_TIMEOUT_S), type=_Page)
        yield page.items or []
        token = page.metadata.get("continue")
        if not token:
            return
        params["continue"] = token
