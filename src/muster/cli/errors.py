"""What a person reads when something is wrong: with what they wrote, or with Muster."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.cli.screen import Line
    from muster.yaml_marks import Fault


class UserError(Exception):
    """Input that cannot be used. The text is all that the person is told, so it says what to do."""


class BadFiles(UserError):
    """Faults with their places in files."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def show_user_error(error: UserError) -> None:
    from muster.cli.screen import ERROR, Line, to_stderr

    screen = to_stderr()
    if not isinstance(error, BadFiles):
        screen.say(Line.of(("muster: ", ERROR), str(error)))
        return
    for fault in error.faults:
        for line in fault_lines(fault):
            screen.say(line)
    if len(error.faults) > 1:
        screen.say(f"{len(error.faults)} errors")


def fault_lines(fault: Fault) -> list[Line]:
    """A fault as it is shown: the sentence, and below it what was written, with a caret line."""
    from muster.cli.screen import DIM, ERROR, Line

    if not _is_file(fault.file):
        hint = f". Did you mean {fault.suggestion!r}?" if fault.suggestion else ""
        return [Line.of((f"{fault.file}: ", ERROR), f"{fault.message}{hint}")]
    first, *rest = fault.render(_source(fault.file)).splitlines()
    place = f"{fault.file}:{fault.line}: "
    lines = [Line.of((place, ERROR), first.removeprefix(place))]
    for number, text in enumerate(rest):
        lines.append(Line.of((text, ERROR if number == len(rest) - 1 else DIM)))
    return lines


def _is_file(name: str) -> bool:
    """Faults also come from options (`--generate`) and from what Muster made itself (`<default policy>`)."""
    return not name.startswith(("-", "<"))


def _source(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def show_bug(error: BaseException, arguments: list[str]) -> None:
    """One line on what happened and where, one on what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = str(error).splitlines()[0] if str(error) else ""
    print(f"muster: this is a bug in Muster: {type(error).__name__}: {said[:200]}{where}", file=sys.stderr)
    again = " ".join(["muster", "--debug", *arguments])
    print(f"Please report it with the input and the output of: {again}", file=sys.stderr)
