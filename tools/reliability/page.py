"""docs/reliability.md: a table with a line for each row that was ever measured. A row that is measured again replaces its line."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

from tools.reliability.measured import Measured, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
_RULE = "| --- | --- | --- | --- | --- | --- | --- |"
_SHOWN = 160


def write_row(name: str, row: Row, measured: Measured, *, day: date, minutes: float) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, body = text.partition(f"{_RULE}\n")
    lines = [line for line in body.splitlines() if line.startswith("|")]
    after = body.removeprefix("\n".join(lines)).strip()
    kept = {line.split("|")[1].strip(): line for line in lines}
    kept[f"`{name}`"] = _line(name, row, measured, day=day, minutes=minutes)
    table = "\n".join(kept[key] for key in sorted(kept))
    PAGE.write_text(f"{head}{_RULE}\n{table}\n\n{after}\n", encoding="utf-8")


def _line(name: str, row: Row, measured: Measured, *, day: date, minutes: float) -> str:
    found = "none" if not measured.faults else f"{len(measured.faults)}: {_cell(measured.faults[0])}"
    when = f"{day.isoformat()}, {minutes:.0f} min"
    return f"| `{name}` | {row.what} | {row.target} | {measured.reached} | {found} | {when} | {_commit()} |"


def _cell(text: str) -> str:
    line = " ".join(text.replace(f"{ROOT}/", "").split()).replace("|", "/").replace("<", "(").replace(">", ")")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _commit() -> str:
    """With a plus where the code is not as it was committed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests", "scenarios", "tools")
    return f"`{git('rev-parse', '--short', 'HEAD')}{'+' if changed else ''}`"
