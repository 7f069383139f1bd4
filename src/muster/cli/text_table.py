"""Tables without lines: the last column is wrapped to the terminal, or put below its row where too little width is left.

rich lays out the columns. What it cannot do is put a cell below its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.screen import DIM, TextPart, styled

_CONSOLE = Console(highlight=False, markup=False, emoji=False)
UNBOUNDED = 100_000
_GAP = 2
_MIN_LAST_WIDTH = 44
_INDENT_BELOW = 4
"""Indentation of a last column that is put below its row."""


def lay_out(columns: Sequence[str], rows: Sequence[Sequence[TextPart]], *, width: int | None, indent: int = 1) -> list[Text]:
    """The header, if there is one, and at least one line per row. Empty columns are left out.

    `>`, before the header of a column, aligns it to the right. `width` None: nothing is wrapped.
    """
    cells = [[styled(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    if not kept:
        return []
    lines = _lines([columns[i] for i in kept], [[row[i] for i in kept] for row in cells], width=width and width - indent - 1)
    return [Text(" " * indent) + line for line in lines]


def _lines(columns: list[str], rows: list[list[Text]], *, width: int | None) -> list[Text]:
    if width is None:
        return _render(columns, rows, width=UNBOUNDED)
    others = _render(columns[:-1], [row[:-1] for row in rows], width=UNBOUNDED)
    used = max(line.cell_len for line in others) + _GAP
    longest = max(row[-1].cell_len for row in rows)
    if len(columns) > 2 and width - used < min(_MIN_LAST_WIDTH, longest):
        return list(_stacked(others, [row[-1] for row in rows], width=width))
    return _render(columns, rows, width=max(width, used + _MIN_LAST_WIDTH))


def _stacked(lines: list[Text], last_cells: list[Text], *, width: int) -> Iterator[Text]:
    """The lines of the other columns, each with its last cell below it."""
    headers = len(lines) - len(last_cells)
    yield from lines[:headers]
    for line, cell in zip(lines[headers:], last_cells, strict=True):
        yield line
        cell.style = cell.style or DIM
        for text in cell.wrap(_CONSOLE, width - _INDENT_BELOW) if cell else ():
            yield Text(" " * _INDENT_BELOW) + text


def _render(columns: list[str], rows: list[list[Text]], *, width: int) -> list[Text]:
    headers = [column.removeprefix(">") for column in columns]
    table = Table(box=None, show_header=any(headers), header_style=DIM, pad_edge=False, padding=(0, _GAP, 0, 0))
    for number, column in enumerate(columns, start=1):
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(headers[number - 1], justify=justify, no_wrap=number < len(columns))
    for row in rows:
        table.add_row(*row)
    rendered = _CONSOLE.render_lines(table, _CONSOLE.options.update(width=width), pad=False)
    lines = [Text.assemble(*((segment.text, segment.style or "") for segment in line)) for line in rendered]
    for line in lines:
        line.rstrip()
    return lines
