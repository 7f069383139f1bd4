"""Reads the scenarios that the arguments name: files, folders, and `file.yaml:12` for the scenario at that line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from muster.cli.errors import UserError
from muster.cli.text_files import read_text
from muster.scenario import Scenario, parse
from muster.yaml_positions import InputError, InputFault

SCENARIO_SUFFIXES = (".yaml", ".yml")
_FILE_AND_LINE = re.compile(r"(.+):(\d+)")


def read_scenarios(arguments: Iterable[str]) -> list[Scenario]:
    """All scenarios of all files, in order. The faults of all files are reported together."""
    scenarios: list[Scenario] = []
    faults: list[InputFault] = []
    for argument in arguments:
        for path, line in _paths(argument):
            try:
                parsed = parse(read_text(path), file=str(path))
            except InputError as error:
                faults.extend(error.faults)
                continue
            scenarios.extend(parsed if line is None else [_at_line(parsed, line)])
    if faults:
        raise InputError(faults)
    return scenarios


def _paths(argument: str) -> list[tuple[Path, int | None]]:
    path, line = Path(argument), None
    match = _FILE_AND_LINE.fullmatch(argument)
    if match is not None and not path.exists():
        path, line = Path(match[1]), int(match[2])
    if not path.is_dir():
        return [(path, line)]
    files = sorted(file for file in path.rglob("*") if file.suffix in SCENARIO_SUFFIXES and file.is_file())
    if not files:
        raise UserError(f"{argument}: no scenario in this folder (no file that ends in {' or '.join(SCENARIO_SUFFIXES)})")
    return [(file, None) for file in files]


def _at_line(scenarios: list[Scenario], line: int) -> Scenario:
    """The last scenario that begins at or before this line."""
    before = [scenario for scenario in scenarios if scenario.line <= line]
    return before[-1] if before else scenarios[0]
