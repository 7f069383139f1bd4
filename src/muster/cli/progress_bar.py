"""Progress while scenarios run or a cluster is read, if the error stream is a terminal. It is removed at the end."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from muster.cli.text_format import clock
from muster.model.printable_text import printable
from muster.scenario.run_report import CycleUpdate

_MAX_NAME_WIDTH = 28


class _TerminalProgress:
    """Prints nothing unless the error stream is a terminal."""

    def __init__(self, what: str, *columns: ProgressColumn, quiet: bool) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False)
        title = TextColumn(" {task.description}", markup=False, table_column=Column(no_wrap=True))
        hidden = quiet or not console.is_terminal
        self._progress = Progress(title, *columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden)
        self._task = self._progress.add_task(what, total=None, at="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()


class ProgressBar(_TerminalProgress):
    """Observes a run."""

    def __init__(self, *, quiet: bool = False) -> None:
        at = TextColumn("{task.fields[at]}", table_column=Column(no_wrap=True))
        bar = BarColumn(bar_width=max(10, min(40, Console(file=sys.stderr).width - 80)))
        super().__init__("", bar, at, quiet=quiet)

    def begin(self, name: str) -> None:
        self._progress.reset(self._task, total=None, description=printable(name)[:_MAX_NAME_WIDTH], at="")

    def cycle(self, cycle_update: CycleUpdate) -> None:
        row, total_s = cycle_update.row, cycle_update.total_s
        at = f"cycle {row.cycle}  {clock(row.at_s)} of {clock(total_s)} virtual"
        self._progress.update(self._task, completed=row.at_s, total=total_s or None, at=at)


class Counting(_TerminalProgress):
    """How much was read so far."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(what, BarColumn(bar_width=20), TextColumn("{task.completed:,.0f} objects"), quiet=quiet)

    def show(self, number: int) -> None:
        self._progress.update(self._task, completed=number)
