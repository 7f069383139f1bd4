"""Create the definitions that a cluster lacks, and wait until it serves them."""

from __future__ import annotations

import asyncio
from typing import Final

from muster.crds.crd_definitions import Schema, definitions, name_of
from muster.kube.watch.client import CONFLICT, NOT_FOUND, ApiError, Client

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_S = 0.1
_SERVE_TIMEOUT_S = 30.0


class NotServed(Exception):
    """A definition was created, but is not served."""


async def install(client: Client, *, group: str = "") -> tuple[tuple[str, bool], ...]:
    """The name of each definition, and whether it was created now. Existing ones are not changed. `group`: of this one only."""
    wanted = [each for each in definitions() if group in ("", each["spec"]["group"])]
    created = [(name_of(each), await _create(client, each)) for each in wanted]
    try:
        async with asyncio.timeout(_SERVE_TIMEOUT_S):
            await asyncio.gather(*(_wait_until_served(client, each) for each, (_, new) in zip(wanted, created, strict=True) if new))
    except TimeoutError:
        raise NotServed(f"the cluster does not serve the new definitions after {_SERVE_TIMEOUT_S:g} s") from None
    return tuple(created)


async def _create(client: Client, definition: Schema) -> bool:
    try:
        await client.request("GET", f"{_PATH}/{name_of(definition)}")
        return False
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
    try:
        await client.request("POST", _PATH, body=definition)
    except ApiError as error:
        # It was created by another client a moment ago.
        if error.status == CONFLICT:
            return False
        raise
    return True


async def _wait_until_served(client: Client, definition: Schema) -> None:
    spec = definition["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    while True:
        try:
            await client.request("GET", path, params={"limit": "1"})
            return
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        await asyncio.sleep(_POLL_S)
