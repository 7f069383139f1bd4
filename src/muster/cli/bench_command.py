"""`muster bench`: how fast Muster decides on this machine, against the bars that it must clear."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.status import Status

from muster.bench.machine_speed import numpy_rows, python_loops
from muster.bench.workload import TARGET_TOLERANCE, Result, Workload, run_all
from muster.bench.workload_registry import ON_DEMAND, groups
from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.json_output import write_json
from muster.cli.screen import BAD, DIM, GOOD, NOTE, PLAIN, Screen, TextLine, to_stdout
from muster.cli.text_format import count, real_time
from muster.cli.text_table import Column, Subgroup, lay_out
from muster.lab.assets import NoServerBinaries
from muster.lab.certificates import NoCertificateLibrary
from muster.lab.scheduler_process import SchedulerProcessEnded
from muster.yaml_positions import nearest

RUN_FAILED = "failed"


def bench(names: Sequence[str], *, json: bool, check: bool, only_list: bool) -> int:
    chosen = _selected(names, everything=only_list)
    if only_list:
        _show_list(chosen, json=json)
        return OK
    screen = to_stdout(quiet=json)
    machine = _machine()
    screen.print_lines(_machine_lines(machine))
    results: list[Result | tuple[Workload, str]] = []
    console = Console(stderr=True)
    for workload in chosen:
        with Status(f"{workload.group}: {workload.name}", console=console) if console.is_terminal else _NoStatus():
            results.append(_run(workload))
    screen.print_lines(list(_table(results, screen)))
    missed = [r for r in results if not isinstance(r, tuple) and r.met is False]
    badly = [r for r in missed if r.missed_badly]
    broken = [r for r in results if isinstance(r, tuple)]
    if json:
        write_json("bench", ok=not badly and not broken, machine=machine, results=[_document(each) for each in results])
    screen.print_line()
    screen.print_line(_totals_line(results, missed, badly, broken))
    if not names:
        screen.print_lines([TextLine.of((f" {name} was left out: `muster bench {name}` measures it.", DIM)) for name in ON_DEMAND])
    return FAILED if broken or (check and badly) else OK


class _NoStatus:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _selected(names: Sequence[str], *, everything: bool) -> list[Workload]:
    known = groups()
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
            raise UserError(f"there is no group {name!r} of workloads. {hint}")
    wanted = names or [name for name in known if everything or name not in ON_DEMAND]
    return [workload for name, workloads in known.items() if name in wanted for workload in workloads]


def _run(workload: Workload) -> Result | tuple[Workload, str]:
    """A workload checks what it measures; where that is wrong, its figure means nothing."""
    try:
        return run_all([workload])[0]
    except (AssertionError, NoServerBinaries, NoCertificateLibrary, SchedulerProcessEnded) as error:
        return workload, str(error)


# -- what a person sees ------------------------------------------------------------------------------------------------------------


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "python_loops": round(python_loops(), 2),
        "numpy_rows": round(numpy_rows(), 2),
    }


def _machine_lines(machine: dict[str, Any]) -> list[TextLine]:
    details = f"{machine['python_loops']} million loop steps/s, {machine['numpy_rows']} million rows/s in NumPy"
    return [
        TextLine.of((f" this machine: Python {machine['python']}, {count(machine['cores'] or 1, 'core')}, {details}", DIM)),
        TextLine.of(""),
    ]


def _table(results: Sequence[Result | tuple[Workload, str]], screen: Screen) -> list[TextLine]:
    columns = [
        Column("group"),
        Column("workload"),
        Column("figure", align_right=True),
        Column("unit"),
        Column("bar", align_right=True),
        Column("verdict"),
        Column("took", align_right=True),
        Column("also"),
    ]
    return lay_out(columns, [list(_cells(result)) for result in results], width=screen.width)


def _cells(result: Result | tuple[Workload, str]) -> Iterator[Subgroup | str]:
    workload = result[0] if isinstance(result, tuple) else result.workload
    yield workload.group
    yield workload.name
    if isinstance(result, tuple):
        yield from ("", workload.unit, _target(workload), Subgroup(RUN_FAILED, BAD), "", result[1])
        return
    yield _number(result.measured.value)
    yield workload.unit
    yield _target(workload)
    yield _target_verdict(result)
    yield real_time(result.seconds)
    yield ", ".join(f"{name} {_number(value)}" for name, value in result.measured.details)


def _target(workload: Workload) -> str:
    if workload.target is None:
        return "-"
    return f"{'>=' if workload.at_least else '<='} {_number(workload.target)}"


def _target_verdict(result: Result) -> Subgroup:
    """In words: colour is never the only carrier."""
    target, value = result.workload.target, result.measured.value
    if target is None or result.met is None:
        return Subgroup("no bar", PLAIN)
    if result.met:
        return Subgroup("met", GOOD)
    return Subgroup(f"missed by {100 * abs(value - target) / target:.0f} %", BAD if result.missed_badly else NOTE)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _totals_line(
    results: Sequence[object], missed: Sequence[Result], badly: Sequence[Result], broken: Sequence[tuple[Workload, str]]
) -> TextLine:
    said = f" {count(len(results), 'workload')}: "
    if broken:
        said += f"{len(broken)} failed, "
    if not missed:
        return TextLine.of(said, ("every bar met.", GOOD))
    worse = (
        f", {len(badly)} by more than {100 * TARGET_TOLERANCE:.0f} %"
        if badly
        else f", none by more than {100 * TARGET_TOLERANCE:.0f} %"
    )
    return TextLine.of(said, (f"{count(len(missed), 'bar')} missed{worse}.", BAD if badly else NOTE))


def _show_list(chosen: Sequence[Workload], *, json: bool) -> None:
    if json:
        told = [
            {
                "group": w.group,
                "name": w.name,
                "unit": w.unit,
                "bar": w.target,
                "at_least": w.at_least if w.target is not None else None,
            }
            for w in chosen
        ]
        write_json("bench", ok=True, workloads=told)
        return
    screen = to_stdout()
    columns = [Column("group"), Column("workload"), Column("unit"), Column("bar", align_right=True)]
    screen.print_lines(lay_out(columns, [(w.group, w.name, w.unit, _target(w)) for w in chosen], width=screen.width))


def _document(result: Result | tuple[Workload, str]) -> dict[str, Any]:
    workload = result[0] if isinstance(result, tuple) else result.workload
    about = {"group": workload.group, "name": workload.name, "unit": workload.unit, "bar": workload.target}
    if isinstance(result, tuple):
        return {**about, "value": None, "met": False, "missed_badly": True, "error": result[1], "figures": {}, "seconds": None}
    return {
        **about,
        "value": result.measured.value,
        "met": result.met,
        "missed_badly": result.missed_badly,
        "error": None,
        "figures": dict(result.measured.details),
        "seconds": result.seconds,
    }
