"""`muster snapshot`: save what the scheduler reads of a cluster to a file."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from muster.cli import OK
from muster.cli.errors import UserError, file_error
from muster.cli.screen import to_stdout
from muster.cli.text_format import count
from muster.kube.read.object_references import Manifest
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.client import ApiError, Client
from muster.snapshot.anonymize import anonymize
from muster.snapshot.capture import capture
from muster.snapshot.snapshot_file import write


def save(output: Path, *, kubeconfig: Path | None, context: str, anonymous: bool) -> int:
    try:
        objects = asyncio.run(_take_snapshot(kubeconfig, context))
    except AccessError as error:
        raise UserError(str(error)) from None
    except ApiError as error:
        raise UserError(f"the cluster cannot be read: {error}") from None
    try:
        size = write(output, anonymize(objects) if anonymous else objects, now=time.time())
    except OSError as error:
        raise file_error(output, error) from None
    kinds = Counter(str(manifest["kind"]) for manifest in objects)
    counts = f"{count(kinds['Node'], 'node')}, {count(kinds['Pod'], 'pod')}, {count(len(objects), 'object')} in total"
    to_stdout().print_line(f"{output}: {counts}, {size / 1024:.0f} KiB{', names replaced' if anonymous else ''}")
    return OK


async def _take_snapshot(kubeconfig: Path | None, context: str) -> list[Manifest]:
    async with Client(await read_access(kubeconfig, context)) as client:
        return await capture(client)
