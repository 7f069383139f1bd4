"""What a person reads when something is wrong: with what they wrote, or with Muster."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.cli.screen import Line
    from muster.yaml_marks import Fault


_OURS = ("muster", "__main__", "msgspec", "numpy", "rich", "typer", "yaml", "_yaml")


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


def show_bug(error: BaseException, arguments: list[str]) -> bool:
    """One line on what happened and where, one on what to do. Is it ours? What a plugin does is its author's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    plugin = next((at for at in reversed(frames) if _is_foreign(at[0])), None)
    frame, line = plugin or frames[-1]
    where = f"({Path(frame.f_code.co_filename).name}:{line})"
    said = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''} {where}"
    again = " ".join(["muster", "--debug", *arguments])
    if plugin is not None:
        print(f"muster: a plugin failed in {frame.f_code.co_name}: {said}", file=sys.stderr)
        print(f"For the traceback: {again}", file=sys.stderr)
    else:
        print(f"muster: this is a bug in Muster: {said}", file=sys.stderr)
        print(f"Please report it with the input and the output of: {again}", file=sys.stderr)
    return plugin is None


def _is_foreign(frame: FrameType) -> bool:
    """Code that a policy file brought in: neither ours, nor Python's, nor of a library that we use."""
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top not in (*_OURS, *sys.stdlib_module_names)
