"""The decisions of a cycle as log lines: one per gang, effect and reason, and one for a waiting gang whose verdict is new."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import structlog

from muster.model.effects import Bind, CancelEviction, Effect, Evict, Nominate, Outcome, PodEffect, Release, Reserve, Verdict

log = structlog.get_logger(__name__)

REPEAT_AFTER_S: Final = 60.0
"""A refusal with the same code and other numbers is logged no more often than this."""
_MAX_NAMES = 8
_MAX_REMEMBERED = 20_000


def effect_name(kind: type[Effect]) -> str:
    """The name of an effect in log lines and metrics, in kebab-case: `bind`, `cancel-eviction`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


class CycleLogEntry(NamedTuple):
    event: str
    fields: dict[str, Any]


class CycleLog:
    """Remembers the last logged verdict of each waiting gang, up to a limit."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[str, str, float]] = {}

    def write(self, outcome: Outcome) -> list[CycleLogEntry]:
        """Returns what was written."""
        entries = self.entries(outcome)
        if entries:
            # Bound once for all lines: a cycle may have thousands.
            write_line = log.bind(cycle=outcome.cycle).info
            for event, fields in entries:
                write_line(event, **fields)
        return entries

    def entries(self, outcome: Outcome) -> list[CycleLogEntry]:
        for effect in outcome.effects:
            if isinstance(effect, Bind):
                self._reported.pop(effect.gang, None)
        return [*_effect_entries(outcome.effects), *self._refusal_entries(outcome)]

    def _refusal_entries(self, outcome: Outcome) -> Iterator[CycleLogEntry]:
        for gang, verdict in outcome.verdicts:
            if not verdict.ok and self._is_new_refusal(gang, verdict, now=outcome.now):
                self._reported.pop(gang, None)
                self._reported[gang] = (verdict.code, verdict.why, outcome.now)
                yield CycleLogEntry("waiting", {"gang": gang, "code": verdict.code, "why": verdict.why})
        for oldest in list(self._reported)[:-_MAX_REMEMBERED]:
            del self._reported[oldest]

    def _is_new_refusal(self, gang: str, verdict: Verdict, *, now: float) -> bool:
        code, why, at = self._reported.get(gang, ("", "", 0.0))
        return verdict.code != code or (verdict.why != why and now - at >= REPEAT_AFTER_S)


def _effect_entries(effects: Iterable[Effect]) -> Iterator[CycleLogEntry]:
    """Effects of one kind for one gang and one reason share a line."""
    groups: dict[tuple[str, ...], list[PodEffect]] = {}
    for effect in effects:
        match effect:
            case Evict():
                key: tuple[str, ...] = ("evict", effect.gang, effect.for_gang, effect.cause, effect.method)
            case Bind() | Reserve() | Nominate() | Release() | CancelEviction():
                key = (effect_name(type(effect)), effect.gang, effect.cause)
            case _:
                continue
        groups.setdefault(key, []).append(effect)
    for (event, *_), group in groups.items():
        yield CycleLogEntry(event, _fields(group))


def _fields(group: list[PodEffect]) -> dict[str, Any]:
    first = group[0]
    fields: dict[str, Any] = {
        "gang": first.gang,
        "pods": len(group),
        "nodes": _name_list(effect.node for effect in group),
        "cause": first.cause,
    }
    if isinstance(first, Evict):
        fields |= {"for_gang": first.for_gang, "method": first.method, "victims": _name_list(effect.pod for effect in group)}
    return {**fields, "why": first.why}


def _name_list(names: Iterable[str]) -> list[str]:
    """Distinct names, and the number of those beyond a limit."""
    distinct = list(dict.fromkeys(names))
    return distinct if len(distinct) <= _MAX_NAMES else [*distinct[:_MAX_NAMES], f"and {len(distinct) - _MAX_NAMES} more"]
