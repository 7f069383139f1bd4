"""`muster compare`: histories of jobs played with several policies, and `muster sim` of one."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from muster.cli import OK
from muster.cli.compare_report import job_cells, report_html
from muster.cli.errors import UserError, file_error
from muster.cli.json_output import JsonDocument, write_json
from muster.cli.screen import BAD, DIM, GOOD, Screen, TextPart, styled, to_stdout
from muster.cli.text_format import count, duration
from muster.cli.text_table import lay_out
from muster.config import default_policy, load_policy
from muster.trace.comparison import Comparison, FigureRow, JobDifference, compare
from muster.trace.job_trace import JobTrace
from muster.trace.run_result import JobOutcome, RunResult
from muster.trace.snapshot_reader import snapshot_files
from muster.trace.sweep import HistorySource, NamedFile, PolicyRun, PolicyText, history_of, results_of
from muster.trace.table_reader import read_trace

DEFAULT = "default"
_OPEN_SHOWN = 3
_JOB_COLUMNS = (
    "policy", "seed", "job", "queue", "gpus", "arrival_s", "first_start_s", "end_s", "waited_s", "evictions", "lost_gpu_hours",
    "why",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """`fill`: percent of all GPUs that is asked for by jobs that never end; None plays the history in time. `results`: a folder in
    which results are kept, so that an interrupted comparison goes on."""

    trace: Path | None
    generate: str | None = None
    policies: Sequence[str] = ()
    nodes: str = ""
    columns: Path | None = None
    seeds: int = 1
    fill: float | None = None
    json: bool = False
    csv: Path | None = None
    figures: Path | None = None
    html: Path | None = None
    processes: int = 0
    """0: one for each CPU."""
    dask: str = ""
    results: Path | None = None
    logged: PolicyText | None = None
    """The policy of a decision log, which comes first."""


@dataclass(frozen=True, slots=True)
class ComparedPolicies:
    """What a comparison is about, and what was found."""

    headline: str
    names: Sequence[str]
    found: Comparison


def compare_policies(options: CompareOptions, *, command: str = "compare") -> int:
    compared = run_comparison(options)
    if options.json:
        write_json(command, ok=True, **comparison_document(compared))
        return OK
    print_comparison(to_stdout(), compared)
    return OK


def run_comparison(options: CompareOptions) -> ComparedPolicies:
    """Play all, and write the files that were asked for."""
    policies = [*([options.logged] if options.logged is not None else []), *_policies(list(options.policies) or [DEFAULT])]
    source = _source(options)
    history = _history(source, options)
    if not history.jobs:
        raise UserError("no job of this history ran")
    if options.fill is not None and not history.gpus:
        raise UserError("--fill is about GPUs, and these nodes have none")
    if options.fill is not None and not any(job.gpus for job in history.jobs):
        raise UserError("--fill is about GPUs, and no job of this history asks for any")
    # Seed by seed, so that what was done when it is interrupted can be compared.
    runs = {
        (number, seed): PolicyRun(source, policy, seed, options.fill)
        for seed in range(options.seeds)
        for number, policy in enumerate(policies)
    }
    found = compare(dict(zip(runs, _played(list(runs.values()), options), strict=True)))
    compared = ComparedPolicies(_headline(history, options), [policy.name for policy in policies], found)
    _write_files(compared, options)
    return compared


def _played(runs: Sequence[PolicyRun], options: CompareOptions) -> list[RunResult]:
    console = Console(stderr=True)
    with Status("", console=console) as status:
        if not console.is_terminal:
            status.stop()
        processes = options.processes or len(os.sched_getaffinity(0))
        return results_of(
            runs,
            processes=processes,
            dask=options.dask,
            folder=options.results,
            on_done=lambda done, of: status.update(f"{done} of {of} runs done"),
        )


def _policies(names: Sequence[str]) -> list[PolicyText]:
    """Called after their files; by the whole path where two of them would have one name."""
    found = list(map(_policy, names))
    stems = [policy.name for policy in found]
    return [
        replace(policy, name=name) if stems.count(policy.name) > 1 else policy for policy, name in zip(found, names, strict=True)
    ]


def _policy(name: str) -> PolicyText:
    if name == DEFAULT:
        return PolicyText(DEFAULT, default_policy().source, "<default policy>")
    return PolicyText(Path(name).stem, load_policy(Path(name)).source, str(Path(name).resolve()))


def _source(options: CompareOptions) -> HistorySource:
    if options.trace is not None and options.generate is not None:
        raise UserError("either a history or --generate, not both")
    if options.trace is None and options.generate is None:
        raise UserError("name a history, such as `muster compare jobs.csv --nodes 64x8`, or make one with --generate")
    if options.trace is None:
        return HistorySource(generate=options.generate or "")
    if options.logged is not None:
        # A log may have any name.
        return HistorySource(replace(_file(options.trace), name="log.jsonl"))
    nodes = _file(Path(options.nodes)) if Path(options.nodes).suffix else options.nodes
    columns = _file(options.columns) if options.columns is not None else None
    if options.trace.is_dir():
        return HistorySource(snapshots=tuple(map(_file, snapshot_files(options.trace))), nodes=nodes)
    return HistorySource(_file(options.trace), nodes=nodes, columns=columns)


def _history(source: HistorySource, options: CompareOptions) -> JobTrace:
    """For the headline. Files are read where they have their names: errors say them."""
    if options.trace is None or options.logged is not None:
        return history_of(source, 0)
    return read_trace(options.trace, nodes=options.nodes, columns=options.columns)


def has_jobs(options: CompareOptions) -> bool:
    source = _source(options)
    return bool(_history(source, options).jobs)


def _file(path: Path) -> NamedFile:
    try:
        return NamedFile(path.name, path.read_bytes())
    except OSError as error:
        raise file_error(path, error) from None


# -- output ----------------------------------------------------------------------------------------------------------------------


def _headline(trace: JobTrace, options: CompareOptions) -> str:
    until_s = trace.jobs[-1].arrival_s
    lasts = f"{until_s / 86_400:.1f} days" if until_s >= 8640 else duration(until_s)
    filled = f"filled to {options.fill:g} %" if options.fill is not None else lasts
    jobs, nodes, seeds = count(len(trace.jobs), "job"), count(len(trace.nodes), "node"), count(options.seeds, "seed")
    return f"{jobs}, {filled}, {nodes}, {trace.gpus:,} GPUs, {seeds}"


def print_comparison(screen: Screen, compared: ComparedPolicies) -> None:
    screen.print_lines(_table(compared, width=screen.width))
    screen.print_lines(_job_table(compared.names, compared.found.jobs, width=screen.width))
    screen.print_lines(_open_jobs(compared))


def _table(compared: ComparedPolicies, *, width: int | None) -> list[Text]:
    several = len(compared.names) > 1
    columns = ["", "", *(f">{name}" for name in compared.names), *([">difference (95 %)", ""] if several else [])]
    rows = [_cells(row, several=several) for row in compared.found.rows]
    return [styled((f" {compared.headline}", DIM)), styled(""), *lay_out(columns, rows, width=width)]


def _cells(row: FigureRow, *, several: bool) -> list[TextPart]:
    cells: list[TextPart] = [row.figure.name, row.figure.unit or "-", *map(_number, row.means)]
    if not several:
        return cells
    return [*cells, difference_text(row), (row.verdict, GOOD if row.verdict == "better" else BAD)]


def difference_text(row: FigureRow) -> str:
    difference, margin = row.difference or 0.0, row.margin
    shown = f"{difference:+.2f}"
    return shown if margin is None else f"{shown} ({difference - margin:+.2f} .. {difference + margin:+.2f})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}".removesuffix(".00")


def _job_table(names: Sequence[str], jobs: Sequence[JobDifference], *, width: int | None) -> Iterator[Text]:
    if not jobs:
        return
    yield styled("")
    yield styled((f" jobs that fare most differently with {names[-1]} than with {names[0]}", DIM))
    columns = ["job", "queue", ">GPUs", ">ends", ">wait", ">evicted", ">lost GPU-hours"]
    yield from lay_out(columns, [job_cells(pair, arrow="->") for pair in jobs], width=width)
    yield styled("")
    for pair in jobs:
        name = names[-1] if pair.worse is pair.last else names[0]
        if pair.worse.why:
            yield styled(f" {pair.worse.name}", (f"  with {name} ", DIM), pair.worse.why)


def _open_jobs(compared: ComparedPolicies) -> Iterator[Text]:
    """Jobs of the first seed that never end, which no mean of a wait or completion counts; the first of them with the reason."""
    for at, name in enumerate(compared.names):
        jobs = next(result.jobs for (number, _), result in compared.found.results.items() if number == at)
        still = [job for job in jobs if job.end_s is None]
        if still:
            yield styled("")
            yield styled(f" {len(still):,} of {count(len(jobs), 'job')} never end", (f" with {name}", DIM), ", such as")
        for job in still[:_OPEN_SHOWN]:
            yield styled(f" {job.name}", (f"  {job.why}", DIM))


def comparison_document(compared: ComparedPolicies) -> JsonDocument:
    found, names = compared.found, compared.names
    seeds = len({seed for _, seed in found.results})
    return {
        "policies": names,
        "seeds": seeds,
        "figures": list(map(_figure_document, found.rows)),
        "curves": {name: {curve: each.values for curve, each in found.curves(at).items()} for at, name in enumerate(names)},
        "jobs": [{"job": pair.first.name, "first": pair.first, "last": pair.last} for pair in found.jobs],
    }


def _figure_document(row: FigureRow) -> JsonDocument:
    return {
        "name": row.figure.name,
        "unit": row.figure.unit,
        "values": row.values,
        "means": row.means,
        "difference": row.difference,
        "margin": row.margin,
        "verdict": row.verdict,
    }


# -- files -----------------------------------------------------------------------------------------------------------------------


def _write_files(compared: ComparedPolicies, options: CompareOptions) -> None:
    if options.csv is not None:
        _write_table(options.csv, _JOB_COLUMNS, _job_rows(compared))
    if options.figures is not None:
        _write_table(options.figures, ("figure", "unit", "policy", "seed", "value"), _figure_rows(compared))
    if options.html is not None:
        page = report_html(compared.headline, compared.names, compared.found, difference_text)
        try:
            options.html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise file_error(options.html, error, why="the report cannot be written: ") from None


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
    except OSError as error:
        raise file_error(path, error, why="the table cannot be written: ") from None


def _job_rows(compared: ComparedPolicies) -> Iterator[tuple[object, ...]]:
    """A line for each job, policy and seed."""
    for (number, seed), result in compared.found.results.items():
        for job in result.jobs:
            yield compared.names[number], seed, *_job_row(job)


def _job_row(job: JobOutcome) -> tuple[object, ...]:
    ended = ["" if at is None else f"{at:.10g}" for at in (job.first_start_s, job.end_s)]
    waited, lost = f"{job.waited_s:.10g}", f"{job.lost_gpu_hours:.4g}"
    return job.name, job.queue, f"{job.gpus:g}", f"{job.arrival_s:.10g}", *ended, waited, job.evictions, lost, job.why


def _figure_rows(compared: ComparedPolicies) -> Iterator[tuple[object, ...]]:
    seeds = sorted({seed for _, seed in compared.found.results})
    for row in compared.found.rows:
        for name, values in zip(compared.names, row.values, strict=True):
            for seed, value in zip(seeds, values, strict=True):
                yield row.figure.name, row.figure.unit, name, seed, f"{value:.10g}"
