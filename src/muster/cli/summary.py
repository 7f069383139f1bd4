"""The summary of a run on one screen: utilisation over time, the queues and their shares, the gangs and their stages, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text
from rich.tree import Tree

from muster.cli.chart import Series, axis, bar, column_of, mark_lines, sparkline
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Screen, TextPart, styled
from muster.cli.text_format import (
    amount,
    amount_of,
    clock,
    compact_names,
    count,
    count_by_gang,
    duration,
    join_names,
    queue_name,
    reason_pattern,
    unit_hours,
    unit_name,
)
from muster.cli.text_table import UNBOUNDED, lay_out
from muster.cli.timeline import EVICTION_VERBS
from muster.model.gang import Stage
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from muster.model.resource_amounts import CPU, PODS, short_name, show_amount
from muster.queue_report import QueueRow, ResourceAmounts
from muster.scenario.run_report import EvictionRow, GangRow, Report, UsageSample

MAX_ROWS = 20
_LABEL_WIDTH = 16
_MAX_WHERE_WIDTH = 26
_DELETED = "deleted"
# The stages that need attention first.
STAGE_STYLES = {
    Stage.TIMED_OUT.value: BAD,
    Stage.WAITING.value: NOTE,
    Stage.PREEMPTING.value: NOTE,
    Stage.WAITING_ON_PERMIT.value: NOTE,
    Stage.WAITING_FOR_PODS.value: NOTE,
    Stage.RUNNING.value: GOOD,
    Stage.FINISHED.value: PLAIN,
    _DELETED: PLAIN,
}
STAGE_ORDER = tuple(STAGE_STYLES)
_ENDED_STAGES = (Stage.FINISHED.value, _DELETED)
_MARK_PREFIXES = ("node failed", "node removed", "restart", "node recovered")
_MAX_MARKS = 6
_MIN_GROUP_SIZE = 3


def main_resource(report: Report) -> str:
    """The resource that is charted: GPUs if any were in use, else the one with the highest peak utilisation."""
    peaks: dict[str, float] = {}
    for sample in report.samples:
        for usage in sample.usage:
            if usage.resource != PODS:
                peaks[usage.resource] = max(peaks.get(usage.resource, 0.0), usage.used / usage.total)
    gpus = [name for name in sorted(peaks) if short_name(name).endswith("gpu") and peaks[name] > 0]
    return gpus[0] if gpus else max(sorted(peaks), key=lambda name: peaks[name], default=CPU)


def summary(report: Report, screen: Screen, *, all_gangs: bool = False) -> Iterator[Text]:
    """Charts over time, the tree of queues, the gangs, and the totals."""
    resource = main_resource(report)
    for part in (
        _charts(report, resource, screen),
        _queues(report, resource, screen),
        _gangs(report, resource, screen, all_gangs=all_gangs),
        totals(report, resource, width=screen.width),
    ):
        if part:
            yield styled("")
            yield from part


# -- over time ---------------------------------------------------------------------------------------------------------------------


def _charts(report: Report, resource: str, screen: Screen) -> list[Text]:
    """One line for the cluster and one for each queue, on the same axis. None where no time passes."""
    points = [(sample.at_s, sample.share(resource)) for sample in report.samples]
    if report.virtual_s <= 0 or len(points) < 2:
        return []
    width = screen.chart_width
    utilisation = Series(points, report.virtual_s)
    used, total = max((_in_use(sample, resource) for sample in report.samples), key=lambda amounts: amounts[0])
    numbers = f"peak {show_amount(resource, used)}/{show_amount(resource, total)}   mean {100 * utilisation.mean():.0f} %"
    lines = [_chart_line(f"{unit_name(resource)} in use", utilisation, 1.0, numbers, screen)]
    marks = [(column_of(at_s, start=points[0][0], until=report.virtual_s, width=width), text) for at_s, text in _marks(report)]
    lines.extend(styled((f"{'':{_LABEL_WIDTH}}{text}", NOTE)) for text in mark_lines(marks, width=width, unicode=screen.unicode))
    lines.extend(_share_lines(report, screen))
    begin, end = clock(points[0][0]), clock(report.virtual_s)
    return [*lines, styled((f"{'':{_LABEL_WIDTH}}{axis(begin, end, width=width)}", DIM))]


def _in_use(sample: UsageSample, resource: str) -> tuple[int, int]:
    """The amount of a resource in use, and the total."""
    return next(((usage.used, usage.total) for usage in sample.usage if usage.resource == resource), (0, 0))


def _chart_line(label: str, series: Series, top: float, numbers: str, screen: Screen) -> Text:
    bars = sparkline(series.columns(screen.chart_width), top=top, unicode=screen.unicode)
    return styled((f" {label:{_LABEL_WIDTH - 1}.{_LABEL_WIDTH - 2}}", PLAIN), (bars, GOOD), f"  {numbers}")


def _share_lines(report: Report, screen: Screen) -> Iterator[Text]:
    """The share of each queue over time. Queues that never used anything are left out."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for sample in report.shares:
        for queue, share in sample.shares:
            shares.setdefault(queue, []).append((sample.at_s, share))
    of = {row.queue: row.share_of for row in report.queues}
    drawn = {queue: Series(points, report.virtual_s) for queue, points in sorted(shares.items()) if any(p[1] for p in points)}
    if not drawn:
        return
    yield styled("")
    for queue, series in drawn.items():
        top = max(1.0, series.peak)
        whole = "of deserved" if of.get(queue) == "deserved" else "of the cluster"
        numbers = f"mean {series.mean():.2f}   peak {series.peak:.2f} {whole}"
        yield _chart_line(queue_name(queue), series, top, numbers, screen)


def _marks(report: Report) -> list[tuple[float, str]]:
    """The marks of a chart: nodes lost, restarts, evicting gangs; nodes that came back unless there are too many marks."""
    notes = [note for note in report.timeline_notes if note.text.startswith(_MARK_PREFIXES)]
    if len(notes) > _MAX_MARKS:
        notes = [note for note in notes if not note.text.startswith("node recovered")]
    marks = [(note.at_s, note.text) for note in notes]
    plans = dict.fromkeys(
        (eviction.at_s, eviction.for_gang, EVICTION_VERBS.get(eviction.cause, "preempts")) for eviction in report.evictions
    )
    marks.extend((at_s, f"{gang} {verb}") for at_s, gang, verb in plans)
    return sorted(marks)


# -- queues ------------------------------------------------------------------------------------------------------------------------


def _queues(report: Report, resource: str, screen: Screen) -> list[Text]:
    """The tree of queues, where there are others than the default queue."""
    rows = [row for row in report.queues if row.queue != DEFAULT_QUEUE or row.used or row.waiting]
    if len(rows) < 2 or all(row.queue in (ROOT_QUEUE, DEFAULT_QUEUE) for row in rows):
        return []
    return queue_table(rows, resource, screen)


def queue_table(rows: Sequence[QueueRow], resource: str, screen: Screen, *, fair: bool = False) -> list[Text]:
    """`fair`: with the fair shares, and past use where there is any."""
    unit = short_name(resource)
    columns = ["queue", f">{unit} used", ">nominated", ">deserved", ">guarantee", ">limit", "share", "", "pending", ""]
    names = _tree_lines(rows, screen)
    cells = [_queue_cells(row, name, resource, screen) for row, name in zip(rows, names, strict=True)]
    for title, field in (("past", "past_use"), ("fair", "fair_share")) if fair else ():
        found = [dict(getattr(row, field)) for row in rows]
        if any(found):
            columns.insert(4, f">{title}")
            for line, amounts in zip(cells, found, strict=True):
                line.insert(4, show_amount(resource, amounts[resource]) if resource in amounts else "")
    lines = lay_out(columns, cells, width=screen.width)
    if screen.width is None or all(line.cell_len <= screen.width for line in lines):
        return lines
    # What is pending goes below its row, too.
    narrow = [[*line[:-2], _joined(line[-2], line[-1])] for line in cells]
    return lay_out([*columns[:-2], ""], narrow, width=screen.width)


def _joined(pending: TextPart, note: TextPart) -> TextPart:
    text, style = note if isinstance(note, tuple) else (note, PLAIN)
    waits = f"pending: {pending}" if pending else ""
    return "; ".join(filter(None, (waits, str(text)))), style


def _queue_cells(row: QueueRow, name: str, resource: str, screen: Screen) -> list[TextPart]:
    def shown(amounts: ResourceAmounts, *, zero: str = "") -> str:
        by_resource = dict(amounts)
        return show_amount(resource, by_resource[resource]) if resource in by_resource else zero

    note, style = _queue_note(row, resource)
    requested = amount_of(row.requested, resource)
    pending = f"{count(row.waiting, 'gang')}, {amount(resource, requested)}" if requested else count(row.waiting, "gang")
    return [
        name,
        shown(row.used, zero="0"),
        shown(row.nominated),
        shown(row.deserved),
        shown(row.guarantee),
        shown(row.limit),
        f"{row.share:.2f}",
        (bar(row.share, width=10, unicode=screen.unicode), BAD if row.share > 1 else GOOD),
        pending if row.waiting else "",
        (note, style),
    ]


def _queue_note(row: QueueRow, resource: str) -> tuple[str, str]:
    used, deserved = dict(row.used), dict(row.deserved)
    notes = []
    if at_limit := [short_name(name) for name, limit in row.limit if limit and used.get(name, 0) >= limit]:
        notes.append(f"at its limit ({join_names(at_limit)})")
    over = dict(row.planned).get(resource, 0) - deserved.get(resource, 0)
    if row.queue != ROOT_QUEUE and deserved.get(resource) and over > 0:
        notes.append(f"{show_amount(resource, over)} over deserved{': reclaimable' if row.reclaimable else ''}")
    return ", ".join(notes), NOTE if notes else PLAIN


def _tree_lines(rows: Sequence[QueueRow], screen: Screen) -> list[str]:
    """The names of the queues, with the branches of their tree before them."""
    path = [Tree("", hide_root=True)]
    for row in rows:
        del path[row.depth + 1 :]
        path.append(path[-1].add(styled(queue_name(row.queue))))
    lines = screen.console.render_lines(path[0], screen.console.options.update(width=UNBOUNDED), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def _gangs(report: Report, resource: str, screen: Screen, *, all_gangs: bool) -> list[Text]:
    """Waiting gangs first; finished ones only where there are no others, or with --all."""
    rows = sorted(report.gangs, key=lambda row: (STAGE_ORDER.index(row.stage), -row.priority, row.gang))
    live = [row for row in rows if row.stage not in _ENDED_STAGES]
    shown = rows if all_gangs or not live else live
    if not shown:
        return []
    queues = {row.queue for row in report.gangs} - {DEFAULT_QUEUE}
    columns = ["gang", "queue", ">members", "stage", "where", ">waited", "why"]
    evictions = _EvictionIndex(report, resource)
    groups = [[row] for row in shown] if all_gangs else _group_alike(shown, evictions)
    listed = groups if all_gangs else groups[:MAX_ROWS]
    cells = [_gang_cells(group, evictions, with_queue=bool(queues)) for group in listed]
    lines = lay_out(columns, cells, width=screen.width)
    if len(listed) < len(groups):
        left_out = sum(len(group) for group in groups[MAX_ROWS:])
        lines.append(styled((f" and {count(left_out, 'more gang')}: --all shows every one", DIM)))
    return lines


def _group_alike(rows: Sequence[GangRow], evictions: _EvictionIndex) -> list[list[GangRow]]:
    """Three and more gangs that differ in nothing but the numbers in their names share a row."""
    groups: dict[object, list[GangRow]] = {}
    for row in rows:
        why, name = reason_pattern(evictions.why(row), row.gang), reason_pattern(row.gang, "")
        groups.setdefault((name, row.queue, row.members, row.succeeded, row.min, row.stage, row.waited_s, why), []).append(row)
    return [part for group in groups.values() for part in ([group] if len(group) >= _MIN_GROUP_SIZE else [[row] for row in group])]


def _gang_cells(rows: Sequence[GangRow], evictions: _EvictionIndex, *, with_queue: bool) -> list[TextPart]:
    row = rows[0]
    placed = row.members if row.members else row.succeeded
    times = f"{len(rows)} x " if len(rows) > 1 else ""
    return [
        (compact_names(each.gang for each in rows), BOLD if row.stage != Stage.FINISHED.value else PLAIN),
        queue_name(row.queue) if with_queue else "",
        f"{times}{placed}/{row.min}",
        (row.stage, STAGE_STYLES[row.stage]),
        where(sorted({node for each in rows for node in each.nodes})),
        duration(row.waited_s),
        evictions.why(row),
    ]


def where(nodes: Sequence[str]) -> str:
    """The names of the nodes in range syntax, or their number where that is too long."""
    names = compact_names(nodes)
    if len(names) <= _MAX_WHERE_WIDTH:
        return names or "-"
    racks = compact_names(sorted({node.rpartition("-")[0] for node in nodes} - {""}))
    number = f"{len(nodes)} nodes"
    return f"{number}, {racks}" if racks and len(racks) + len(number) + 2 <= _MAX_WHERE_WIDTH else number


class _EvictionIndex:
    """Evictions by preemptor and by victim, for the last column."""

    def __init__(self, report: Report, resource: str) -> None:
        self._resource = resource
        self._plans: dict[str, dict[float, list[EvictionRow]]] = {}
        """The evictions for each gang, by their time."""
        self._last_eviction: dict[str, EvictionRow] = {}
        for eviction in report.evictions:
            self._plans.setdefault(eviction.for_gang, {}).setdefault(eviction.at_s, []).append(eviction)
            self._last_eviction[eviction.gang] = eviction

    def why(self, row: GangRow) -> str:
        """Why a gang waits; for a running one, what it evicted and lost, and its surplus members."""
        texts: list[str] = []
        if row.stage in _ENDED_STAGES or not row.why:
            texts.extend(self._evictions_text(row.gang))
        if row.gang in self._last_eviction:
            last = self._last_eviction[row.gang]
            texts.append(f"lost {count(row.evicted, 'member')} to eviction, last at {clock(last.at_s)} for {last.for_gang}")
        if row.why:
            texts.append(row.why)
        elif row.stage == Stage.WAITING_FOR_PODS.value:
            texts.append(f"{row.size} of at least {count(row.min, 'member exists', 'members exist')}")
        elif row.stage == Stage.RUNNING.value and row.members > row.min:
            texts.append(f"{row.members - row.min} above its minimum, evicted first when capacity is needed")
        return "; ".join(texts)

    def _evictions_text(self, gang: str) -> Iterator[str]:
        for at_s, plan in self._plans.get(gang, {}).items():
            freed = sum(amount_of(eviction.request, self._resource) for eviction in plan)
            lost = _lost_work(plan, self._resource)
            cost = f", {unit_hours(self._resource, lost)} of work" if lost else ""
            victims = count_by_gang(eviction.gang for eviction in plan)
            yield f"evicted {victims} ({amount(self._resource, freed)}{cost}) at {clock(at_s)}"


def _lost_work(evictions: Iterable[EvictionRow], resource: str) -> float:
    """In unit-seconds of the resource."""
    return sum(amount_of(eviction.request, resource) * eviction.lost_work_s for eviction in evictions)


# -- totals ------------------------------------------------------------------------------------------------------------------------


def totals(report: Report, resource: str, *, width: int | None) -> list[Text]:
    """On one line, or on three where that is too long."""
    stages = Counter(row.stage for row in report.gangs)
    by_stage = [f"{stages[stage]} {stage}" for stage in reversed(STAGE_ORDER) if stage in stages]
    gangs = f" {count(len(report.gangs), 'gang')}: {', '.join(by_stage)}." if by_stage else " No gangs."
    violations = f"{count(len(report.violations), 'invariant')} violated." if report.violations else "No invariant violated."
    parts = [(gangs, BOLD), (f" {_evicted(report, resource)}", PLAIN), (f" {violations}", BAD if report.violations else GOOD)]
    if width is not None and sum(len(text) + 1 for text, _ in parts) > width:
        return [styled(part) for part in parts]
    return [styled(*((f"{text} ", style) for text, style in parts))]


def _evicted(report: Report, resource: str) -> str:
    if not report.evictions:
        return "No evictions."
    plans = len({(eviction.at_s, eviction.for_gang) for eviction in report.evictions})
    gangs = len({eviction.gang for eviction in report.evictions})
    lost = unit_hours(resource, _lost_work(report.evictions, resource))
    pods = count(len(report.evictions), "pod")
    return f"{count(plans, 'eviction plan')} evicted {pods} of {count(gangs, 'gang')}, {lost} lost."
