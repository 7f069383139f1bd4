"""What happened, cycle by cycle, in short sentences: who started, who was evicted for whom, who waits and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from muster.cli.screen import BAD, DIM, GOOD, NOTE, PLAIN, TextLine
from muster.cli.text_format import amount, clock, compact_name_list, count, join_names, reason_pattern
from muster.cli.text_table import Column, Subgroup, lay_out
from muster.model.effects import Bind, Condition, Effect, Evict, Nominate, PodGroupStatus, Release, Reserve
from muster.scenario.run_report import Report

MAX_LINES = 40
_MAX_NAMES = 4
_END_VERBS = {"Finished": "finished", "Failed": "failed"}
EVICTION_VERBS = {"gang-reclaim": "reclaims"}
"""What an evicting action does, in a word; all others preempt."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One sentence. Comings and goings are `is_routine`: they are the first to be left out."""

    at_s: float
    cycle: int
    text: str
    is_routine: bool = False
    style: str = PLAIN


def timeline(report: Report, *, resource: str) -> list[TimelineEntry]:
    """All that happened, in order. Amounts are told in one resource, the one that the cluster is about."""
    teller = _TimelineBuilder(report, resource)
    return sorted(teller.events(), key=lambda event: (event.at_s, event.cycle))


def timeline_lines(events: Sequence[TimelineEntry], *, width: int | None, whole: bool) -> list[TextLine]:
    """As many of the events as fit a screen, the unusual ones first; a note says what was left out."""
    shown, note = list(events), ""
    if not whole and len(shown) > MAX_LINES:
        shown = [event for event in events if not event.is_routine]
        note = f"{count(len(events) - len(shown), 'line')} about gangs that only started or ended left out: --story shows all"
        if len(shown) > MAX_LINES:
            shown = shown[:MAX_LINES]
            note = f"{count(len(events) - len(shown), 'more line')}: --story shows all"
    rows = [
        (Subgroup(clock(event.at_s) if fresh else "", DIM), Subgroup(event.text, event.style))
        for _, moment in groupby(shown, key=lambda event: event.at_s)
        for fresh, event in zip((True, *([False] * len(shown))), moment, strict=False)
    ]
    lines = lay_out([Column(""), Column("")], rows, width=width)
    return [*lines, TextLine.of((f" ({note})", DIM))] if note else lines


class _TimelineBuilder:
    def __init__(self, report: Report, resource: str) -> None:
        self._report, self._resource = report, resource
        self._started: dict[str, int] = {}
        self._min_members = {row.gang: row.min for row in report.gangs}
        self._reported_codes: dict[str, set[str]] = {}
        """The codes of the verdicts that were told of each gang since it last had all it wants."""
        self._ended: dict[str, str] = {}
        self._freed = {(eviction.cycle, eviction.pod): eviction.request for eviction in report.evictions}

    def events(self) -> Iterator[TimelineEntry]:
        for mark in self._report.timeline_notes:
            yield TimelineEntry(mark.at_s, 0, mark.text, style=NOTE)
        for (cycle, at_s), decided_effects in groupby(self._report.decided_effects, key=lambda deed: (deed.cycle, deed.at_s)):
            yield from self._cycle(cycle, at_s, [deed.effect for deed in decided_effects])

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
                    title = effect.group.partition(":")[2]
                    ended.setdefault(_END_VERBS[effect.phase], []).append(title)
        for word, titles in ended.items():
            yield f"{word}: {_name_list(titles)}"

    def _evictions(self, cycle: int, effects: list[Effect]) -> Iterator[str]:
        """What a plan takes and what it promises is one sentence."""
        promised = _by_gang(effects, Nominate)
        plans: dict[tuple[str, str], list[Evict]] = {}
        for effect in effects:
            if isinstance(effect, Evict):
                plans.setdefault((effect.for_gang, effect.cause), []).append(effect)
        for (winner, cause), victims in plans.items():
            freed = sum(dict(self._freed.get((cycle, victim.pod), ())).get(self._resource, 0) for victim in victims)
            room = f" ({amount(self._resource, freed)})" if freed else ""
            losers: dict[str, int] = {}
            for victim in victims:
                losers[victim.gang] = losers.get(victim.gang, 0) + 1
            whom = join_names([f"{number} of {gang}" for gang, number in losers.items()])
            seats = f", for {count(len(promised[winner]), 'member')} on {_nodes(promised[winner])}" if winner in promised else ""
            yield f"{winner} {EVICTION_VERBS.get(cause, 'preempts')}: {whom} {'goes' if len(victims) == 1 else 'go'}{room}{seats}"

    def _reservations(self, effects: list[Effect]) -> Iterator[str]:
        told = {effect.for_gang for effect in effects if isinstance(effect, Evict)}
        for kind, words in ((Reserve, "holds"), (Nominate, "is promised")):
            for gang, decided_effects in _by_gang(effects, kind).items():
                if kind is Nominate and gang in told:
                    continue
                yield f"{gang} {words} {_nodes(decided_effects)} ({count(len(decided_effects), 'member')})"
        for gang, decided_effects in _by_gang(effects, Release).items():
            yield f"{gang} gives up {_nodes(decided_effects)}: {decided_effects[0].why}"

    def _starts(self, effects: list[Effect]) -> Iterator[str]:
        """With its minimum a gang starts, with fewer it grows. Those that start for the first time are told together."""
        bound = _by_gang(effects, Bind)
        first = {gang: len(decided_effects) for gang, decided_effects in bound.items() if gang not in self._started}
        for gang, decided_effects in bound.items():
            where = f"{count(len(decided_effects), 'member')} on {_nodes(decided_effects)}"
            if gang not in first:
                again = len(decided_effects) >= self._min_members.get(gang, 1)
                yield f"{gang} starts again: {where}" if again else f"{gang} gets {where}"
            elif len(first) == 1:
                yield f"{gang} starts: {where}"
        if len(first) > 1:
            yield f"{len(first)} gangs start, {count(sum(first.values()), 'member')}: {_name_list(first)}"
        self._started.update(first)

    def _verdicts(self, effects: list[Effect]) -> Iterator[str]:
        """Why somebody waits: each kind of reason is told once, not whenever a number in it changes."""
        same: dict[tuple[str, str], list[str]] = {}
        whys: dict[tuple[str, str], str] = {}
        for effect in effects:
            if not isinstance(effect, Condition):
                continue
            who = effect.key if effect.subject == "gang" else f"{effect.subject} {effect.key.partition('/')[2] or effect.key}"
            told = self._reported_codes.setdefault(who, set())
            if effect.ok:
                told.clear()
            elif effect.code not in told and effect.code not in _REPORTED_ELSEWHERE:
                told.add(effect.code)
                reason = (effect.code, reason_pattern(effect.why, who))
                same.setdefault(reason, []).append(who)
                whys.setdefault(reason, effect.why)
        for reason, names in same.items():
            yield f"{_name_list(names)} {'waits' if len(names) == 1 else 'wait'}: {whys[reason]}"


# That a gang was promised room, or gave way, is told by what it was promised and what it gave up.
_REPORTED_ELSEWHERE = ("Clearing", "GaveWay")

_NodeEffect = Bind | Reserve | Nominate | Release


def _by_gang(effects: list[Effect], kind: type[_NodeEffect]) -> dict[str, list[_NodeEffect]]:
    found: dict[str, list[_NodeEffect]] = {}
    for effect in effects:
        if isinstance(effect, kind):
            found.setdefault(effect.gang or effect.pod, []).append(effect)
    return found


def _nodes(decided_effects: Sequence[_NodeEffect]) -> str:
    return _shortened(compact_name_list(deed.node for deed in decided_effects))


def _name_list(titles: Sequence[str] | dict[str, int]) -> str:
    return _shortened(compact_name_list(titles))


def _shortened(names: list[str]) -> str:
    return join_names(names, most=_MAX_NAMES)
