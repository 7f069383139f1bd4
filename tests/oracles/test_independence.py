"""The oracles share no code with what they judge."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ORACLES = [path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.name.startswith(("test_", "judged_worlds"))]
JUDGED = ("muster.engine", "muster.plugins", "muster.state.derived")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.name)
def test_an_oracle_imports_nothing_of_what_it_judges(path: Path) -> None:
    assert [name for name in imported(path) if f"{name}.".startswith(tuple(f"{package}." for package in JUDGED))] == []


def test_there_are_oracles() -> None:
    assert len(ORACLES) > 8
