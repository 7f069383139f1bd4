"""Small charts for a terminal: sparklines over time, with arrows below that mark events. Pure functions of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BARS = " ▁▂▃▄▅▆▇█"
PLAIN_BARS = " .:-=+*#%"
_EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉"
_MAX_ROWS = 6


@dataclass(frozen=True, slots=True)
class Series:
    """A step function: each value holds until the time of the next one."""

    points: tuple[tuple[float, float], ...]
    until: float

    def mean(self, start: float | None = None, end: float | None = None) -> float:
        """The time-weighted mean between two times; the last value where no time passes."""
        start = self.points[0][0] if start is None else start
        end = self.until if end is None else end
        total = covered_s = last = 0.0
        for (at, value), (until, _) in zip(self.points, (*self.points[1:], (self.until, 0.0)), strict=True):
            if at <= start:
                last = value
            overlap = min(until, end) - max(at, start)
            if overlap > 0:
                total += value * overlap
                covered_s += overlap
        return total / covered_s if covered_s else last

    @property
    def peak(self) -> float:
        return max((value for _, value in self.points), default=0.0)

    def columns(self, width: int) -> list[float]:
        """The mean in each of `width` equal intervals."""
        start = self.points[0][0]
        step = (self.until - start) / width
        return [self.mean(start + i * step, start + (i + 1) * step) for i in range(width)]


def sparkline(values: Iterable[float], *, top: float, unicode: bool = True) -> str:
    """One character per value. Only zero is blank, and only the maximum is a full block."""
    bars = BARS if unicode else PLAIN_BARS
    highest = len(bars) - 1
    characters = []
    for value in values:
        share = value / top if top > 0 else 0.0
        level = highest if share >= 0.995 else min(highest - 1, max(1, round(share * highest)))
        characters.append(bars[level] if value > 0 else bars[0])
    return "".join(characters)


def bar(share: float, *, width: int, unicode: bool = True) -> str:
    """A horizontal bar; shares above 1 are drawn as 1."""
    share = min(1.0, max(0.0, share))
    if not unicode:
        return "#" * round(share * width)
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + (_EIGHTH_BLOCKS[eighths % 8] if eighths % 8 else "")


def column_of(at: float, *, start: float, until: float, width: int) -> int:
    return min(width - 1, max(0, int((at - start) / (until - start) * width))) if until > start else 0


def mark_lines(marks: Sequence[tuple[int, str]], *, width: int, unicode: bool = True) -> list[str]:
    """Lines below a chart: an arrow at each column with its text, on as many lines as needed up to a limit."""
    arrow = "↑" if unicode else "^"
    rows: list[list[tuple[int, str]]] = []
    left_out = 0
    for column, label in sorted(marks, key=lambda mark: -mark[0]):
        text = f"{arrow} {label}"
        # From right to left: a label must end before the next one in its row begins.
        row = next((row for row in rows if column + len(text) + 2 <= row[-1][0]), None)
        if row is not None:
            row.append((column, text))
        elif len(rows) < _MAX_ROWS:
            rows.append([(column, text)])
        else:
            left_out += 1
    lines = [_mark_line(row) for row in rows]
    return [*lines, f"{'':{max(0, width - 20)}}and {left_out} more"] if left_out else lines


def _mark_line(row: list[tuple[int, str]]) -> str:
    line = ""
    for column, text in reversed(row):
        line = f"{line:{column}}{text}"
    return line


def axis(first: str, last: str, *, width: int) -> str:
    """The first and the last time, below a chart."""
    return f"{first}{last:>{max(1, width - len(first))}}"
