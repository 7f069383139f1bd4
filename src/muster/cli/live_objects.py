"""All objects of a live cluster as the scheduler reads them. Requests are GET alone; what is forbidden is left out, and named."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from muster.cli.errors import UserError
from muster.cli.progress_bar import Counting
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.object_references import GroupKind
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.client import NO_RESPONSE, ApiError, Client
from muster.model.events import ClusterObject
from muster.snapshot.capture import list_raw

LiveObjects = tuple[list[ClusterObject], list[str]]
"""The objects, and the resources that could not be read."""


def read_live_objects(decoder: Decoder, *, kubeconfig: Path | None, context: str, quiet: bool) -> LiveObjects:
    try:
        return asyncio.run(_read(decoder, kubeconfig, context, quiet=quiet))
    except AccessError as error:
        raise UserError(str(error)) from None
    except ApiError as error:
        answer = str(error) if error.status != NO_RESPONSE else f"no response: {error.message.partition(': ')[2] or error.reason}"
        raise UserError(f"the cluster cannot be read: {answer}") from None


async def _read(decoder: Decoder, kubeconfig: Path | None, context: str, *, quiet: bool) -> LiveObjects:
    objects: list[ClusterObject] = []
    unread: list[str] = []
    async with Client(await read_access(kubeconfig, context)) as client:
        with Counting("reading the cluster", quiet=quiet) as progress:
            async for kind, items in list_raw(client, unread):
                objects += [obj for item in items if (obj := _read_one(decoder, kind, item)) is not None]
                progress.show(len(objects))
    return objects, unread


def _read_one(decoder: Decoder, kind: GroupKind, item: msgspec.Raw) -> ClusterObject | None:
    try:
        return decoder.decode_as(kind, item)
    except BadObject:
        return None
