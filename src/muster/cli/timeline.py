"""The timeline of a run, one sentence per event: gangs that start, evictions and their beneficiaries, gangs that wait and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from muster.cli.screen import BAD, DIM, GOOD, NOTE, PLAIN, styled
from muster.cli.text_format import amount, clock, compact_name_list, count, count_by_gang, join_names, reason_pattern
from muster.cli.text_table import lay_out
from muster.engine.explain import PREEMPTING
from muster.model.effects import Bind, Condition, Effect, Evict, Nominate, PodGroupStatus, Release, Reserve
from muster.scenario.run_report import Report

MAX_LINES = 40
_MAX_NAMES = 4
_END_VERBS = {"Finished": "finished", "Failed": "failed"}
EVICTION_VERBS = {"gang-reclaim": "reclaims", "consolidate": "consolidates"}
"""Verbs of evicting actions; all others preempt."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One sentence. Gangs that start and end are `is_routine`: they are left out first."""

    at_s: float
    cycle: int
    text: str
    is_routine: bool = False
    style: str = PLAIN


def timeline(report: Report, *, resource: str) -> list[TimelineEntry]:
    """All entries in order. Amounts are given in one resource, the cluster's main one."""
    return sorted(_TimelineBuilder(report, resource).entries(), key=lambda entry: (entry.at_s, entry.cycle))


def timeline_lines(entries: Sequence[TimelineEntry], *, width: int | None, complete: bool) -> list[Text]:
    """As many entries as fit one screen, routine ones left out first; a note counts what was left out."""
    shown, note = list(entries), ""
    if not complete and len(shown) > MAX_LINES:
        shown = [entry for entry in entries if not entry.is_routine]
        note = f"{count(len(entries) - len(shown), 'line')} about gangs that only started or ended left out: --timeline shows all"
        if len(shown) > MAX_LINES:
            shown = shown[:MAX_LINES]
            note = f"{count(len(entries) - len(shown), 'more line')}: --timeline shows all"
    rows = [
        ((clock(entry.at_s) if is_first else "", DIM), (entry.text, entry.style))
        for _, same_time in groupby(shown, key=lambda entry: entry.at_s)
        for is_first, entry in zip((True, *([False] * len(shown))), same_time, strict=False)
    ]
    lines = lay_out(["", ""], rows, width=width)
    return [*lines, styled((f" ({note})", DIM))] if note else lines


class _TimelineBuilder:
    def __init__(self, report: Report, resource: str) -> None:
        self._report, self._resource = report, resource
        self._started: dict[str, int] = {}
        self._min_members = {row.gang: row.min for row in report.gangs}
        self._reported_codes: dict[str, set[str]] = {}
        """The codes of the verdicts that were reported for each gang since it last had all its members placed."""
        self._ended: dict[str, str] = {}
        evictions = (*report.evictions, *report.undone_evictions)
        self._freed = {(eviction.cycle, eviction.pod): eviction.request for eviction in evictions}

    def entries(self) -> Iterator[TimelineEntry]:
        for note in self._report.timeline_notes:
            yield TimelineEntry(note.at_s, 0, note.text, style=NOTE)
        for (cycle, at_s), decided in groupby(self._report.decided_effects, key=lambda each: (each.cycle, each.at_s)):
            yield from self._cycle(cycle, at_s, [each.effect for each in decided])

    def _cycle(self, cycle: int, at_s: float, effects: list[Effect]) -> Iterator[TimelineEntry]:
        yield from (TimelineEntry(at_s, cycle, text, True, DIM) for text in self._ends(effects))
        yield from (TimelineEntry(at_s, cycle, text, True, GOOD) for text in self._starts(effects))
        yield from (TimelineEntry(at_s, cycle, text, False, BAD) for text in self._evictions(cycle, effects))
        yield from (TimelineEntry(at_s, cycle, text) for text in self._reservations(effects))
        yield from (TimelineEntry(at_s, cycle, text) for text in self._verdicts(effects))

    def _ends(self, effects: list[Effect]) -> Iterator[str]:
        ended: dict[str, list[str]] = {}
        for effect in effects:
            if isinstance(effect, PodGroupStatus):
                before = self._ended.get(effect.group)
                self._ended[effect.group] = effect.phase
                if effect.phase in _END_VERBS and before != effect.phase:
                    name = effect.group.partition(":")[2]
                    ended.setdefault(_END_VERBS[effect.phase], []).append(name)
        for verb, names in ended.items():
            yield f"{verb}: {_name_list(names)}"

    def _evictions(self, cycle: int, effects: list[Effect]) -> Iterator[str]:
        """The victims of an eviction plan and its nominations, in one sentence."""
        nominated = _by_gang(effects, Nominate)
        plans: dict[tuple[str, str], list[Evict]] = {}
        for effect in effects:
            if isinstance(effect, Evict):
                plans.setdefault((effect.for_gang, effect.cause), []).append(effect)
        for (preemptor, cause), victims in plans.items():
            freed = sum(dict(self._freed.get((cycle, victim.pod), ())).get(self._resource, 0) for victim in victims)
            capacity = f" ({amount(self._resource, freed)})" if freed else ""
            evicted = count_by_gang(victim.gang for victim in victims)
            target = ""
            if preemptor in nominated:
                target = f", for {count(len(nominated[preemptor]), 'member')} on {_nodes(nominated[preemptor])}"
            does = "moves" if cause == "consolidate" else "evicts"
            yield f"{preemptor} {EVICTION_VERBS.get(cause, 'preempts')}: {does} {evicted}{capacity}{target}"

    def _reservations(self, effects: list[Effect]) -> Iterator[str]:
        preemptors = {effect.for_gang for effect in effects if isinstance(effect, Evict)}
        for kind, verb in ((Reserve, "reserves"), (Nominate, "is nominated to")):
            for gang, group in _by_gang(effects, kind).items():
                if kind is Nominate and gang in preemptors:
                    continue
                yield f"{gang} {verb} {_nodes(group)} ({count(len(group), 'member')})"
        for gang, group in _by_gang(effects, Release).items():
            for why in dict.fromkeys(release.why for release in group):
                yield f"{gang} releases {_nodes([release for release in group if release.why == why])}: {why}"

    def _starts(self, effects: list[Effect]) -> Iterator[str]:
        """A gang starts with its minimum and grows with fewer. Gangs that start for the first time share a sentence."""
        bound = _by_gang(effects, Bind)
        first = {gang: len(binds) for gang, binds in bound.items() if gang not in self._started}
        for gang, binds in bound.items():
            where = f"{count(len(binds), 'member')} on {_nodes(binds)}"
            if gang not in first:
                again = len(binds) >= self._min_members.get(gang, 1)
                yield f"{gang} starts again: {where}" if again else f"{gang} adds {where}"
            elif len(first) == 1:
                yield f"{gang} starts: {where}"
        if len(first) > 1:
            yield f"{len(first)} gangs start, {count(sum(first.values()), 'member')}: {_name_list(first)}"
        self._started.update(first)

    def _verdicts(self, effects: list[Effect]) -> Iterator[str]:
        """Why gangs wait: each kind of reason is reported once, not whenever a number in it changes."""
        waiting: dict[tuple[str, str], list[str]] = {}
        reasons: dict[tuple[str, str], str] = {}
        for effect in effects:
            if not isinstance(effect, Condition):
                continue
            name = effect.key if effect.subject == "gang" else f"{effect.subject} {effect.key.partition('/')[2] or effect.key}"
            reported = self._reported_codes.setdefault(name, set())
            if effect.ok:
                reported.clear()
            elif effect.code not in reported and effect.code not in _REPORTED_ELSEWHERE:
                reported.add(effect.code)
                pattern = (effect.code, reason_pattern(effect.why, name))
                waiting.setdefault(pattern, []).append(name)
                reasons.setdefault(pattern, effect.why)
        for pattern, names in waiting.items():
            yield f"{_name_list(names)} {'waits' if len(names) == 1 else 'wait'}: {reasons[pattern]}"


# Nominations and releases have sentences of their own.
_REPORTED_ELSEWHERE = (PREEMPTING, "Preempted")

_NodeEffect = Bind | Reserve | Nominate | Release


def _by_gang(effects: list[Effect], kind: type[_NodeEffect]) -> dict[str, list[_NodeEffect]]:
    found: dict[str, list[_NodeEffect]] = {}
    for effect in effects:
        if isinstance(effect, kind):
            found.setdefault(effect.gang or effect.pod, []).append(effect)
    return found


def _nodes(effects: Iterable[_NodeEffect]) -> str:
    return _name_list(effect.node for effect in effects)


def _name_list(names: Iterable[str]) -> str:
    return join_names(compact_name_list(names), limit=_MAX_NAMES)
