"""What came of a scenario, on one screen: how full the cluster was, how the queues shared it, and where every gang stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.cli.chart import Series, axis, bar, column_of, notes, spark
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Line, Screen
from muster.cli.story import VERBS
from muster.cli.table import Cell, Column, lay_out
from muster.cli.words import amount, amount_of, clock, count, fold, hours, listed, pattern, queue_title, span, unit_name
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from muster.model.resources import CPU, PODS, short_name, show_amount
from muster.scenario.report import Amounts, Eviction, GangRow, QueueRow, Report, Sample

MOST_ROWS = 20
_LABEL = 16
_LONGEST_WHERE = 26
_STAGE_WORDS = {"satisfied": "running"}
_STAGE_STYLES = {"satisfied": GOOD, "waiting": NOTE, "gathering": NOTE, "holding": NOTE, "clearing": NOTE, "timed out": BAD}
_MARKED = ("lost", "removed", "restart", "back")
_MANY_MARKS = 6
_SEVERAL = 3
# In the order in which a person looks for them.
_STAGE_ORDER = ("timed out", "waiting", "clearing", "holding", "gathering", "satisfied", "finished", "gone")


def main_resource(report: Report) -> str:
    """What the cluster is about: its GPUs if it has any in use, else whatever was fullest."""
    peaks: dict[str, float] = {}
    for sample in report.samples:
        for use in sample.uses:
            if use.resource != PODS:
                peaks[use.resource] = max(peaks.get(use.resource, 0.0), use.used / use.total)
    gpus = [name for name in sorted(peaks) if short_name(name).endswith("gpu") and peaks[name] > 0]
    return gpus[0] if gpus else max(sorted(peaks), key=lambda name: peaks[name], default=CPU)


def summary(report: Report, screen: Screen, *, all_gangs: bool = False) -> Iterator[Line]:
    """Charts over time, the tree of queues, the gangs, and what it adds up to."""
    resource = main_resource(report)
    for part in (
        _charts(report, resource, screen),
        _queues(report, resource, screen),
        _gangs(report, resource, screen, all_gangs=all_gangs),
        totals(report, resource, width=screen.width),
    ):
        if part:
            yield Line.of("")
            yield from part


# -- over time ---------------------------------------------------------------------------------------------------------------------


def _charts(report: Report, resource: str, screen: Screen) -> list[Line]:
    """One line for the cluster and one for each queue, on the same axis. Where no time passes there is nothing to draw."""
    points = [(sample.at_s, sample.share(resource)) for sample in report.samples]
    if report.virtual_s <= 0 or len(points) < 2:
        return []
    width = screen.chart_width
    use = Series(tuple(points), report.virtual_s)
    peak = max((_in_use(sample, resource) for sample in report.samples), key=lambda figures: figures[0])
    figures = f"peak {show_amount(resource, peak[0])}/{show_amount(resource, peak[1])}   mean {100 * use.mean():.0f} %"
    lines = [_chart_line(f"{unit_name(resource)} in use", use, 1.0, figures, screen)]
    places = [(column_of(at_s, start=points[0][0], until=report.virtual_s, width=width), text) for at_s, text in _marks(report)]
    lines.extend(Line.of((f"{'':{_LABEL}}{text}", NOTE)) for text in notes(places, width=width, unicode=screen.unicode))
    lines.extend(_share_lines(report, screen))
    begin, end = clock(points[0][0]), clock(report.virtual_s)
    return [*lines, Line.of((f"{'':{_LABEL}}{axis(begin, end, width=width)}", DIM))]


def _in_use(sample: Sample, resource: str) -> tuple[int, int]:
    """How much of a resource was in use, and how much there was."""
    return next(((use.used, use.total) for use in sample.uses if use.resource == resource), (0, 0))


def _chart_line(label: str, series: Series, top: float, figures: str, screen: Screen) -> Line:
    bars = spark(series.columns(screen.chart_width), top=top, unicode=screen.unicode)
    return Line.of((f" {label:{_LABEL - 1}.{_LABEL - 2}}", PLAIN), (bars, GOOD), f"  {figures}")


def _share_lines(report: Report, screen: Screen) -> Iterator[Line]:
    """The share of each queue. A queue that never had anything is left out."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for sample in report.shares:
        for queue, share in sample.shares:
            shares.setdefault(queue, []).append((sample.at_s, share))
    of = {row.queue: row.of for row in report.queues}
    drawn = {
        queue: Series(tuple(points), report.virtual_s) for queue, points in sorted(shares.items()) if any(p[1] for p in points)
    }
    if not drawn:
        return
    yield Line.of("")
    for queue, series in drawn.items():
        top = max(1.0, series.peak)
        what = "of what it deserves" if of.get(queue) == "deserved" else "of the cluster"
        figures = f"mean {series.mean():.2f}   peak {series.peak:.2f} {what}"
        yield _chart_line(queue_title(queue), series, top, figures, screen)


def _marks(report: Report) -> list[tuple[float, str]]:
    """What a chart is marked with: nodes lost, restarts, and who evicted others; nodes that came back while there is room."""
    marks = [mark for mark in report.marks if mark.text.startswith(_MARKED)]
    if len(marks) > _MANY_MARKS:
        marks = [mark for mark in marks if not mark.text.startswith("back")]
    found = [(mark.at_s, mark.text) for mark in marks]
    plans = dict.fromkeys(
        (eviction.at_s, eviction.for_gang, VERBS.get(eviction.cause, "preempts")) for eviction in report.evictions
    )
    found.extend((at_s, f"{gang} {verb}") for at_s, gang, verb in plans)
    return sorted(found)


# -- queues ------------------------------------------------------------------------------------------------------------------------


def _queues(report: Report, resource: str, screen: Screen) -> list[Line]:
    """The tree, where there is more than the queue that is always there."""
    rows = [row for row in report.queues if row.queue != DEFAULT_QUEUE or row.used or row.waiting]
    if len(rows) < 2 or all(row.queue in (ROOT_QUEUE, DEFAULT_QUEUE) for row in rows):
        return []
    unit = short_name(resource)
    columns = [
        Column("queue"),
        Column(f"{unit} used", right=True),
        Column("promised", right=True),
        Column("deserved", right=True),
        Column("guarantee", right=True),
        Column("limit", right=True),
        Column("share"),
        Column(""),
        Column("pending"),
        Column(""),
    ]
    branches = _branches(rows, unicode=screen.unicode)
    cells = [_queue_cells(row, branch, resource, screen) for row, branch in zip(rows, branches, strict=True)]
    return lay_out(columns, cells, width=screen.width)


def _queue_cells(row: QueueRow, branch: str, resource: str, screen: Screen) -> list[Cell | str]:
    def figure(amounts: Amounts, *, zero: str = "") -> str:
        given = dict(amounts)
        return show_amount(resource, given[resource]) if resource in given else zero

    note, style = _queue_note(row, resource)
    asked = amount_of(row.asked, resource)
    pending = f"{count(row.waiting, 'gang')}, {amount(resource, asked)}" if asked else count(row.waiting, "gang")
    return [
        f"{branch}{queue_title(row.queue)}",
        figure(row.used, zero="0"),
        figure(row.promised),
        figure(row.deserved),
        figure(row.guarantee),
        figure(row.limit),
        f"{row.share:.2f}",
        Cell(bar(row.share, width=10, unicode=screen.unicode), BAD if row.share > 1 else GOOD),
        pending if row.waiting else "",
        Cell(note, style),
    ]


def _queue_note(row: QueueRow, resource: str) -> tuple[str, str]:
    used, deserved = dict(row.used), dict(row.deserved)
    full = [short_name(name) for name, most in row.limit if most and used.get(name, 0) >= most]
    if full:
        return f"at its limit ({listed(full)})", NOTE
    over = used.get(resource, 0) - deserved.get(resource, 0)
    if row.queue != ROOT_QUEUE and deserved.get(resource) and over > 0:
        return f"{show_amount(resource, over)} over: may be reclaimed", NOTE
    return "", PLAIN


def _branches(rows: Sequence[QueueRow], *, unicode: bool) -> list[str]:
    """The lines of a tree before each name."""
    tee, end, pipe = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    found: list[str] = []
    for i, row in enumerate(rows):
        if not row.depth:
            found.append("")
            continue
        open_above = [_goes_on(rows, i, depth) for depth in range(1, row.depth)]
        found.append("".join(pipe if more else "   " for more in open_above) + (tee if _goes_on(rows, i, row.depth) else end))
    return found


def _goes_on(rows: Sequence[QueueRow], i: int, depth: int) -> bool:
    """Does another queue of this depth follow below the same parent?"""
    for later in rows[i + 1 :]:
        if later.depth < depth:
            return False
        if later.depth == depth:
            return True
    return False


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def _gangs(report: Report, resource: str, screen: Screen, *, all_gangs: bool) -> list[Line]:
    """Who waits, who runs, who is done; those that are done only where that is all there is, or everything was asked for."""
    rows = sorted(report.gangs, key=lambda row: (_STAGE_ORDER.index(row.stage), -row.priority, row.gang))
    live = [row for row in rows if row.stage not in ("finished", "gone")]
    shown = rows if all_gangs or not live else live
    if not shown:
        return []
    queues = {row.queue for row in report.gangs} - {DEFAULT_QUEUE}
    columns = [
        Column("gang"),
        Column("queue"),
        Column("members", right=True),
        Column("stage"),
        Column("where"),
        Column("waited", right=True),
        Column("why"),
    ]
    deeds = _Deeds(report, resource)
    groups = [[row] for row in shown] if all_gangs else _alike(shown, deeds)
    cut = groups if all_gangs else groups[:MOST_ROWS]
    cells = [_gang_cells(group, deeds, with_queue=bool(queues)) for group in cut]
    lines = lay_out(columns, cells, width=screen.width)
    if len(cut) < len(groups):
        left_out = sum(len(group) for group in groups[MOST_ROWS:])
        lines.append(Line.of((f" and {count(left_out, 'more gang')}: --all shows every one", DIM)))
    return lines


def _alike(rows: Sequence[GangRow], deeds: _Deeds) -> list[list[GangRow]]:
    """Several gangs of which the same can be said are told of together, two are not."""
    groups: dict[object, list[GangRow]] = {}
    for row in rows:
        said, name = pattern(deeds.why(row), row.gang), pattern(row.gang, "")
        groups.setdefault((name, row.queue, row.members, row.succeeded, row.min, row.stage, row.waited_s, said), []).append(row)
    return [part for group in groups.values() for part in ([group] if len(group) >= _SEVERAL else [[row] for row in group])]


def _gang_cells(rows: Sequence[GangRow], deeds: _Deeds, *, with_queue: bool) -> list[Cell | str]:
    row = rows[0]
    done = row.members if row.members else row.succeeded
    each = f"{len(rows)} x " if len(rows) > 1 else ""
    return [
        Cell(fold(each.gang for each in rows), BOLD if row.stage != "finished" else PLAIN),
        queue_title(row.queue) if with_queue else "",
        f"{each}{done}/{row.min}",
        Cell(_STAGE_WORDS.get(row.stage, row.stage), _STAGE_STYLES.get(row.stage, PLAIN)),
        _where(sorted({node for each in rows for node in each.where})),
        span(row.waited_s),
        deeds.why(row),
    ]


def _where(nodes: Sequence[str]) -> str:
    """The nodes in short, or how many they are."""
    named = fold(nodes)
    if len(named) <= _LONGEST_WHERE:
        return named or "-"
    racks = fold(sorted({node.rpartition("-")[0] for node in nodes} - {""}))
    several = f"{len(nodes)} nodes"
    return f"{several}, {racks}" if racks and len(racks) + len(several) + 2 <= _LONGEST_WHERE else several


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one gang took from another at one moment."""

    gang: str
    at_s: float
    pods: int
    freed: int
    lost: float
    """Work thrown away, in seconds of one unit of the resource."""


class _Deeds:
    """Who evicted whom, for the last column."""

    def __init__(self, report: Report, resource: str) -> None:
        self._resource = resource
        self._by_winner: dict[str, list[_Taken]] = {}
        self._last: dict[str, Eviction] = {}
        groups: dict[tuple[float, str, str], list[Eviction]] = {}
        for eviction in report.evictions:
            groups.setdefault((eviction.at_s, eviction.for_gang, eviction.gang), []).append(eviction)
            self._last[eviction.gang] = eviction
        for (at_s, winner, loser), evictions in groups.items():
            freed = sum(amount_of(each.request, resource) for each in evictions)
            lost = sum(amount_of(each.request, resource) * each.lost_s for each in evictions)
            self._by_winner.setdefault(winner, []).append(_Taken(loser, at_s, len(evictions), freed, lost))

    def why(self, row: GangRow) -> str:
        """Why a gang waits; for one that runs, what is to know about how it came to."""
        said: list[str] = []
        if row.stage in ("finished", "gone") or not row.why:
            said.extend(self._took(row.gang))
        if row.gang in self._last:
            last = self._last[row.gang]
            said.append(f"lost {count(row.evicted, 'member')} to eviction, last at {clock(last.at_s)} for {last.for_gang}")
        if row.why:
            said.append(row.why)
        elif row.stage == "gathering":
            said.append(f"{row.size} of at least {count(row.min, 'member exists', 'members exist')}")
        elif row.stage == "satisfied" and row.members > row.min:
            said.append(f"{row.members - row.min} above its minimum, first to go if room is needed")
        return "; ".join(said)

    def _took(self, gang: str) -> Iterator[str]:
        plans: dict[float, list[_Taken]] = {}
        for taken in self._by_winner.get(gang, ()):
            plans.setdefault(taken.at_s, []).append(taken)
        for at_s, plan in plans.items():
            lost, freed = sum(taken.lost for taken in plan), sum(taken.freed for taken in plan)
            cost = f", {hours(self._resource, lost)} of work" if lost else ""
            whom = listed([f"{taken.pods} of {taken.gang}" for taken in plan])
            yield f"evicted {whom} ({amount(self._resource, freed)}{cost}) at {clock(at_s)}"


# -- totals ------------------------------------------------------------------------------------------------------------------------


def totals(report: Report, resource: str, *, width: int | None) -> list[Line]:
    """On one line, or on three where that is too long."""
    stages: dict[str, int] = {}
    for row in report.gangs:
        stages[row.stage] = stages.get(row.stage, 0) + 1
    words = [f"{stages[stage]} {_STAGE_WORDS.get(stage, stage)}" for stage in reversed(_STAGE_ORDER) if stage in stages]
    # "gone" last: they are nobody's worry.
    gangs = f" {count(len(report.gangs), 'gang')}: {', '.join(words)}." if words else " No gangs."
    laws = f"{count(len(report.breaches), 'law')} broken." if report.breaches else "No law broken."
    parts = [(gangs, BOLD), (f" {_evicted(report, resource)}", PLAIN), (f" {laws}", BAD if report.breaches else GOOD)]
    if width is not None and sum(len(text) + 1 for text, _ in parts) > width:
        return [Line.of(part) for part in parts]
    return [Line(tuple((f"{text} ", style) for text, style in parts))]


def _evicted(report: Report, resource: str) -> str:
    if not report.evictions:
        return "Nobody evicted."
    plans = len({(eviction.at_s, eviction.for_gang) for eviction in report.evictions})
    gangs = len({eviction.gang for eviction in report.evictions})
    lost = sum(amount_of(each.request, resource) * each.lost_s for each in report.evictions)
    pods = count(len(report.evictions), "pod")
    return f"{count(plans, 'eviction plan')} took {pods} of {count(gangs, 'gang')}, {hours(resource, lost)} lost."
