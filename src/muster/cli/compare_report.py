"""The report of a comparison: one page with its table, its plots over time and the jobs that differ. It loads and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from muster.trace.comparison import Comparison, FigureRow, JobDifference
from muster.trace.run_result import Curve

_WIDTH, _HEIGHT = 640, 120
# Told apart by those who see no colours, too: the lines are also drawn differently.
_COLOURS = ("#0b5cad", "#c44e00", "#3f7d20", "#7a3e9d", "#8a6d00", "#444444")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "12 4")
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse } td, th { padding: .15em .8em .15em 0; text-align: right; white-space: nowrap }
td:first-child, th:first-child, td.text { text-align: left; white-space: normal } tr:nth-child(even) { background: #f4f4f4 }
.better { color: #1a6b1a } .worse { color: #a11 } figure { display: inline-block; margin: 0 1.5em 1.5em 0 }
figcaption { font-weight: 600 } svg { background: #fafafa; border: 1px solid #ccc } .axis { color: #555 }
"""


def job_cells(pair: JobDifference, *, arrow: str) -> list[str]:
    """A job with the first policy and with the last, as a row of a table."""
    first, last = pair.first, pair.last
    return [
        first.name,
        first.queue,
        f"{first.gpus:g}",
        "-" if first.end_s is None or last.end_s is None else f"{pair.seconds / 3600:+.1f} h",
        f"{first.waited_s / 3600:.1f} {arrow} {last.waited_s / 3600:.1f} h",
        f"{first.evictions} {arrow} {last.evictions}",
        f"{first.lost_gpu_hours:.0f} {arrow} {last.lost_gpu_hours:.0f}",
    ]


def report_html(headline: str, names: Sequence[str], found: Comparison, difference: Callable[[FigureRow], str]) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{escape(' and '.join(names))}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(', '.join(names))}</h1><p>{escape(headline)}</p>",
        *_figures(names, found.rows, difference),
        *_plots(names, found),
        *_jobs(names, found.jobs),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _figures(names: Sequence[str], rows: Sequence[FigureRow], difference: Callable[[FigureRow], str]) -> Iterator[str]:
    several = len(names) > 1
    last = "<th>difference (95 %)</th><th></th>" if several else ""
    yield f"<table><tr><th></th><th></th>{''.join(f'<th>{escape(name)}</th>' for name in names)}{last}</tr>"
    for row in rows:
        means = "".join(f"<td>{mean:,.2f}</td>" for mean in row.means)
        end = f'<td>{difference(row)}</td><td class="{row.verdict}">{row.verdict}</td>' if several else ""
        yield f"<tr><td>{escape(row.figure.name)}</td><td>{escape(row.figure.unit)}</td>{means}{end}</tr>"
    yield "</table>"


def _plots(names: Sequence[str], found: Comparison) -> Iterator[str]:
    curves = [found.curves(number) for number in range(len(names))]
    if not any(curves):
        return
    days = next(iter(found.results.values())).until_s / 86_400
    yield f"<h2>Over time, mean of all seeds</h2><p>{_legend(names)}</p>"
    for title in dict.fromkeys(name for each in curves for name in each):
        yield _plot(title, [each.get(title) for each in curves], days)


def _legend(names: Sequence[str]) -> str:
    parts = []
    for at, name in enumerate(names):
        line = f'<line x1="0" y1="5" x2="30" y2="5" {_stroke(at)}/>'
        parts.append(f'<svg width="30" height="10" style="border:0">{line}</svg> {escape(name)}')
    return " &nbsp; ".join(parts)


def _stroke(at: int) -> str:
    dashes = _DASHES[at % len(_DASHES)]
    return f'fill="none" stroke="{_COLOURS[at % len(_COLOURS)]}" stroke-width="1.5" stroke-dasharray="{dashes}"'


def _plot(title: str, curves: Sequence[Curve | None], days: float) -> str:
    there = [curve for curve in curves if curve is not None]
    top = max((max(curve.values, default=0.0) for curve in there), default=0.0) or 1.0
    lines = "".join(_line(curve, top, at) for at, curve in enumerate(curves) if curve is not None)
    unit = f" {there[0].unit}" if there[0].unit else ""
    caption = f'{escape(title)} <span class="axis">0 to {top:,.6g}{escape(unit)}, {days:.1f} days</span>'
    box = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f"<figure><figcaption>{caption}</figcaption><svg {box}>{lines}</svg></figure>"


def _line(curve: Curve, top: float, at: int) -> str:
    step = _WIDTH / max(len(curve.values) - 1, 1)
    points = " ".join(
        f"{number * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / top:.1f}" for number, value in enumerate(curve.values)
    )
    return f'<polyline points="{points}" {_stroke(at)}/>'


def _jobs(names: Sequence[str], jobs: Sequence[JobDifference]) -> Iterator[str]:
    if not jobs:
        return
    yield f"<h2>Jobs that fare most differently with {escape(names[-1])} than with {escape(names[0])}</h2><table>"
    columns = ("job", "queue", "GPUs", "ends", "wait", "evicted", "lost GPU-hours", "why")
    yield f"<tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr>"
    for pair in jobs:
        cells = map(escape, job_cells(pair, arrow="→"))
        name = names[-1] if pair.worse is pair.last else names[0]
        why = f"with {escape(name)} {escape(pair.worse.why)}" if pair.worse.why else ""
        yield f'<tr>{"".join(f"<td>{cell}</td>" for cell in cells)}<td class="text">{why}</td></tr>'
    yield "</table>"
