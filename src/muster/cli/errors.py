"""Error messages: for invalid input, with its position in the file, and for internal errors."""

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
    """Invalid input. The message is all that is shown, so it says what to write instead."""


class InvalidFiles(UserError):
    """Faults with their positions in files."""

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
    """A fault as it is shown: the message, and below it the source lines with a caret line."""
    from muster.cli.screen import DIM, ERROR, TextLine

    if not _is_file(fault.file):
        hint = f". Did you mean {fault.suggestion!r}?" if fault.suggestion else ""
        return [TextLine.of((f"{fault.file}: ", ERROR), f"{fault.message}{hint}")]
    first, *rest = fault.render(_file_text(fault.file)).splitlines()
    position = f"{fault.file}:{fault.line}: "
    lines = [TextLine.of((position, ERROR), first.removeprefix(position))]
    for number, text in enumerate(rest):
        lines.append(TextLine.of((text, ERROR if number == len(rest) - 1 else DIM)))
    return lines


def _is_file(name: str) -> bool:
    """Faults may also be in options (`--generate`) and in built-in input (`<default policy>`)."""
    return not name.startswith(("-", "<"))


def _file_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def show_bug(error: BaseException, arguments: list[str]) -> bool:
    """One line with the error and its position, one with what to do. Returns whether the bug is in Muster and not in a plugin."""
    frames = list(traceback.walk_tb(error.__traceback__))
    plugin = next((frame for frame in reversed(frames) if _is_plugin_code(frame[0])), None)
    frame, line = plugin or frames[-1]
    where = f"({Path(frame.f_code.co_filename).name}:{line})"
    message = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''} {where}"
    command = " ".join(["muster", "--debug", *arguments])
    if plugin is not None:
        print(f"muster: a plugin failed in {frame.f_code.co_name}: {message}", file=sys.stderr)
        print(f"For the traceback: {command}", file=sys.stderr)
    else:
        print(f"muster: internal error (a bug in Muster): {message}", file=sys.stderr)
        print(f"Please report it with the input and the output of: {command}", file=sys.stderr)
    return plugin is None


def _is_plugin_code(frame: FrameType) -> bool:
    """Code that a policy file loaded: neither Muster's, nor Python's, nor of a dependency."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in (*_KNOWN_PACKAGES, *sys.stdlib_module_names)
