"""`muster crds`: print the definitions of custom objects, or give a cluster those that it lacks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from muster.adapters.kube.access import AccessError, read_access
from muster.adapters.kube.client import ApiError, Client
from muster.cli import OK
from muster.cli.errors import UserError
from muster.cli.screen import DIM, GOOD, Line, to_stdout
from muster.crds.definitions import as_yaml
from muster.crds.install import NotServed, install


def show() -> int:
    sys.stdout.write(as_yaml())
    return OK


def install_absent(kubeconfig: Path | None, context: str) -> int:
    try:
        done = asyncio.run(_installed(kubeconfig, context))
    except (AccessError, NotServed) as error:
        raise UserError(str(error)) from None
    except ApiError as error:
        raise UserError(f"the API server did not take the definitions: {error}") from None
    screen = to_stdout()
    for name, is_new in done:
        screen.say(Line.of(("installed  ", GOOD) if is_new else ("is there   ", DIM), name))
    return OK


async def _installed(kubeconfig: Path | None, context: str) -> tuple[tuple[str, bool], ...]:
    client = Client(await read_access(kubeconfig, context))
    try:
        return await install(client)
    finally:
        await client.close()
