"""`muster bench`: throughput and latency on this machine, against the targets."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from rich.console import Console
from rich.status import Status

from muster.bench.machine_speed import numpy_rows, python_loops
from muster.bench.workload import TARGET_TOLERANCE, Result, Workload, measure
from muster.bench.workload_registry import ON_DEMAND, groups
from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.json_output import JsonDocument, write_json
from muster.cli.screen import BAD, DIM, GOOD, NOTE, PLAIN, Screen, TextLine, to_stdout
from muster.cli.text_format import count, real_time
from muster.cli.text_table import Column, TableCell, lay_out
from muster.lab.assets import NoServerBinaries
from muster.lab.certificates import NoCertificateLibrary
from muster.lab.scheduler_process import SchedulerProcessEnded
from muster.yaml_positions import nearest

RUN_FAILED = "failed"


def bench(names: Sequence[str], *, json: bool, check: bool, only_list: bool) -> int:
    selected = _selected(names, include_on_demand=only_list)
    if only_list:
        _show_list(selected, json=json)
        return OK
    screen = to_stdout(quiet=json)
    machine = _machine()
    screen.print_lines(_machine_lines(machine))
    results: list[Result | tuple[Workload, str]] = []
    console = Console(stderr=True)
    for workload in selected:
        with Status(f"{workload.group}: {workload.name}", console=console) if console.is_terminal else nullcontext():
            results.append(_run(workload))
    screen.print_lines(_table(results, screen))
    missed = [result for result in results if not isinstance(result, tuple) and result.met is False]
    badly = [result for result in missed if result.missed_badly]
    failed = [result for result in results if isinstance(result, tuple)]
    if json:
        write_json("bench", ok=not badly and not failed, machine=machine, results=[_document(each) for each in results])
    screen.print_line()
    screen.print_line(_totals_line(len(results), missed=len(missed), badly=len(badly), failed=len(failed)))
    if not names:
        screen.print_lines([TextLine.of((f" not run: {name}; `muster bench {name}` measures it.", DIM)) for name in ON_DEMAND])
    return FAILED if failed or (check and badly) else OK


def _selected(names: Sequence[str], *, include_on_demand: bool) -> list[Workload]:
    known = groups()
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"Did you mean {near!r}?" if near else f"Groups: {', '.join(known)}."
            raise UserError(f"unknown group of workloads {name!r}. {hint}")
    selected = names or [name for name in known if include_on_demand or name not in ON_DEMAND]
    return [workload for name, workloads in known.items() if name in selected for workload in workloads]


def _run(workload: Workload) -> Result | tuple[Workload, str]:
    """A workload checks its own outcome; where that is wrong, there is no measurement."""
    try:
        return measure(workload)
    except (AssertionError, NoServerBinaries, NoCertificateLibrary, SchedulerProcessEnded) as error:
        return workload, str(error)


# -- output ------------------------------------------------------------------------------------------------------------------------


def _machine() -> JsonDocument:
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "pythonLoops": round(python_loops(), 2),
        "numpyRows": round(numpy_rows(), 2),
    }


def _machine_lines(machine: JsonDocument) -> list[TextLine]:
    details = f"{machine['pythonLoops']} million loop steps/s, {machine['numpyRows']} million rows/s in NumPy"
    return [
        TextLine.of((f" this machine: Python {machine['python']}, {count(machine['cores'] or 1, 'core')}, {details}", DIM)),
        TextLine.of(""),
    ]


def _table(results: Sequence[Result | tuple[Workload, str]], screen: Screen) -> list[TextLine]:
    columns = [
        Column("group"),
        Column("workload"),
        Column("value", align_right=True),
        Column("unit"),
        Column("target", align_right=True),
        Column("result"),
        Column("took", align_right=True),
        Column("details"),
    ]
    return lay_out(columns, [list(_cells(result)) for result in results], width=screen.width)


def _cells(result: Result | tuple[Workload, str]) -> Iterator[TableCell | str]:
    workload = result[0] if isinstance(result, tuple) else result.workload
    yield workload.group
    yield workload.name
    if isinstance(result, tuple):
        yield from ("", workload.unit, _target(workload), TableCell(RUN_FAILED, BAD), "", result[1])
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


def _target_verdict(result: Result) -> TableCell:
    """In words: colour alone must not carry meaning."""
    target, value = result.workload.target, result.measured.value
    if target is None or result.met is None:
        return TableCell("no target", PLAIN)
    if result.met:
        return TableCell("met", GOOD)
    return TableCell(f"missed by {100 * abs(value - target) / target:.0f} %", BAD if result.missed_badly else NOTE)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _totals_line(results: int, *, missed: int, badly: int, failed: int) -> TextLine:
    total = f" {count(results, 'workload')}: " + (f"{failed} failed, " if failed else "")
    if not missed:
        return TextLine.of(total, ("all targets met.", GOOD))
    tolerance = f"{badly or 'none'} by more than {100 * TARGET_TOLERANCE:.0f} %"
    return TextLine.of(total, (f"{count(missed, 'target')} missed, {tolerance}.", BAD if badly else NOTE))


def _show_list(selected: Sequence[Workload], *, json: bool) -> None:
    if json:
        workloads = [_about(w) | {"atLeast": w.at_least if w.target is not None else None} for w in selected]
        write_json("bench", ok=True, workloads=workloads)
        return
    screen = to_stdout()
    columns = [Column("group"), Column("workload"), Column("unit"), Column("target", align_right=True)]
    screen.print_lines(lay_out(columns, [(w.group, w.name, w.unit, _target(w)) for w in selected], width=screen.width))


def _about(workload: Workload) -> JsonDocument:
    return {"group": workload.group, "name": workload.name, "unit": workload.unit, "target": workload.target}


def _document(result: Result | tuple[Workload, str]) -> JsonDocument:
    if isinstance(result, tuple):
        nothing: JsonDocument = {"value": None, "met": False, "missedBadly": True, "details": {}, "seconds": None}
        return {**_about(result[0]), **nothing, "error": result[1]}
    return {
        **_about(result.workload),
        "value": result.measured.value,
        "met": result.met,
        "missedBadly": result.missed_badly,
        "details": dict(result.measured.details),
        "seconds": result.seconds,
        "error": None,
    }
