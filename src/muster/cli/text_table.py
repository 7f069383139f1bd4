"""Tables in plain text: the last column is wrapped to the terminal, or put below its row where too little width is left.

The other columns are as wide as their content. Not rich.table: it cannot put a cell below its row, and it wraps or truncates to a
width that piped output does not have.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.screen import DIM, PLAIN, TextLine, display_width

GAP = 2
_MIN_LAST_WIDTH = 44
_STACKED_INDENT = 4
"""Indentation of a last column that is put below its row."""


@dataclass(frozen=True, slots=True)
class TableCell:
    text: str
    style: str = PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    align_right: bool = False


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[TableCell | str]], *, width: int | None, indent: int = 1
) -> list[TextLine]:
    """The header, if there is one, and at least one line per row. Empty columns are left out."""
    cells = [[_cell(entry) for entry in row] for row in rows]
    kept = [i for i in range(len(columns)) if any(row[i].text for row in cells)]
    chosen = [columns[i] for i in kept]
    cells = [[row[i] for i in kept] for row in cells]
    if not chosen:
        return []
    headers = [TableCell(column.header, DIM) for column in chosen]
    table = [headers, *cells] if any(column.header for column in chosen) else cells
    widths = [max(display_width(row[i].text) for row in table) for i in range(len(chosen))]
    used = indent + sum(each + GAP for each in widths[:-1])
    last = None if width is None else width - used - 1
    if width is not None and last is not None and min(_MIN_LAST_WIDTH, widths[-1]) > last and len(chosen) > 2:
        return [
            line for number, row in enumerate(table) for line in _stacked(row, chosen, widths, indent, width, header=not number)
        ]
    return [line for row in table for line in _lines(row, chosen, widths, indent, used, last and max(_MIN_LAST_WIDTH, last))]


def _stacked(
    row: list[TableCell], columns: Sequence[Column], widths: list[int], indent: int, width: int, *, header: bool
) -> list[TextLine]:
    """A row without its last column, and the text of that column below it."""
    first = _lines([*row[:-1], TableCell("")], columns, widths, indent, 0, None)
    text_below = "" if header else row[-1].text
    below = textwrap.wrap(text_below, width - indent - _STACKED_INDENT - 1, break_on_hyphens=False)
    return [*first, *(TextLine(((" " * (indent + _STACKED_INDENT), PLAIN), (text, row[-1].style or DIM))) for text in below)]


def _cell(entry: TableCell | str) -> TableCell:
    return TableCell(entry) if isinstance(entry, str) else entry


def _lines(
    row: list[TableCell], columns: Sequence[Column], widths: list[int], indent: int, used: int, last: int | None
) -> list[TextLine]:
    parts: list[tuple[str, str]] = [(" " * indent, PLAIN)]
    for cell, column, width in zip(row[:-1], columns[:-1], widths[:-1], strict=True):
        gap = " " * (width - display_width(cell.text))
        parts += [(gap, PLAIN), (cell.text, cell.style)] if column.align_right else [(cell.text, cell.style), (gap, PLAIN)]
        parts.append((" " * GAP, PLAIN))
    final = row[-1]
    wrapped = (
        textwrap.wrap(final.text, last, break_on_hyphens=False) if last is not None and display_width(final.text) > last else []
    )
    if not wrapped:
        gap = " " * (widths[-1] - display_width(final.text)) if columns[-1].align_right else ""
        return [TextLine((*parts, (gap + final.text, final.style)))]
    below = [TextLine(((" " * used, PLAIN), (text, final.style))) for text in wrapped[1:]]
    return [TextLine((*parts, (wrapped[0], final.style))), *below]
