"""Columns of text. The last column is wrapped to the width there is: under itself, or below its row where that is too narrow.

The other columns are as wide as what is in them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.screen import DIM, PLAIN, Line, width_of

GAP = 2
_NARROWEST_LAST = 44
_BELOW = 4
"""How far what stands below its row is indented."""


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    right: bool = False


Entry = Cell | str


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[Entry]], *, width: int | None, indent: int = 1) -> list[Line]:
    """A line with the heads, if there are any, and at least one for each row. Columns that are empty all the way are left out."""
    cells = [[_cell(entry) for entry in row] for row in rows]
    kept = [i for i in range(len(columns)) if any(row[i].text for row in cells)]
    chosen = [columns[i] for i in kept]
    cells = [[row[i] for i in kept] for row in cells]
    if not chosen:
        return []
    heads = [Cell(column.head, DIM) for column in chosen]
    table = [heads, *cells] if any(column.head for column in chosen) else cells
    widths = [max(width_of(row[i].text) for row in table) for i in range(len(chosen))]
    used = indent + sum(each + GAP for each in widths[:-1])
    last = None if width is None else width - used - 1
    if width is not None and last is not None and min(_NARROWEST_LAST, widths[-1]) > last and len(chosen) > 2:
        return [line for number, row in enumerate(table) for line in _stacked(row, chosen, widths, indent, width, head=not number)]
    return [line for row in table for line in _lines(row, chosen, widths, indent, used, last and max(_NARROWEST_LAST, last))]


def _stacked(row: list[Cell], columns: Sequence[Column], widths: list[int], indent: int, width: int, *, head: bool) -> list[Line]:
    """A row without its last column, and below it what stands there."""
    first = _lines([*row[:-1], Cell("")], columns, widths, indent, 0, None)
    said = "" if head else row[-1].text
    below = textwrap.wrap(said, width - indent - _BELOW - 1, break_on_hyphens=False)
    return [*first, *(Line(((" " * (indent + _BELOW), PLAIN), (text, row[-1].style or DIM))) for text in below)]


def _cell(entry: Entry) -> Cell:
    return Cell(entry) if isinstance(entry, str) else entry


def _lines(row: list[Cell], columns: Sequence[Column], widths: list[int], indent: int, used: int, last: int | None) -> list[Line]:
    parts: list[tuple[str, str]] = [(" " * indent, PLAIN)]
    for cell, column, width in zip(row[:-1], columns[:-1], widths[:-1], strict=True):
        gap = " " * (width - width_of(cell.text))
        parts += [(gap, PLAIN), (cell.text, cell.style)] if column.right else [(cell.text, cell.style), (gap, PLAIN)]
        parts.append((" " * GAP, PLAIN))
    final = row[-1]
    wrapped = textwrap.wrap(final.text, last, break_on_hyphens=False) if last is not None and width_of(final.text) > last else []
    if not wrapped:
        gap = " " * (widths[-1] - width_of(final.text)) if columns[-1].right else ""
        return [Line((*parts, (gap + final.text, final.style)))]
    below = [Line(((" " * used, PLAIN), (text, final.style))) for text in wrapped[1:]]
    return [Line((*parts, (wrapped[0], final.style))), *below]
