"""`muster view`: the page of `muster run` about a file, and the report of `muster sim --html`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from pathlib import Path

from muster.cli import OK
from muster.cli.cluster_state import LOG_SUFFIX, ClusterOptions, played_log, read_cluster_state
from muster.cli.errors import UserError, file_error
from muster.cli.screen import DIM, styled, to_stdout
from muster.config import load_policy
from muster.decision_log import BadDecisionLog
from muster.private_file import open_private
from muster.web.api_access import LoopbackAccess, is_local
from muster.web.api_server import ApiServer
from muster.web.dry_runs import DryRuns
from muster.web.http_server import BadAddress, read_address, serving_api
from muster.web.recorded_views import RecordedViews, at_one_moment, recorded
from muster.web.report_file import MAX_REPORT_FRAMES, report_html
from muster.web.view_source import NotReady


def show_page(options: ClusterOptions, address: str) -> int:
    try:
        host, port = read_address(address)
    except BadAddress as error:
        raise UserError(f"--address: {error}") from None
    if not is_local("127.0.0.1" if host == "localhost" else host):
        raise UserError(f"--address: {address} is not of this machine alone; write for example 127.0.0.1:8080")
    views = read_views(options)
    try:
        return asyncio.run(_serve(views, (host, port)))
    except BadAddress as error:
        raise UserError(f"--address: {error}") from None


def read_views(options: ClusterOptions) -> RecordedViews:
    policy = load_policy(options.policy) if options.policy is not None else None
    try:
        if Path(options.cluster).suffix == LOG_SUFFIX:
            with Path(options.cluster).open("rb") as lines:
                return recorded(lines, file=options.cluster, policy=policy)
        if log := played_log(options):
            return recorded(log.splitlines(keepends=True), file=options.cluster, policy=policy)
    except OSError as error:
        raise file_error(Path(options.cluster), error) from None
    except (BadDecisionLog, NotReady) as error:
        raise UserError(f"{options.cluster}: {error}") from None
    state = read_cluster_state(options)
    return at_one_moment(state.policy, list(state.objects), now=state.now)


def write_report(path: Path, log: bytes) -> None:
    """The report about a decision log."""
    try:
        views = recorded(log.splitlines(keepends=True), file=str(path), most=MAX_REPORT_FRAMES)
    except NotReady as error:
        raise UserError(f"--html: {error}") from None
    try:
        with open_private(path, "wb") as file:
            file.write(report_html(views).encode())
    except OSError as error:
        raise file_error(path, error, why="the report cannot be written: ") from None


async def _serve(views: RecordedViews, address: tuple[str, int]) -> int:
    with closing(ApiServer(views, DryRuns())) as api:
        await _serve_api(api, address)
    return OK


async def _serve_api(api: ApiServer, address: tuple[str, int]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving_api(api, LoopbackAccess(), address) as (host, port):
        screen = to_stdout()
        shown = f"[{host}]" if ":" in host else host
        screen.print_line(styled(f" http://{shown}:{port}/", ("   Ctrl-C ends it", DIM)))
        await stopped.wait()
