"""`muster bench`: throughput and latency on this machine, against the targets."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.status import Status
from rich.text import Text

from muster.bench.machine_speed import numpy_rows, python_loops
from muster.bench.workload import TARGET_TOLERANCE, Result, SeededRow, Workload, measure
from muster.bench.workload_registry import ON_DEMAND, groups
from muster.cli import FAILED, OK
from muster.cli.errors import UserError
from muster.cli.json_output import JsonDocument, write_json
from muster.cli.screen import BAD, DIM, GOOD, NOTE, Screen, TextPart, styled, to_stdout
from muster.cli.text_format import count, real_time
from muster.cli.text_table import lay_out
from muster.lab.assets import NoServerBinaries
from muster.lab.scheduler_process import SchedulerProcessEnded
from muster.lab.servers import NoCertificateLibrary
from muster.yaml_positions import nearest


def bench(names: Sequence[str], *, json: bool, check: bool, only_list: bool, row: str = "", seeds: str = "", show: str = "") -> int:
    selected = _selected(names, include_on_demand=only_list or bool(row or show))
    if show:
        return _show_cluster(selected, show)
    selected = _of_seeds(selected, row, seeds)
    if only_list:
        _show_list(selected, json=json)
        return OK
    screen = to_stdout(quiet=json)
    machine = _machine()
    screen.print_lines(_machine_lines(machine))
    results = [_run(workload) for workload in selected]
    screen.print_lines(_table(results, screen))
    failed = any(result.measured is None for result in results)
    badly = any(result.missed_badly for result in results)
    if json:
        write_json("bench", ok=not badly, machine=machine, results=[_document(result) for result in results])
    screen.print_lines([styled(""), _totals_line(results)])
    if not names:
        screen.print_lines(styled((f" not run: {name}; `muster bench {name}` measures it.", DIM)) for name in ON_DEMAND)
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


def _show_cluster(selected: Sequence[Workload], name: str) -> int:
    """One random cluster, named as ROW:SEED."""
    row, _, seed = name.rpartition(":")
    found = _of_row(selected, row)
    if not row or not found:
        raise UserError(f"{name!r} names no cluster: write ROW:SEED, such as racks:17")
    print(found[0][1].show(_seeds(seed).start))
    return OK


def _of_row(selected: Sequence[Workload], row: str) -> list[tuple[Workload, SeededRow]]:
    """The workloads over random clusters, of this row or of all."""
    rows = {workload.row.name: None for workload in selected if workload.row is not None}
    if row and row not in rows:
        near = nearest(row, rows)
        raise UserError(f"unknown row {row!r}. " + (f"Did you mean {near!r}?" if near else f"Rows: {', '.join(rows) or 'none'}."))
    return [(workload, workload.row) for workload in selected if workload.row is not None and row in ("", workload.row.name)]


def _of_seeds(selected: list[Workload], row: str, seeds: str) -> list[Workload]:
    """These workloads, only those of a row, or all over random clusters on some seeds only."""
    if not seeds:
        return [workload for workload, _ in _of_row(selected, row)] if row else selected
    return [replace(workload, run=partial(found.run, _seeds(seeds))) for workload, found in _of_row(selected, row)]


def _seeds(text: str) -> range:
    """`17`, or `0-49`."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise UserError(f"{text!r} is no seed: write a number such as 17, or 0-49 for the first fifty")
    return range(int(first), int(last or first) + 1)


def _run(workload: Workload) -> Result:
    """A workload checks its own outcome; where that is wrong, there is no measurement."""
    console = Console(stderr=True)
    with Status(f"{workload.group}: {workload.name}", console=console) if console.is_terminal else nullcontext():
        try:
            return measure(workload)
        except (AssertionError, NoServerBinaries, NoCertificateLibrary, SchedulerProcessEnded) as error:
            return Result(workload, None, error=str(error))


# -- output ------------------------------------------------------------------------------------------------------------------------


def _machine() -> JsonDocument:
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "pythonLoops": round(python_loops(), 2),
        "numpyRows": round(numpy_rows(), 2),
    }


def _machine_lines(machine: JsonDocument) -> list[Text]:
    details = f"{machine['pythonLoops']} million loop steps/s, {machine['numpyRows']} million rows/s in NumPy"
    return [
        styled((f" this machine: Python {machine['python']}, {count(machine['cores'] or 1, 'core')}, {details}", DIM)),
        styled(""),
    ]


def _table(results: Sequence[Result], screen: Screen) -> list[Text]:
    columns = ["group", "workload", ">value", "unit", ">target", "result", ">took", "details"]
    return lay_out(columns, [_cells(result) for result in results], width=screen.width)


def _cells(result: Result) -> list[TextPart]:
    workload, measured = result.workload, result.measured
    about = [workload.group, workload.name]
    if measured is None:
        return [*about, "", workload.unit, _target(workload), ("failed", BAD), "", result.error]
    details = ", ".join(f"{name} {_number(value)}" for name, value in measured.details)
    verdict = _target_verdict(result)
    return [*about, _number(measured.value), workload.unit, _target(workload), verdict, real_time(result.seconds), details]


def _target(workload: Workload) -> str:
    if workload.target is None:
        return "-"
    return f"{'>=' if workload.at_least else '<='} {_number(workload.target)}"


def _target_verdict(result: Result) -> TextPart:
    """In words: colour alone must not carry meaning."""
    if result.missed_by is None:
        return "no target"
    if result.met:
        return "met", GOOD
    by = "" if math.isinf(result.missed_by) else f" by {100 * result.missed_by:.0f} %"
    return f"missed{by}", BAD if result.missed_badly else NOTE


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _totals_line(results: Sequence[Result]) -> Text:
    missed = [result for result in results if result.measured is not None and result.met is False]
    badly = sum(result.missed_badly for result in missed)
    failed = sum(result.measured is None for result in results)
    total = f" {count(len(results), 'workload')}: " + (f"{failed} failed, " if failed else "")
    if not missed:
        return styled(total, ("all targets met.", GOOD))
    tolerance = f"{badly or 'none'} by more than {100 * TARGET_TOLERANCE:.0f} %"
    return styled(total, (f"{count(len(missed), 'target')} missed, {tolerance}.", BAD if badly else NOTE))


def _show_list(selected: Sequence[Workload], *, json: bool) -> None:
    if json:
        workloads = [_about(w) | {"atLeast": w.at_least if w.target is not None else None} for w in selected]
        write_json("bench", ok=True, workloads=workloads)
        return
    screen = to_stdout()
    columns = ["group", "workload", "unit", ">target"]
    screen.print_lines(lay_out(columns, [(w.group, w.name, w.unit, _target(w)) for w in selected], width=screen.width))


def _about(workload: Workload) -> JsonDocument:
    return {"group": workload.group, "name": workload.name, "unit": workload.unit, "target": workload.target}


def _document(result: Result) -> JsonDocument:
    measured = result.measured
    return {
        **_about(result.workload),
        "value": None if measured is None else measured.value,
        "met": result.met,
        "missedBadly": result.missed_badly,
        "details": {} if measured is None else dict(measured.details),
        "seconds": None if measured is None else result.seconds,
        "error": result.error or None,
    }
