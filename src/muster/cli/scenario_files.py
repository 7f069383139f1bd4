"""From what was typed to scenarios: files, folders, and `file.yaml:12` for the one scenario that stands there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from muster.cli.errors import InvalidFiles, UserError
from muster.scenario import Scenario, parse
from muster.yaml_positions import InputError, InputFault, nearest

SCENARIO_SUFFIXES = (".yaml", ".yml")
_FILE_AND_LINE = re.compile(r"(.+):(\d+)")


def read_scenarios(words: Iterable[str]) -> list[Scenario]:
    """All scenarios of all files, in order. Everything that is wrong with any of them is told at once."""
    found: list[Scenario] = []
    faults: list[InputFault] = []
    for word in words:
        for path, line in _paths(word):
            try:
                read = parse(read_text(path), file=str(path))
            except InputError as error:
                faults.extend(error.faults)
                continue
            found.extend(read if line is None else [_at_line(read, line)])
    if faults:
        raise InvalidFiles(faults)
    return found


def _paths(word: str) -> list[tuple[Path, int | None]]:
    path, line = Path(word), None
    pointed = _FILE_AND_LINE.fullmatch(word)
    if pointed is not None and not path.exists():
        path, line = Path(pointed[1]), int(pointed[2])
    if not path.is_dir():
        return [(path, line)]
    inside = sorted(each for each in path.rglob("*") if each.suffix in SCENARIO_SUFFIXES and each.is_file())
    if not inside:
        raise UserError(f"{word}: there is no scenario in this folder (no file that ends in {' or '.join(SCENARIO_SUFFIXES)})")
    return [(each, None) for each in inside]


def _at_line(scenarios: list[Scenario], line: int) -> Scenario:
    """The last scenario that begins at or before this line."""
    before = [scenario for scenario in scenarios if scenario.line <= line]
    return before[-1] if before else scenarios[0]


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file{_hint(path)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: this is no text in UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _hint(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return ""
    near = nearest(path.name, [each.name for each in folder.iterdir()])
    return f". Did you mean {str(folder / near)!r}?" if near else ""
