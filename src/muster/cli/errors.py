"""What a person reads when something is wrong: with what they wrote, or with Muster."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.cli.screen import TextLine
    from muster.yaml_positions import InputFault


_KNOWN_PACKAGES = ("muster", "__main__", "msgspec", "numpy", "rich", "typer", "yaml", "_yaml")


class UserError(Exception):
    """Input that cannot be used. The text is all that the person is told, so it says what to do."""


class InvalidFiles(UserError):
    """Faults with their places in files."""

    def __init__(self, faults: Iterable[InputFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def show_user_error(error: UserError) -> None:
    from muster.cli.screen import ERROR, TextLine, to_stderr

    screen = to_stderr()
    if not isinstance(error, InvalidFiles):
        screen.print_line(TextLine.of(("muster: ", ERROR), str(error)))
        return
    for fault in error.faults:
        for line in fault_lines(fault):
            screen.print_line(line)
    if len(error.faults) > 1:
        screen.print_line(f"{len(error.faults)} errors")


def fault_lines(fault: InputFault) -> list[TextLine]:
    """A fault as it is shown: the sentence, and below it what was written, with a caret line."""
    from muster.cli.screen import DIM, ERROR, TextLine

    if not _is_file(fault.file):
        hint = f". Did you mean {fault.suggestion!r}?" if fault.suggestion else ""
        return [TextLine.of((f"{fault.file}: ", ERROR), f"{fault.message}{hint}")]
    first, *rest = fault.render(_file_text(fault.file)).splitlines()
    place = f"{fault.file}:{fault.line}: "
    lines = [TextLine.of((place, ERROR), first.removeprefix(place))]
    for number, text in enumerate(rest):
        lines.append(TextLine.of((text, ERROR if number == len(rest) - 1 else DIM)))
    return lines


def _is_file(name: str) -> bool:
    """Faults also come from options (`--generate`) and from what Muster made itself (`<default policy>`)."""
    return not name.startswith(("-", "<"))


def _file_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def show_bug(error: BaseException, arguments: list[str]) -> bool:
    """One line on what happened and where, one on what to do. Is it ours? What a plugin does is its author's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    plugin = next((at for at in reversed(frames) if _is_plugin_code(at[0])), None)
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


def _is_plugin_code(frame: FrameType) -> bool:
    """Code that a policy file brought in: neither ours, nor Python's, nor of a library that we use."""
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top not in (*_KNOWN_PACKAGES, *sys.stdlib_module_names)
