"""A progress bar while scenarios run, if the error stream is a terminal. It is removed at the end."""

from __future__ import annotations

import sys
from time import perf_counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from muster.cli.screen import escape_control
from muster.cli.text_format import clock
from muster.scenario.run_report import CycleUpdate

_MAX_NAME_WIDTH = 28


class ProgressBar:
    """Observes a run. Prints nothing unless the error stream is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False)
        self._progress = Progress(
            TextColumn(" {task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=max(10, min(40, console.width - 80))),
            _ClockColumn(table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, cycle=0, at="", began=perf_counter())

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        self._progress.update(
            self._task, description=escape_control(name)[:_MAX_NAME_WIDTH], completed=0, total=None, began=perf_counter()
        )

    def cycle(self, cycle_update: CycleUpdate) -> None:
        row = cycle_update.row
        self._progress.update(
            self._task,
            completed=row.at_s,
            total=cycle_update.total_s or None,
            cycle=row.cycle,
            at=f"{clock(row.at_s)} of {clock(cycle_update.total_s)}",
        )


class _ClockColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        fields = task.fields
        elapsed = f"{perf_counter() - fields['began']:.1f} s real"
        return Text(f"cycle {fields['cycle']}  {fields['at']} virtual  {elapsed}" if fields["cycle"] else elapsed)
