"""Error messages: for invalid input, with its position in the file, and for internal errors."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from muster.yaml_positions import InputError, InputFault


_KNOWN_PACKAGES = ("muster", "__main__", "msgspec", "numpy", "rich", "typer", "yaml", "_yaml")


class UserError(Exception):
    """Invalid input without a position in a file. The message is all that is shown, so it says what to write instead."""


def file_error(path: Path, error: OSError, *, why: str = "") -> UserError:
    """A file that cannot be read or written, with the reason of the operating system."""
    return UserError(f"{path}: {why}{(error.strerror or str(error)).lower()}")


def show_user_error(error: UserError | InputError) -> None:
    from muster.cli.screen import ERROR, styled, to_stderr

    screen = to_stderr()
    if isinstance(error, UserError):
        first, *rest = str(error).split("\n")
        screen.print_lines([styled(("muster: ", ERROR), first), *map(styled, rest)])
        return
    for fault in error.faults:
        screen.print_lines(fault_lines(fault))
    if len(error.faults) > 1:
        screen.print_line(f"{len(error.faults)} errors")


def fault_lines(fault: InputFault) -> list[Text]:
    """A fault as it is shown: the message, and below it the source lines with a caret line."""
    from muster.cli.screen import DIM, ERROR, styled

    if not _is_file(fault.file):
        hint = f". Did you mean {fault.suggestion!r}?" if fault.suggestion else ""
        return [styled((f"{fault.file}: ", ERROR), f"{fault.message}{hint}")]
    first, *rest = fault.render(_file_text(fault.file)).split("\n")
    position = f"{fault.file}:{fault.line}: "
    lines = [styled((position, ERROR), first.removeprefix(position))]
    for number, text in enumerate(rest):
        lines.append(styled((text, ERROR if number == len(rest) - 1 else DIM)))
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
    from muster.model.printable_text import printable

    frames = list(traceback.walk_tb(error.__traceback__))
    plugin = next((frame for frame in reversed(frames) if _is_plugin_code(frame[0])), None)
    frame, line = plugin or frames[-1]
    where = f"({Path(frame.f_code.co_filename).name}:{line})"
    what = printable(str(error).partition("\n")[0][:200])
    message = f"{type(error).__name__}: {what} {where}"
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
