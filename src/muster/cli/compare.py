"""`muster compare`: histories of jobs played with several policies, and `muster sim` of one."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from muster.cli import OK
from muster.cli.errors import UserError, file_error
from muster.cli.json_output import JsonDocument, write_json
from muster.cli.screen import BAD, DIM, GOOD, TextPart, styled, to_stdout
from muster.cli.text_format import count
from muster.cli.text_table import lay_out
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.trace.comparison import Comparison, FigureRow, JobDifference, MakeTrace, compare, compare_filling
from muster.trace.job_simulation import JobRun
from muster.trace.job_trace import JobTrace, shuffled
from muster.trace.made_trace import make_trace, parse_made_trace
from muster.trace.table_reader import read_trace

DEFAULT = "default"
_JOB_COLUMNS = (
    "policy", "seed", "job", "queue", "gpus", "arrival_s", "first_start_s", "end_s", "waited_s", "evictions", "lost_gpu_hours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """`fill`: percent of all GPUs that is asked for by jobs that never end; None plays the history in time."""

    trace: Path | None
    generate: str | None = None
    policies: Sequence[str] = ()
    nodes: str = ""
    columns: Path | None = None
    seeds: int = 1
    fill: float | None = None
    json: bool = False
    csv: Path | None = None


def compare_policies(options: CompareOptions, *, command: str = "compare") -> int:
    names = list(options.policies) or [DEFAULT]
    policies = [_policy(name) for name in names]
    histories = _histories(options)
    console = Console(stderr=True)
    with Status("", console=console) as status:

        def on_run(number: int, seed: int) -> None:
            status.update(f"policy {names[number]}, seed {seed}")

        if not console.is_terminal:
            status.stop()
        seeds = range(options.seeds)
        if options.fill is None:
            found = compare(histories, policies, seeds, on_run=on_run)
        else:
            found = compare_filling(histories, policies, seeds, percent=options.fill, on_run=on_run)
    if options.csv is not None:
        _write_jobs(options.csv, names, found)
    if options.json:
        write_json(command, ok=True, policies=names, seeds=options.seeds, figures=list(map(_document, found.rows)))
        return OK
    screen = to_stdout()
    screen.print_lines(_table(_headline(histories(0), options), names, found, width=screen.width))
    screen.print_lines(_job_table(names, found.jobs, width=screen.width))
    return OK


def _policy(name: str) -> Policy:
    return default_policy() if name == DEFAULT else load_policy(Path(name))


def _histories(options: CompareOptions) -> MakeTrace:
    """Seed 0 is the history itself; the others have its jobs in another order. A made history is made anew for each."""
    if (options.trace is None) == (options.generate is None):
        raise UserError("name a history, such as `muster compare jobs.csv --nodes 64x8`, or make one with --generate")
    if options.trace is None:
        spec = parse_made_trace(options.generate or "")
        return lambda seed: make_trace(replace(spec, seed=spec.seed + seed))
    trace = read_trace(options.trace, nodes=options.nodes, columns=options.columns)
    if options.fill is not None and not trace.gpus:
        raise UserError("--fill is about GPUs, and these nodes have none")
    return lambda seed: shuffled(trace, seed=seed)


# -- output ----------------------------------------------------------------------------------------------------------------------


def _headline(trace: JobTrace, options: CompareOptions) -> str:
    days = trace.jobs[-1].arrival_s / 86_400
    filled = f"filled to {options.fill:g} %" if options.fill is not None else f"{days:.1f} days"
    jobs, nodes, seeds = count(len(trace.jobs), "job"), count(len(trace.nodes), "node"), count(options.seeds, "seed")
    return f"{jobs}, {filled}, {nodes}, {trace.gpus:,} GPUs, {seeds}"


def _table(headline: str, names: Sequence[str], found: Comparison, *, width: int | None) -> list[Text]:
    several = len(names) > 1
    columns = ["", "", *(f">{Path(name).stem}" for name in names), *([">difference (95 %)", ""] if several else [])]
    rows = [_cells(row, several=several) for row in found.rows]
    return [styled((f" {headline}", DIM)), styled(""), *lay_out(columns, rows, width=width)]


def _cells(row: FigureRow, *, several: bool) -> list[TextPart]:
    cells: list[TextPart] = [row.figure.name, row.figure.unit or "-", *map(_number, row.means)]
    if not several:
        return cells
    difference, margin = row.difference or 0.0, row.margin
    shown = f"{difference:+.2f}"
    if margin is not None:
        shown = f"{shown} ({difference - margin:+.2f} .. {difference + margin:+.2f})"
    return [*cells, shown, (row.verdict, GOOD if row.verdict == "better" else BAD)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}".removesuffix(".00")


def _job_table(names: Sequence[str], jobs: Sequence[JobDifference], *, width: int | None) -> Iterator[Text]:
    if not jobs:
        return
    yield styled("")
    yield styled((f" jobs that fare most differently with {Path(names[-1]).stem} than with {Path(names[0]).stem}", DIM))
    columns = ["job", "queue", ">GPUs", ">ends", ">wait", ">evicted", ">lost GPU-hours"]
    rows = [
        [
            pair.first.job.name,
            pair.first.job.queue,
            f"{pair.first.job.gpus:g}",
            "-" if pair.first.end_s is None or pair.last.end_s is None else f"{pair.seconds / 3600:+.1f} h",
            f"{pair.first.waited_s / 3600:.1f} -> {pair.last.waited_s / 3600:.1f} h",
            f"{pair.first.evictions} -> {pair.last.evictions}",
            f"{_lost_hours(pair.first):.0f} -> {_lost_hours(pair.last):.0f}",
        ]
        for pair in jobs
    ]
    yield from lay_out(columns, rows, width=width)


def _lost_hours(run: JobRun) -> float:
    return sum(note.seconds for note in run.lost) * run.job.gpus / 3600


def _document(row: FigureRow) -> JsonDocument:
    return {
        "name": row.figure.name,
        "unit": row.figure.unit,
        "values": row.values,
        "means": row.means,
        "difference": row.difference,
        "margin": row.margin,
        "verdict": row.verdict,
    }


def _write_jobs(path: Path, names: Sequence[str], found: Comparison) -> None:
    """A line for each job, policy and seed."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_JOB_COLUMNS)
            for (number, seed), runs in found.runs.items():
                writer.writerows((names[number], seed, *_job_row(run)) for run in runs)
    except OSError as error:
        raise file_error(path, error, why="the table cannot be written: ") from None


def _job_row(run: JobRun) -> tuple[object, ...]:
    job = run.job
    ended = ["" if at is None else f"{at:.10g}" for at in (run.first_start_s, run.end_s)]
    return (
        job.name,
        job.queue,
        f"{job.gpus:g}",
        f"{job.arrival_s:.10g}",
        *ended,
        f"{run.waited_s:.10g}",
        run.evictions,
        f"{_lost_hours(run):.4g}",
    )
