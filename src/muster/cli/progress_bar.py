"""A progress bar while scenarios run or a cluster is read, if the error stream is a terminal. It is removed at the end."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from muster.cli.text_format import clock
from muster.model.printable_text import printable
from muster.scenario.run_report import CycleUpdate

_MAX_NAME_WIDTH = 28


class ProgressBar:
    """Observes a run. Prints nothing unless the error stream is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False)
        self._progress = Progress(
            TextColumn(" {task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=max(10, min(40, console.width - 80))),
            TextColumn("{task.fields[at]}", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, at="")

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        self._progress.reset(self._task, total=None, description=printable(name)[:_MAX_NAME_WIDTH], at="")

    def cycle(self, cycle_update: CycleUpdate) -> None:
        row, total_s = cycle_update.row, cycle_update.total_s
        at = f"cycle {row.cycle}  {clock(row.at_s)} of {clock(total_s)} virtual"
        self._progress.update(self._task, completed=row.at_s, total=total_s or None, at=at)


class Counting:
    """How much was read so far, if the error stream is a terminal."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False)
        self._progress = Progress(
            TextColumn(" {task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f} objects"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Counting:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, number: int) -> None:
        self._progress.update(self._task, completed=number)
