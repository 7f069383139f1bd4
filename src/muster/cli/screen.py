"""Output of lines: coloured and wrapped to the width of a terminal, plain and unwrapped where the output is piped.

Text may come from a user's file, so markup in it is not interpreted and control characters are escaped.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

ERROR, BAD, GOOD, DIM, BOLD, NOTE, PLAIN = "bold red", "red", "green", "dim", "bold", "yellow", ""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Width of charts in output that is not bounded by a terminal.
UNBOUNDED_WIDTH = 120

TextPart = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class TextLine:
    """Parts of text, each with a style."""

    parts: tuple[tuple[str, str], ...]

    @staticmethod
    def of(*parts: TextPart) -> TextLine:
        return TextLine(tuple((part, PLAIN) if isinstance(part, str) else part for part in parts))

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.parts)

    def text(self) -> Text:
        return Text.assemble(*((escape_control(text), style) for text, style in self.parts))


def escape_control(text: str) -> str:
    """Escape control characters: a name in a file must not send escape sequences to the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Screen:
    def __init__(self, file: IO[str], *, quiet: bool = False) -> None:
        self._console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._quiet = quiet
        columns = os.environ.get("COLUMNS", "")
        self.is_terminal = self._console.is_terminal
        bounded = self.is_terminal or columns.isdigit()
        self.width: int | None = max(60, int(columns) if columns.isdigit() else self._console.width) if bounded else None
        """None: not a terminal, so nothing is wrapped."""
        self.unicode = (getattr(file, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")

    @property
    def console(self) -> Console:
        return self._console

    @property
    def chart_width(self) -> int:
        """The width that is left beside a label and the numbers of a chart."""
        return max(20, min((self.width or UNBOUNDED_WIDTH) - 60, 80))

    def print_line(self, line: object = "") -> None:
        if self._quiet:
            return
        text = line.text() if isinstance(line, TextLine) else Text(escape_control(str(line)))
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def print_lines(self, lines: object) -> None:
        for line in lines if isinstance(lines, list | tuple) else [lines]:
            self.print_line(line)


def to_stdout(*, quiet: bool = False) -> Screen:
    return Screen(_replacing_errors(sys.stdout), quiet=quiet)


def to_stderr() -> Screen:
    return Screen(_replacing_errors(sys.stderr))


def _replacing_errors(stream: IO[str]) -> IO[str]:
    """A character that the stream cannot encode is printed as a question mark instead of raising."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return stream


def display_width(text: str) -> int:
    return cell_len(text)
