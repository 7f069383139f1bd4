"""`muster crds`: print the CustomResourceDefinitions, or install those that a cluster lacks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from muster.cli import OK
from muster.cli.errors import UserError
from muster.cli.screen import DIM, GOOD, styled, to_stdout
from muster.crds.crd_definitions import as_yaml
from muster.crds.crd_install import NotServed, install
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.client import ApiError, Client


def show() -> int:
    sys.stdout.write(as_yaml())
    return OK


def install_missing(kubeconfig: Path | None, context: str) -> int:
    try:
        definitions = asyncio.run(_install(kubeconfig, context))
    except (AccessError, NotServed) as error:
        raise UserError(str(error)) from None
    except ApiError as error:
        raise UserError(f"the API server rejected the definitions: {error}") from None
    screen = to_stdout()
    for name, is_new in definitions:
        screen.print_line(styled(("installed  ", GOOD) if is_new else ("present    ", DIM), name))
    return OK


async def _install(kubeconfig: Path | None, context: str) -> tuple[tuple[str, bool], ...]:
    async with Client(await read_access(kubeconfig, context)) as client:
        return await install(client)
