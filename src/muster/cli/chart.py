"""Small charts for a terminal: sparklines over time, with arrows below that mark events. Pure functions of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

BARS = " ▁▂▃▄▅▆▇█"
PLAIN_BARS = " .:-=+*#%"
_EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉"
_MAX_ROWS = 6


class Series:
    """A step function: each value holds until the time of the next one, the last until the end."""

    def __init__(self, points: Sequence[tuple[float, float]], until: float) -> None:
        self._times = np.array([*(at for at, _ in points), until])
        self._values = np.array([value for _, value in points])
        self._integral = np.concatenate(([0.0], np.cumsum(self._values * np.diff(self._times))))

    def mean(self) -> float:
        """The time-weighted mean."""
        return self.columns(1)[0]

    @property
    def peak(self) -> float:
        return float(self._values.max())

    def columns(self, width: int) -> list[float]:
        """The mean in each of `width` equal intervals; the last value where no time passes."""
        edges, step = np.linspace(self._times[0], self._times[-1], width + 1, retstep=True)
        if not step:
            return [float(self._values[-1])] * width
        means: list[float] = (np.diff(np.interp(edges, self._times, self._integral)) / step).tolist()
        return means


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
