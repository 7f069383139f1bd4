"""`muster snapshot`: save what the scheduler sees of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from muster.adapters.kube.access import AccessError, read_access
from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.refs import Manifest
from muster.cli import OK
from muster.cli.errors import UserError
from muster.cli.screen import to_stdout
from muster.cli.words import count
from muster.snapshot.anonymous import anonymous as renamed
from muster.snapshot.file import write
from muster.snapshot.take import take


def save(output: Path, *, kubeconfig: Path | None, context: str, anonymous: bool) -> int:
    try:
        objects = asyncio.run(_taken(kubeconfig, context))
    except AccessError as error:
        raise UserError(str(error)) from None
    except ApiError as error:
        raise UserError(f"the cluster cannot be read: {error}") from None
    try:
        size = write(output, renamed(objects) if anonymous else objects, now=time.time())
    except OSError as error:
        raise UserError(f"{output}: {(error.strerror or str(error)).lower()}") from None
    kinds = Counter(str(each["kind"]) for each in objects)
    figures = f"{count(kinds['Node'], 'node')}, {count(kinds['Pod'], 'pod')}, {count(len(objects), 'object')} in all"
    to_stdout().say(f"{output}: {figures}, {size / 1024:.0f} KiB{', names replaced' if anonymous else ''}")
    return OK


async def _taken(kubeconfig: Path | None, context: str) -> list[Manifest]:
    client = Client(await read_access(kubeconfig, context))
    try:
        return await take(client)
    finally:
        await client.close()
