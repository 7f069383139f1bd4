"""The summary of a run on one screen: utilisation over time, the queues and their shares, the gangs and their stages, totals."""

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
from muster.cli.text_table import Column, TableCell, lay_out
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
_STAGE_STYLES = {
    Stage.SATISFIED.value: GOOD,
    Stage.WAITING.value: NOTE,
    Stage.WAITING_FOR_PODS.value: NOTE,
    Stage.WAITING_ON_PERMIT.value: NOTE,
    Stage.PREEMPTING.value: NOTE,
    Stage.TIMED_OUT.value: BAD,
}
_ENDED_STAGES = (Stage.FINISHED.value, _DELETED)
_MARK_PREFIXES = ("node failed", "node removed", "restart", "node recovered")
_MAX_MARKS = 6
_MIN_GROUP_SIZE = 3
# The stages that need attention first.
_STAGE_ORDER = (
    Stage.TIMED_OUT.value,
    Stage.WAITING.value,
    Stage.PREEMPTING.value,
    Stage.WAITING_ON_PERMIT.value,
    Stage.WAITING_FOR_PODS.value,
    Stage.SATISFIED.value,
    *_ENDED_STAGES,
)


def main_resource(report: Report) -> str:
    """The resource that is charted: GPUs if any were in use, else the one with the highest peak utilisation."""
    peaks: dict[str, float] = {}
    for sample in report.samples:
        for usage in sample.usage:
            if usage.resource != PODS:
                peaks[usage.resource] = max(peaks.get(usage.resource, 0.0), usage.used / usage.total)
    gpus = [name for name in sorted(peaks) if short_name(name).endswith("gpu") and peaks[name] > 0]
    return gpus[0] if gpus else max(sorted(peaks), key=lambda name: peaks[name], default=CPU)


def summary(report: Report, screen: Screen, *, all_gangs: bool = False) -> Iterator[TextLine]:
    """Charts over time, the tree of queues, the gangs, and the totals."""
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
    """One line for the cluster and one for each queue, on the same axis. None where no time passes."""
    points = [(sample.at_s, sample.share(resource)) for sample in report.samples]
    if report.virtual_s <= 0 or len(points) < 2:
        return []
    width = screen.chart_width
    utilisation = Series(tuple(points), report.virtual_s)
    used, total = max((_in_use(sample, resource) for sample in report.samples), key=lambda amounts: amounts[0])
    numbers = f"peak {show_amount(resource, used)}/{show_amount(resource, total)}   mean {100 * utilisation.mean():.0f} %"
    lines = [_chart_line(f"{unit_name(resource)} in use", utilisation, 1.0, numbers, screen)]
    marks = [(column_of(at_s, start=points[0][0], until=report.virtual_s, width=width), text) for at_s, text in _marks(report)]
    lines.extend(
        TextLine.of((f"{'':{_LABEL_WIDTH}}{text}", NOTE)) for text in mark_lines(marks, width=width, unicode=screen.unicode)
    )
    lines.extend(_share_lines(report, screen))
    begin, end = clock(points[0][0]), clock(report.virtual_s)
    return [*lines, TextLine.of((f"{'':{_LABEL_WIDTH}}{axis(begin, end, width=width)}", DIM))]


def _in_use(sample: UsageSample, resource: str) -> tuple[int, int]:
    """The amount of a resource in use, and the total."""
    return next(((usage.used, usage.total) for usage in sample.usage if usage.resource == resource), (0, 0))


def _chart_line(label: str, series: Series, top: float, numbers: str, screen: Screen) -> TextLine:
    bars = sparkline(series.columns(screen.chart_width), top=top, unicode=screen.unicode)
    return TextLine.of((f" {label:{_LABEL_WIDTH - 1}.{_LABEL_WIDTH - 2}}", PLAIN), (bars, GOOD), f"  {numbers}")


def _share_lines(report: Report, screen: Screen) -> Iterator[TextLine]:
    """The share of each queue over time. Queues that never used anything are left out."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for sample in report.shares:
        for queue, share in sample.shares:
            shares.setdefault(queue, []).append((sample.at_s, share))
    of = {row.queue: row.share_of for row in report.queues}
    drawn = {
        queue: Series(tuple(points), report.virtual_s) for queue, points in sorted(shares.items()) if any(p[1] for p in points)
    }
    if not drawn:
        return
    yield TextLine.of("")
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


def _queues(report: Report, resource: str, screen: Screen) -> list[TextLine]:
    """The tree of queues, where there are others than the default queue."""
    rows = [row for row in report.queues if row.queue != DEFAULT_QUEUE or row.used or row.waiting]
    if len(rows) < 2 or all(row.queue in (ROOT_QUEUE, DEFAULT_QUEUE) for row in rows):
        return []
    unit = short_name(resource)
    columns = [
        Column("queue"),
        Column(f"{unit} used", align_right=True),
        Column("nominated", align_right=True),
        Column("deserved", align_right=True),
        Column("guarantee", align_right=True),
        Column("limit", align_right=True),
        Column("share"),
        Column(""),
        Column("pending"),
        Column(""),
    ]
    branches = _tree_prefixes(rows, unicode=screen.unicode)
    cells = [_queue_cells(row, branch, resource, screen) for row, branch in zip(rows, branches, strict=True)]
    return lay_out(columns, cells, width=screen.width)


def _queue_cells(row: QueueRow, branch: str, resource: str, screen: Screen) -> list[TableCell | str]:
    def shown(amounts: ResourceAmounts, *, zero: str = "") -> str:
        by_resource = dict(amounts)
        return show_amount(resource, by_resource[resource]) if resource in by_resource else zero

    note, style = _queue_note(row, resource)
    requested = amount_of(row.requested, resource)
    pending = f"{count(row.waiting, 'gang')}, {amount(resource, requested)}" if requested else count(row.waiting, "gang")
    return [
        f"{branch}{queue_name(row.queue)}",
        shown(row.used, zero="0"),
        shown(row.nominated),
        shown(row.deserved),
        shown(row.guarantee),
        shown(row.limit),
        f"{row.share:.2f}",
        TableCell(bar(row.share, width=10, unicode=screen.unicode), BAD if row.share > 1 else GOOD),
        pending if row.waiting else "",
        TableCell(note, style),
    ]


def _queue_note(row: QueueRow, resource: str) -> tuple[str, str]:
    used, deserved = dict(row.used), dict(row.deserved)
    at_limit = [short_name(name) for name, limit in row.limit if limit and used.get(name, 0) >= limit]
    if at_limit:
        return f"at its limit ({join_names(at_limit)})", NOTE
    over = used.get(resource, 0) - deserved.get(resource, 0)
    if row.queue != ROOT_QUEUE and deserved.get(resource) and over > 0:
        return f"{show_amount(resource, over)} over deserved: reclaimable", NOTE
    return "", PLAIN


def _tree_prefixes(rows: Sequence[QueueRow], *, unicode: bool) -> list[str]:
    """The branches of the tree before each name."""
    tee, end, pipe = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    prefixes: list[str] = []
    for i, row in enumerate(rows):
        if not row.depth:
            prefixes.append("")
            continue
        open_above = [_has_next_sibling(rows, i, depth) for depth in range(1, row.depth)]
        prefixes.append(
            "".join(pipe if more else "   " for more in open_above) + (tee if _has_next_sibling(rows, i, row.depth) else end)
        )
    return prefixes


def _has_next_sibling(rows: Sequence[QueueRow], i: int, depth: int) -> bool:
    """Whether another queue of this depth follows below the same parent."""
    for later in rows[i + 1 :]:
        if later.depth < depth:
            return False
        if later.depth == depth:
            return True
    return False


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def _gangs(report: Report, resource: str, screen: Screen, *, all_gangs: bool) -> list[TextLine]:
    """Waiting gangs first; finished ones only where there are no others, or with --all."""
    rows = sorted(report.gangs, key=lambda row: (_STAGE_ORDER.index(row.stage), -row.priority, row.gang))
    live = [row for row in rows if row.stage not in _ENDED_STAGES]
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
    evictions = _EvictionIndex(report, resource)
    groups = [[row] for row in shown] if all_gangs else _group_alike(shown, evictions)
    listed = groups if all_gangs else groups[:MAX_ROWS]
    cells = [_gang_cells(group, evictions, with_queue=bool(queues)) for group in listed]
    lines = lay_out(columns, cells, width=screen.width)
    if len(listed) < len(groups):
        left_out = sum(len(group) for group in groups[MAX_ROWS:])
        lines.append(TextLine.of((f" and {count(left_out, 'more gang')}: --all shows every one", DIM)))
    return lines


def _group_alike(rows: Sequence[GangRow], evictions: _EvictionIndex) -> list[list[GangRow]]:
    """Three and more gangs that differ in nothing but the numbers in their names share a row."""
    groups: dict[object, list[GangRow]] = {}
    for row in rows:
        why, name = reason_pattern(evictions.why(row), row.gang), reason_pattern(row.gang, "")
        groups.setdefault((name, row.queue, row.members, row.succeeded, row.min, row.stage, row.waited_s, why), []).append(row)
    return [part for group in groups.values() for part in ([group] if len(group) >= _MIN_GROUP_SIZE else [[row] for row in group])]


def _gang_cells(rows: Sequence[GangRow], evictions: _EvictionIndex, *, with_queue: bool) -> list[TableCell | str]:
    row = rows[0]
    placed = row.members if row.members else row.succeeded
    times = f"{len(rows)} x " if len(rows) > 1 else ""
    return [
        TableCell(compact_names(each.gang for each in rows), BOLD if row.stage != Stage.FINISHED.value else PLAIN),
        queue_name(row.queue) if with_queue else "",
        f"{times}{placed}/{row.min}",
        TableCell(row.stage, _STAGE_STYLES.get(row.stage, PLAIN)),
        _where(sorted({node for each in rows for node in each.nodes})),
        duration(row.waited_s),
        evictions.why(row),
    ]


def _where(nodes: Sequence[str]) -> str:
    """The names of the nodes in range syntax, or their number where that is too long."""
    names = compact_names(nodes)
    if len(names) <= _MAX_WHERE_WIDTH:
        return names or "-"
    racks = compact_names(sorted({node.rpartition("-")[0] for node in nodes} - {""}))
    number = f"{len(nodes)} nodes"
    return f"{number}, {racks}" if racks and len(racks) + len(number) + 2 <= _MAX_WHERE_WIDTH else number


@dataclass(frozen=True, slots=True)
class _EvictionSummary:
    """The pods of one gang that were evicted for another at one time."""

    gang: str
    at_s: float
    pods: int
    freed: int
    lost: float
    """Lost work, in unit-seconds of the resource."""


class _EvictionIndex:
    """Evictions by preemptor and by victim, for the last column."""

    def __init__(self, report: Report, resource: str) -> None:
        self._resource = resource
        self._by_preemptor: dict[str, list[_EvictionSummary]] = {}
        self._last_eviction: dict[str, EvictionRow] = {}
        groups: dict[tuple[float, str, str], list[EvictionRow]] = {}
        for eviction in report.evictions:
            groups.setdefault((eviction.at_s, eviction.for_gang, eviction.gang), []).append(eviction)
            self._last_eviction[eviction.gang] = eviction
        for (at_s, preemptor, victim), evictions in groups.items():
            freed = sum(amount_of(each.request, resource) for each in evictions)
            lost = sum(amount_of(each.request, resource) * each.lost_work_s for each in evictions)
            self._by_preemptor.setdefault(preemptor, []).append(_EvictionSummary(victim, at_s, len(evictions), freed, lost))

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
        elif row.stage == Stage.SATISFIED.value and row.members > row.min:
            texts.append(f"{row.members - row.min} above its minimum, evicted first when capacity is needed")
        return "; ".join(texts)

    def _evictions_text(self, gang: str) -> Iterator[str]:
        plans: dict[float, list[_EvictionSummary]] = {}
        for eviction in self._by_preemptor.get(gang, ()):
            plans.setdefault(eviction.at_s, []).append(eviction)
        for at_s, plan in plans.items():
            lost, freed = sum(eviction.lost for eviction in plan), sum(eviction.freed for eviction in plan)
            cost = f", {unit_hours(self._resource, lost)} of work" if lost else ""
            victims = join_names([f"{eviction.pods} of {eviction.gang}" for eviction in plan])
            yield f"evicted {victims} ({amount(self._resource, freed)}{cost}) at {clock(at_s)}"


# -- totals ------------------------------------------------------------------------------------------------------------------------


def totals(report: Report, resource: str, *, width: int | None) -> list[TextLine]:
    """On one line, or on three where that is too long."""
    stages: dict[str, int] = {}
    for row in report.gangs:
        stages[row.stage] = stages.get(row.stage, 0) + 1
    by_stage = [f"{stages[stage]} {stage}" for stage in reversed(_STAGE_ORDER) if stage in stages]
    gangs = f" {count(len(report.gangs), 'gang')}: {', '.join(by_stage)}." if by_stage else " No gangs."
    violations = f"{count(len(report.violations), 'invariant')} violated." if report.violations else "No invariant violated."
    parts = [(gangs, BOLD), (f" {_evicted(report, resource)}", PLAIN), (f" {violations}", BAD if report.violations else GOOD)]
    if width is not None and sum(len(text) + 1 for text, _ in parts) > width:
        return [TextLine.of(part) for part in parts]
    return [TextLine(tuple((f"{text} ", style) for text, style in parts))]


def _evicted(report: Report, resource: str) -> str:
    if not report.evictions:
        return "No evictions."
    plans = len({(eviction.at_s, eviction.for_gang) for eviction in report.evictions})
    gangs = len({eviction.gang for eviction in report.evictions})
    lost = sum(amount_of(each.request, resource) * each.lost_work_s for each in report.evictions)
    pods = count(len(report.evictions), "pod")
    return f"{count(plans, 'eviction plan')} evicted {pods} of {count(gangs, 'gang')}, {unit_hours(resource, lost)} lost."
