"""`muster sim`: run scenarios on a simulated cluster in virtual time and show what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from muster.adapters.trace import TraceWriter
from muster.cli import BAD_INPUT, FAILED, OK
from muster.cli.clusters import SUFFIXES, read_cluster
from muster.cli.errors import BadFiles, UserError, fault_lines
from muster.cli.files import scenarios_of
from muster.cli.live import Watch
from muster.cli.machine import faults_document, report_document, show_json
from muster.cli.screen import BAD, BOLD, DIM, ERROR, GOOD, Line, Screen, to_stdout
from muster.cli.story import story, story_lines
from muster.cli.summary import main_resource, summary
from muster.cli.words import count, real, span
from muster.config import load_policy
from muster.scenario import Report, Scenario, generate_from, run
from muster.scenario.report import Failure
from muster.yaml_marks import Fault, InputError


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the options say. `story` None: as much of it as fits a screen, and only for a single scenario."""

    files: Sequence[str]
    generate: str | None = None
    policy: Path | None = None
    trace: Path | None = None
    json: bool = False
    quiet: bool = False
    story: bool | None = None
    all_gangs: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A scenario that was run, or that the cluster would not have."""

    scenario: Scenario
    report: Report | None
    faults: tuple[Fault, ...] = ()

    @property
    def ok(self) -> bool:
        return self.report is not None and self.report.ok


def simulate(wishes: Wishes) -> int:
    scenarios = _scenarios(wishes)
    screen = to_stdout(quiet=wishes.quiet)
    ended: list[Ended] = []
    with _log(wishes.trace) as log, Watch(quiet=wishes.quiet or wishes.json) as watch:
        for scenario in scenarios:
            watch.begin(scenario.name)
            ended.append(_run(scenario, watch, log))
            if len(scenarios) > 1 and wishes.story is not True and not wishes.json:
                _show_line(ended[-1], screen, new_file=len(ended) == 1 or ended[-2].scenario.file != scenario.file)
    if wishes.json:
        _show_machine(ended)
    elif len(scenarios) == 1 or wishes.story:
        for each in ended:
            _show_whole(each, screen, wishes)
    if not wishes.json:
        _show_count(ended, screen)
        _tell_what_failed(ended, wishes)
    return BAD_INPUT if any(each.report is None for each in ended) else OK if all(each.ok for each in ended) else FAILED


# -- what to run -------------------------------------------------------------------------------------------------------------------


def _scenarios(wishes: Wishes) -> list[Scenario]:
    if wishes.generate is not None and wishes.files:
        raise UserError("either files or --generate, not both")
    if wishes.generate is None and not wishes.files:
        raise UserError("name a scenario file or a folder of them, such as `muster sim scenarios/demo.yaml`, or use --generate")
    try:
        found = [generate_from(wishes.generate)] if wishes.generate is not None else list(_read(wishes.files))
        if wishes.policy is not None:
            load_policy(wishes.policy)
    except InputError as error:
        raise BadFiles(error.faults) from None
    return [replace(scenario, policy=wishes.policy) for scenario in found] if wishes.policy is not None else found


def _read(words: Sequence[str]) -> Iterator[Scenario]:
    """Scenarios, and clusters that somebody saved."""
    yield from scenarios_of(word for word in words if not word.endswith(SUFFIXES))
    for word in words:
        if word.endswith(SUFFIXES):
            saved = read_cluster(Path(word))
            if saved is None:
                raise UserError(f"{word}: this is no list of Kubernetes objects, as `muster snapshot` writes one")
            yield saved


@contextmanager
def _log(path: Path | None) -> Iterator[TraceWriter | None]:
    if path is None:
        yield None
        return
    file: IO[bytes]
    try:
        file = path.open("wb")
    except OSError as error:
        raise UserError(f"{path}: the decision log cannot be written: {(error.strerror or str(error)).lower()}") from None
    with file:
        yield TraceWriter(file)


def _run(scenario: Scenario, watch: Watch, log: TraceWriter | None) -> Ended:
    try:
        return Ended(scenario, run(scenario, observer=watch, log=log))
    except InputError as error:
        return Ended(scenario, None, error.faults)


# -- what a person sees ------------------------------------------------------------------------------------------------------------


def _show_whole(ended: Ended, screen: Screen, wishes: Wishes) -> None:
    report = ended.report
    if report is None:
        return
    screen.say(_headline(report))
    if wishes.story is not False:
        screen.say()
        events = story(report, resource=main_resource(report))
        screen.say_all(story_lines(events, width=screen.width, whole=bool(wishes.story)))
    screen.say_all(list(summary(report, screen, all_gangs=wishes.all_gangs)))
    screen.say()


def _headline(report: Report) -> Line:
    spent = f"{count(report.cycles, 'cycle')}, {span(report.virtual_s)} virtual in {real(report.real_s)}"
    return Line.of(" ", (report.name, BOLD), (f"   {spent}", DIM))


def _show_line(ended: Ended, screen: Screen, *, new_file: bool) -> None:
    """One line, below a line with the file's name where that is another one."""
    scenario, report = ended.scenario, ended.report
    if new_file:
        screen.say(Line.of((f" {scenario.file}", BOLD)))
    word, style = ("ok", GOOD) if ended.ok else ("failed", BAD) if report is not None else ("error", BAD)
    spent = "" if report is None else f"   {count(report.cycles, 'cycle')}, {span(report.virtual_s)} in {real(report.real_s)}"
    screen.say(Line.of((f"   {word:6} ", style), (f":{scenario.line:<4} ", DIM), scenario.name, (spent, DIM)))


def _show_count(ended: list[Ended], screen: Screen) -> None:
    if len(ended) < 2:
        return
    good = sum(each.ok for each in ended)
    bad = len(ended) - good
    figures = f", {bad} failed" if bad else ""
    screen.say()
    screen.say(Line.of((f" {count(len(ended), 'scenario')}: {good} ok{figures}.", BAD if bad else GOOD)))


def _tell_what_failed(ended: list[Ended], wishes: Wishes) -> None:
    """Said in any case, quiet or not: it is what the exit code is about."""
    screen = to_stdout()
    first = True
    for each in ended:
        if each.ok:
            continue
        if not (first and wishes.quiet):
            screen.say()
        first = False
        screen.say_all(list(_failed_lines(each)))


def _failed_lines(ended: Ended) -> Iterator[Line]:
    for fault in ended.faults:
        yield from fault_lines(fault)
    if ended.report is None:
        return
    for failure in ended.report.failures:
        yield from _failure_lines(failure)
    scenario = ended.scenario
    for breach in ended.report.breaches:
        place = f"{scenario.file}:{scenario.line}: "
        yield Line.of((place, ERROR), f"law broken in cycle {breach.cycle}: {breach.law}")
        yield Line.of(f"  {breach.text}")
    yield Line.of((f"  scenario: {scenario.name}", DIM))
    if not scenario.file.startswith("<"):
        yield Line.of((f"  again:    muster sim {scenario.file}:{scenario.line}", DIM))


def _failure_lines(failure: Failure) -> Iterator[Line]:
    yield Line.of((f"{failure.file}:{failure.line}: ", ERROR), f"after {span(failure.at_s)} this does not hold:")
    for each in failure.differences:
        where = "" if each.line in (0, failure.line) else f" (line {each.line})"
        yield Line.of(("  ", ""), (each.what, BOLD), where)
        yield Line.of(("    expected  ", DIM), (each.expected, GOOD))
        yield Line.of(("    found     ", DIM), (each.found, BAD))


# -- what a machine sees -----------------------------------------------------------------------------------------------------------


def _show_machine(ended: list[Ended]) -> None:
    show_json(
        "sim",
        ok=all(each.ok for each in ended),
        errors=faults_document(fault for each in ended for fault in each.faults),
        scenarios=[report_document(each.report) for each in ended if each.report is not None],
    )
