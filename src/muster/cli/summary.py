"""What came of a scenario, on one screen: how full the cluster was, how the queues shared it, and where every gang stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.cli.chart import Series, axis, bar, column_of, mark_lines, sparkline
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Screen, TextLine
from muster.cli.text_format import (
    amount,
    amount_of,
    clock,
    compact_names,
    count,
    duration,
    join_names,
    queue_name,
    reason_pattern,
    unit_hours,
    unit_name,
)
from muster.cli.text_table import Column, Subgroup, lay_out
from muster.cli.timeline import EVICTION_VERBS
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from muster.model.resource_amounts import CPU, PODS, short_name, show_amount
from muster.scenario.run_report import EvictionRow, GangRow, QueueRow, Report, ResourceAmounts, UsageSample

MAX_ROWS = 20
_LABEL_WIDTH = 16
_MAX_WHERE_WIDTH = 26
_STAGE_NAMES = {"satisfied": "running"}
_STAGE_STYLES = {"satisfied": GOOD, "waiting": NOTE, "gathering": NOTE, "holding": NOTE, "clearing": NOTE, "timed out": BAD}
_MARK_PREFIXES = ("lost", "removed", "restart", "back")
_MAX_MARKS = 6
_MIN_GROUP_SIZE = 3
# In the order in which a person looks for them.
_STAGE_ORDER = ("timed out", "waiting", "clearing", "holding", "gathering", "satisfied", "finished", "gone")


def main_resource(report: Report) -> str:
    """What the cluster is about: its GPUs if it has any in use, else whatever was fullest."""
    peaks: dict[str, float] = {}
    for sample in report.samples:
        for use in sample.usage:
            if use.resource != PODS:
                peaks[use.resource] = max(peaks.get(use.resource, 0.0), use.used / use.total)
    gpus = [name for name in sorted(peaks) if short_name(name).endswith("gpu") and peaks[name] > 0]
    return gpus[0] if gpus else max(sorted(peaks), key=lambda name: peaks[name], default=CPU)


def summary(report: Report, screen: Screen, *, all_gangs: bool = False) -> Iterator[TextLine]:
    """Charts over time, the tree of queues, the gangs, and what it adds up to."""
    resource = main_resource(report)
    for part in (
        _charts(report, resource, screen),
        _queues(report, resource, screen),
        _gangs(report, resource, screen, all_gangs=all_gangs),
        totals(report, resource, width=screen.width),
    ):
        if part:
            yield TextLine.of("")
            yield from part


# -- over time ---------------------------------------------------------------------------------------------------------------------


def _charts(report: Report, resource: str, screen: Screen) -> list[TextLine]:
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
    lines.extend(
        TextLine.of((f"{'':{_LABEL_WIDTH}}{text}", NOTE)) for text in mark_lines(places, width=width, unicode=screen.unicode)
    )
    lines.extend(_share_lines(report, screen))
    begin, end = clock(points[0][0]), clock(report.virtual_s)
    return [*lines, TextLine.of((f"{'':{_LABEL_WIDTH}}{axis(begin, end, width=width)}", DIM))]


def _in_use(sample: UsageSample, resource: str) -> tuple[int, int]:
    """How much of a resource was in use, and how much there was."""
    return next(((use.used, use.total) for use in sample.usage if use.resource == resource), (0, 0))


def _chart_line(label: str, series: Series, top: float, figures: str, screen: Screen) -> TextLine:
    bars = sparkline(series.columns(screen.chart_width), top=top, unicode=screen.unicode)
    return TextLine.of((f" {label:{_LABEL_WIDTH - 1}.{_LABEL_WIDTH - 2}}", PLAIN), (bars, GOOD), f"  {figures}")


def _share_lines(report: Report, screen: Screen) -> Iterator[TextLine]:
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
    yield TextLine.of("")
    for queue, series in drawn.items():
        top = max(1.0, series.peak)
        what = "of what it deserves" if of.get(queue) == "deserved" else "of the cluster"
        figures = f"mean {series.mean():.2f}   peak {series.peak:.2f} {what}"
        yield _chart_line(queue_name(queue), series, top, figures, screen)


def _marks(report: Report) -> list[tuple[float, str]]:
    """What a chart is marked with: nodes lost, restarts, and who evicted others; nodes that came back while there is room."""
    timeline_notes = [mark for mark in report.timeline_notes if mark.text.startswith(_MARK_PREFIXES)]
    if len(timeline_notes) > _MAX_MARKS:
        timeline_notes = [mark for mark in timeline_notes if not mark.text.startswith("back")]
    found = [(mark.at_s, mark.text) for mark in timeline_notes]
    plans = dict.fromkeys(
        (eviction.at_s, eviction.for_gang, EVICTION_VERBS.get(eviction.cause, "preempts")) for eviction in report.evictions
    )
    found.extend((at_s, f"{gang} {verb}") for at_s, gang, verb in plans)
    return sorted(found)


# -- queues ------------------------------------------------------------------------------------------------------------------------


def _queues(report: Report, resource: str, screen: Screen) -> list[TextLine]:
    """The tree, where there is more than the queue that is always there."""
    rows = [row for row in report.queues if row.queue != DEFAULT_QUEUE or row.used or row.waiting]
    if len(rows) < 2 or all(row.queue in (ROOT_QUEUE, DEFAULT_QUEUE) for row in rows):
        return []
    unit = short_name(resource)
    columns = [
        Column("queue"),
        Column(f"{unit} used", align_right=True),
        Column("promised", align_right=True),
        Column("deserved", align_right=True),
        Column("guarantee", align_right=True),
        Column("limit", align_right=True),
        Column("share"),
        Column(""),
        Column("pending"),
        Column(""),
    ]
    branches = _tree_prefixes(rows, unicode=screen.unicode)
    subgroups = [_queue_cells(row, branch, resource, screen) for row, branch in zip(rows, branches, strict=True)]
    return lay_out(columns, subgroups, width=screen.width)


def _queue_cells(row: QueueRow, branch: str, resource: str, screen: Screen) -> list[Subgroup | str]:
    def figure(amounts: ResourceAmounts, *, zero: str = "") -> str:
        given = dict(amounts)
        return show_amount(resource, given[resource]) if resource in given else zero

    note, style = _queue_note(row, resource)
    requested = amount_of(row.requested, resource)
    pending = f"{count(row.waiting, 'gang')}, {amount(resource, requested)}" if requested else count(row.waiting, "gang")
    return [
        f"{branch}{queue_name(row.queue)}",
        figure(row.used, zero="0"),
        figure(row.promised),
        figure(row.deserved),
        figure(row.guarantee),
        figure(row.limit),
        f"{row.share:.2f}",
        Subgroup(bar(row.share, width=10, unicode=screen.unicode), BAD if row.share > 1 else GOOD),
        pending if row.waiting else "",
        Subgroup(note, style),
    ]


def _queue_note(row: QueueRow, resource: str) -> tuple[str, str]:
    used, deserved = dict(row.used), dict(row.deserved)
    full = [short_name(name) for name, most in row.limit if most and used.get(name, 0) >= most]
    if full:
        return f"at its limit ({join_names(full)})", NOTE
    over = used.get(resource, 0) - deserved.get(resource, 0)
    if row.queue != ROOT_QUEUE and deserved.get(resource) and over > 0:
        return f"{show_amount(resource, over)} over: may be reclaimed", NOTE
    return "", PLAIN


def _tree_prefixes(rows: Sequence[QueueRow], *, unicode: bool) -> list[str]:
    """The lines of a tree before each name."""
    tee, end, pipe = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    found: list[str] = []
    for i, row in enumerate(rows):
        if not row.depth:
            found.append("")
            continue
        open_above = [_has_next_sibling(rows, i, depth) for depth in range(1, row.depth)]
        found.append(
            "".join(pipe if more else "   " for more in open_above) + (tee if _has_next_sibling(rows, i, row.depth) else end)
        )
    return found


def _has_next_sibling(rows: Sequence[QueueRow], i: int, depth: int) -> bool:
    """Does another queue of this depth follow below the same parent?"""
    for later in rows[i + 1 :]:
        if later.depth < depth:
            return False
        if later.depth == depth:
            return True
    return False


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def _gangs(report: Report, resource: str, screen: Screen, *, all_gangs: bool) -> list[TextLine]:
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
        Column("members", align_right=True),
        Column("stage"),
        Column("where"),
        Column("waited", align_right=True),
        Column("why"),
    ]
    evictions_index = _EvictionIndex(report, resource)
    groups = [[row] for row in shown] if all_gangs else _alike(shown, evictions_index)
    cut = groups if all_gangs else groups[:MAX_ROWS]
    subgroups = [_gang_cells(group, evictions_index, with_queue=bool(queues)) for group in cut]
    lines = lay_out(columns, subgroups, width=screen.width)
    if len(cut) < len(groups):
        left_out = sum(len(group) for group in groups[MAX_ROWS:])
        lines.append(TextLine.of((f" and {count(left_out, 'more gang')}: --all shows every one", DIM)))
    return lines


def _alike(rows: Sequence[GangRow], evictions_index: _EvictionIndex) -> list[list[GangRow]]:
    """Several gangs of which the same can be said are told of together, two are not."""
    groups: dict[object, list[GangRow]] = {}
    for row in rows:
        said, name = reason_pattern(evictions_index.why(row), row.gang), reason_pattern(row.gang, "")
        groups.setdefault((name, row.queue, row.members, row.succeeded, row.min, row.stage, row.waited_s, said), []).append(row)
    return [part for group in groups.values() for part in ([group] if len(group) >= _MIN_GROUP_SIZE else [[row] for row in group])]


def _gang_cells(rows: Sequence[GangRow], evictions_index: _EvictionIndex, *, with_queue: bool) -> list[Subgroup | str]:
    row = rows[0]
    done = row.members if row.members else row.succeeded
    each = f"{len(rows)} x " if len(rows) > 1 else ""
    return [
        Subgroup(compact_names(each.gang for each in rows), BOLD if row.stage != "finished" else PLAIN),
        queue_name(row.queue) if with_queue else "",
        f"{each}{done}/{row.min}",
        Subgroup(_STAGE_NAMES.get(row.stage, row.stage), _STAGE_STYLES.get(row.stage, PLAIN)),
        _where(sorted({node for each in rows for node in each.nodes})),
        duration(row.waited_s),
        evictions_index.why(row),
    ]


def _where(nodes: Sequence[str]) -> str:
    """The nodes in short, or how many they are."""
    named = compact_names(nodes)
    if len(named) <= _MAX_WHERE_WIDTH:
        return named or "-"
    racks = compact_names(sorted({node.rpartition("-")[0] for node in nodes} - {""}))
    several = f"{len(nodes)} nodes"
    return f"{several}, {racks}" if racks and len(racks) + len(several) + 2 <= _MAX_WHERE_WIDTH else several


@dataclass(frozen=True, slots=True)
class _EvictionSummary:
    """What one gang took from another at one moment."""

    gang: str
    at_s: float
    pods: int
    freed: int
    lost: float
    """Work thrown away, in seconds of one unit of the resource."""


class _EvictionIndex:
    """Who evicted whom, for the last column."""

    def __init__(self, report: Report, resource: str) -> None:
        self._resource = resource
        self._by_preemptor: dict[str, list[_EvictionSummary]] = {}
        self._last_eviction: dict[str, EvictionRow] = {}
        groups: dict[tuple[float, str, str], list[EvictionRow]] = {}
        for eviction in report.evictions:
            groups.setdefault((eviction.at_s, eviction.for_gang, eviction.gang), []).append(eviction)
            self._last_eviction[eviction.gang] = eviction
        for (at_s, winner, loser), evictions in groups.items():
            freed = sum(amount_of(each.request, resource) for each in evictions)
            lost = sum(amount_of(each.request, resource) * each.lost_work_s for each in evictions)
            self._by_preemptor.setdefault(winner, []).append(_EvictionSummary(loser, at_s, len(evictions), freed, lost))

    def why(self, row: GangRow) -> str:
        """Why a gang waits; for one that runs, what is to know about how it came to."""
        said: list[str] = []
        if row.stage in ("finished", "gone") or not row.why:
            said.extend(self._evictions_text(row.gang))
        if row.gang in self._last_eviction:
            last = self._last_eviction[row.gang]
            said.append(f"lost {count(row.evicted, 'member')} to eviction, last at {clock(last.at_s)} for {last.for_gang}")
        if row.why:
            said.append(row.why)
        elif row.stage == "gathering":
            said.append(f"{row.size} of at least {count(row.min, 'member exists', 'members exist')}")
        elif row.stage == "satisfied" and row.members > row.min:
            said.append(f"{row.members - row.min} above its minimum, first to go if room is needed")
        return "; ".join(said)

    def _evictions_text(self, gang: str) -> Iterator[str]:
        plans: dict[float, list[_EvictionSummary]] = {}
        for taken in self._by_preemptor.get(gang, ()):
            plans.setdefault(taken.at_s, []).append(taken)
        for at_s, plan in plans.items():
            lost, freed = sum(taken.lost for taken in plan), sum(taken.freed for taken in plan)
            cost = f", {unit_hours(self._resource, lost)} of work" if lost else ""
            whom = join_names([f"{taken.pods} of {taken.gang}" for taken in plan])
            yield f"evicted {whom} ({amount(self._resource, freed)}{cost}) at {clock(at_s)}"


# -- totals ------------------------------------------------------------------------------------------------------------------------


def totals(report: Report, resource: str, *, width: int | None) -> list[TextLine]:
    """On one line, or on three where that is too long."""
    stages: dict[str, int] = {}
    for row in report.gangs:
        stages[row.stage] = stages.get(row.stage, 0) + 1
    words = [f"{stages[stage]} {_STAGE_NAMES.get(stage, stage)}" for stage in reversed(_STAGE_ORDER) if stage in stages]
    # "gone" last: they are nobody's worry.
    gangs = f" {count(len(report.gangs), 'gang')}: {', '.join(words)}." if words else " No gangs."
    laws = f"{count(len(report.violations), 'law')} broken." if report.violations else "No law broken."
    parts = [(gangs, BOLD), (f" {_evicted(report, resource)}", PLAIN), (f" {laws}", BAD if report.violations else GOOD)]
    if width is not None and sum(len(text) + 1 for text, _ in parts) > width:
        return [TextLine.of(part) for part in parts]
    return [TextLine(tuple((f"{text} ", style) for text, style in parts))]


def _evicted(report: Report, resource: str) -> str:
    if not report.evictions:
        return "Nobody evicted."
    plans = len({(eviction.at_s, eviction.for_gang) for eviction in report.evictions})
    gangs = len({eviction.gang for eviction in report.evictions})
    lost = sum(amount_of(each.request, resource) * each.lost_work_s for each in report.evictions)
    pods = count(len(report.evictions), "pod")
    return f"{count(plans, 'eviction plan')} took {pods} of {count(gangs, 'gang')}, {unit_hours(resource, lost)} lost."
