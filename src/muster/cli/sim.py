"""`muster sim`: run scenarios on a simulated cluster in virtual time and report the results."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rich.text import Text

from muster.cli import BAD_INPUT, FAILED, OK
from muster.cli.cluster_file import CLUSTER_SUFFIXES, read_cluster
from muster.cli.errors import UserError, fault_lines, file_error
from muster.cli.json_output import report_document, write_json
from muster.cli.progress_bar import ProgressBar
from muster.cli.scenario_files import read_scenarios
from muster.cli.screen import BAD, BOLD, DIM, ERROR, GOOD, Screen, styled, to_stdout
from muster.cli.summary import main_resource, summary
from muster.cli.text_format import count, duration, real_time
from muster.cli.timeline import timeline, timeline_lines
from muster.config import load_policy
from muster.decision_log import DecisionLogWriter
from muster.json_values import to_json
from muster.private_file import open_private
from muster.scenario import Report, Scenario, generate_from_text, run
from muster.scenario.run_report import ExpectationFailure
from muster.yaml_positions import InputError, InputFault


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The command's options. `timeline` None: as much of it as fits one screen, and only for a single scenario."""

    files: Sequence[str]
    generate: str | None = None
    policy: Path | None = None
    decision_log: Path | None = None
    html: Path | None = None
    json: bool = False
    quiet: bool = False
    timeline: bool | None = None
    all_gangs: bool = False


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario that was run; without a report where the cluster rejected an object of it."""

    scenario: Scenario
    report: Report | None
    faults: tuple[InputFault, ...] = ()

    @property
    def ok(self) -> bool:
        return self.report is not None and self.report.ok


def simulate(options: SimOptions) -> int:
    scenarios = _scenarios(options)
    screen = to_stdout(quiet=options.quiet or options.json)
    one_line_each = len(scenarios) > 1 and not options.timeline
    results: list[ScenarioResult] = []
    kept = _log_for_report(options)
    with _open_decision_log(options.decision_log, kept) as log, ProgressBar(quiet=options.quiet or options.json) as progress_bar:
        for scenario in scenarios:
            progress_bar.begin(scenario.name)
            results.append(_run(scenario, progress_bar, log))
            if one_line_each:
                _show_line(results[-1], screen, new_file=len(results) == 1 or results[-2].scenario.file != scenario.file)
    _write_report(options.html, kept)
    if options.json:
        _show_json(results)
    else:
        for result in [] if one_line_each else results:
            _show_report(result, screen, options)
        _show_count(results, screen)
        _show_failures(results, options)
    if any(result.report is None for result in results):
        return BAD_INPUT
    return OK if all(result.ok for result in results) else FAILED


# -- input -------------------------------------------------------------------------------------------------------------------------


def _scenarios(options: SimOptions) -> list[Scenario]:
    found = _all_scenarios(options)
    if options.html is not None and len(found) != 1:
        raise UserError(f"--html: a report is about one scenario, and there are {len(found)}; select one, such as file.yaml:12")
    return found


def _all_scenarios(options: SimOptions) -> list[Scenario]:
    if options.generate is not None and options.files:
        raise UserError("either files or --generate, not both")
    if options.generate is None and not options.files:
        raise UserError("name a scenario file or a folder of them, such as `muster sim scenarios/demo.yaml`, or use --generate")
    scenarios = [generate_from_text(options.generate)] if options.generate is not None else list(_read(options.files))
    if options.policy is None:
        return scenarios
    load_policy(options.policy)
    return [replace(scenario, policy=options.policy) for scenario in scenarios]


def _read(arguments: Sequence[str]) -> Iterator[Scenario]:
    """Scenario files, and snapshots of clusters."""
    yield from read_scenarios(argument for argument in arguments if not argument.endswith(CLUSTER_SUFFIXES))
    for argument in arguments:
        if argument.endswith(CLUSTER_SUFFIXES):
            snapshot = read_cluster(Path(argument))
            if snapshot is None:
                raise UserError(f"{argument}: not a list of Kubernetes objects, as `muster snapshot` writes it")
            yield snapshot


@contextmanager
def _open_decision_log(path: Path | None, kept: io.BytesIO | None) -> Iterator[DecisionLogWriter | None]:
    """`kept`: where it is written without a file."""
    if path is None:
        yield None if kept is None else DecisionLogWriter(kept)
        return
    file: IO[bytes]
    try:
        file = open_private(path, "wb")
    except OSError as error:
        raise file_error(path, error, why="the decision log cannot be written: ") from None
    with file:
        yield DecisionLogWriter(file)
    if kept is not None:
        kept.write(path.read_bytes())


def _log_for_report(options: SimOptions) -> io.BytesIO | None:
    return io.BytesIO() if options.html is not None else None


def _write_report(path: Path | None, log: io.BytesIO | None) -> None:
    if path is not None and log is not None:
        from muster.cli.view import write_report

        write_report(path, log.getvalue())


def _run(scenario: Scenario, progress_bar: ProgressBar, log: DecisionLogWriter | None) -> ScenarioResult:
    try:
        return ScenarioResult(scenario, run(scenario, observer=progress_bar, log=log))
    except InputError as error:
        return ScenarioResult(scenario, None, error.faults)


# -- text output -------------------------------------------------------------------------------------------------------------------


def _show_report(result: ScenarioResult, screen: Screen, options: SimOptions) -> None:
    report = result.report
    if report is None:
        return
    screen.print_line(_headline(report))
    if options.timeline is not False:
        screen.print_line()
        entries = timeline(report, resource=main_resource(report))
        screen.print_lines(timeline_lines(entries, width=screen.width, complete=bool(options.timeline)))
    screen.print_lines(summary(report, screen, all_gangs=options.all_gangs))
    screen.print_line()


def _headline(report: Report) -> Text:
    elapsed = f"{count(report.cycles, 'cycle')}, {duration(report.virtual_s)} virtual in {real_time(report.wall_s)}"
    return styled(" ", (report.name, BOLD), (f"   {elapsed}", DIM))


def _show_line(result: ScenarioResult, screen: Screen, *, new_file: bool) -> None:
    """One line for a scenario, below a line with the name of its file where that changes."""
    scenario, report = result.scenario, result.report
    if new_file:
        screen.print_line(styled((f" {scenario.file}", BOLD)))
    status, style = ("ok", GOOD) if result.ok else ("failed", BAD) if report is not None else ("error", BAD)
    elapsed = ""
    if report is not None:
        elapsed = f"   {count(report.cycles, 'cycle')}, {duration(report.virtual_s)} in {real_time(report.wall_s)}"
    screen.print_line(styled((f"   {status:6} ", style), (f":{scenario.line:<4} ", DIM), scenario.name, (elapsed, DIM)))


def _show_count(results: list[ScenarioResult], screen: Screen) -> None:
    if len(results) < 2:
        return
    passed = sum(result.ok for result in results)
    failed = len(results) - passed
    failures = f", {failed} failed" if failed else ""
    screen.print_line()
    screen.print_line(styled((f" {count(len(results), 'scenario')}: {passed} ok{failures}.", BAD if failed else GOOD)))


def _show_failures(results: list[ScenarioResult], options: SimOptions) -> None:
    """Printed with --quiet as well: they are the reason for the exit code."""
    screen = to_stdout()
    for number, result in enumerate(result for result in results if not result.ok):
        if number or not options.quiet:
            screen.print_line()
        screen.print_lines(_failed_lines(result))


def _failed_lines(result: ScenarioResult) -> Iterator[Text]:
    for fault in result.faults:
        yield from fault_lines(fault)
    if result.report is None:
        return
    for failure in result.report.failures:
        yield from _failure_lines(failure)
    scenario = result.scenario
    for violation in result.report.violations:
        place = f"{scenario.file}:{scenario.line}: "
        yield styled((place, ERROR), f"invariant violated in cycle {violation.cycle}: {violation.invariant}")
        yield styled(f"  {violation.text}")
    yield styled((f"  scenario: {scenario.name}", DIM))
    if not scenario.file.startswith("<"):
        yield styled((f"  rerun:    muster sim {scenario.file}:{scenario.line}", DIM))


def _failure_lines(failure: ExpectationFailure) -> Iterator[Text]:
    yield styled((f"{failure.file}:{failure.line}: ", ERROR), f"after {duration(failure.at_s)} this does not hold:")
    for each in failure.mismatches:
        where = "" if each.line in (0, failure.line) else f" (line {each.line})"
        yield styled(("  ", ""), (each.what, BOLD), where)
        yield styled(("    expected  ", DIM), (each.expected, GOOD))
        yield styled(("    found     ", DIM), (each.found, BAD))


def _show_json(results: list[ScenarioResult]) -> None:
    write_json(
        "sim",
        ok=all(result.ok for result in results),
        errors=[to_json(fault) for result in results for fault in result.faults],
        scenarios=[report_document(result.report) for result in results if result.report is not None],
    )
