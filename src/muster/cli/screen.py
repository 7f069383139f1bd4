"""Output of lines: coloured and wrapped to the width of a terminal, plain and unwrapped where the output is piped.

Text may come from anybody's object, so markup in it is not interpreted, and what does not print is escaped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.text import Text

from muster.model.printable_text import printable

ERROR, BAD, GOOD, DIM, BOLD, NOTE, PLAIN = "bold red", "red", "green", "dim", "bold", "yellow", ""

# Width of charts in output that is not bounded by a terminal.
UNBOUNDED_WIDTH = 120


TextPart = str | tuple[str, str]
"""Text, or text with a style."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a label and a text."""

    label: str
    text: str


Line = Text | Row


def styled(*parts: TextPart) -> Text:
    """A line of parts."""
    return Text.assemble(*(printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader has closed our output, as `head` does: that is no failure."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


class Screen:
    def __init__(self, file: IO[str], *, quiet: bool = False) -> None:
        self.console = _Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._quiet = quiet
        columns = os.environ.get("COLUMNS", "")
        bounded = self.console.is_terminal or columns.isdigit()
        self.width: int | None = max(60, int(columns) if columns.isdigit() else self.console.width) if bounded else None
        """None: not a terminal, so nothing is wrapped."""
        self.unicode = not self.console.options.ascii_only

    @property
    def chart_width(self) -> int:
        """The width that is left beside a label and the numbers of a chart."""
        return max(20, min((self.width or UNBOUNDED_WIDTH) - 60, 80))

    def print_line(self, line: Text | str = "") -> None:
        if self._quiet:
            return
        text = styled(line) if isinstance(line, str) else line
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def print_lines(self, lines: Iterable[Text]) -> None:
        for line in lines:
            self.print_line(line)

    def print_wrapped(self, lines: Iterable[Line]) -> None:
        """What is longer than the screen goes on below, of a row where its text begins. Texts of rows begin in one column."""
        lines = list(lines)
        column = max((len(line.label) for line in lines if isinstance(line, Row)), default=0)
        for line in lines:
            begin = 0
            if isinstance(line, Row):
                label = f" {line.label:<{max(column, _LEAST_LABEL)}} "
                begin = len(label) + len(line.text) - len(line.text.lstrip())
                line = styled((label, DIM), line.text)
            self.print_lines([line] if self.width is None else _wrapped(line, indent=begin, width=self.width))


def _wrapped(line: Text, *, indent: int, width: int) -> Iterator[Text]:
    """Words are not broken: most that are too long are parts of a command. So that a command can be copied, each of its lines but
    the last ends with a backslash."""
    command = _COMMAND.search(line.plain)
    begin = command.start() if command else -1
    ends = list(_line_ends(line.plain, indent, width=width - len(_GOES_ON) * (begin >= 0)))
    for number, part in enumerate(line.divide(ends)):
        part.rstrip()
        goes_on = 0 <= begin < ends[number] if number < len(ends) else False
        yield (Text(" " * indent) if number else Text()) + part + (_GOES_ON if goes_on else "")


def _line_ends(text: str, indent: int, *, width: int) -> Iterator[int]:
    """Where the text goes on in another line, which is indented."""
    left, begin = width, 0
    for word in _WORD.finditer(text, indent):
        if word.end() - begin > left and word.start() > max(begin, indent):
            begin, left = word.start(), width - indent
            yield begin


_COMMAND = re.compile(r"kubectl (-n \S+ )?patch ")
_GOES_ON = " \\"
_WORD = re.compile(r"\S+")
_LEAST_LABEL = 8


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


def rows_of(label: str, texts: Sequence[str]) -> Iterator[Row]:
    """What there is to say under one label, a line each."""
    for number, text in enumerate(texts):
        yield Row(label if not number else "", text)
