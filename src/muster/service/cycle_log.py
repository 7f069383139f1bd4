"""What a cycle decided, as lines of the log: one for each gang that got something, one for each that lost something, and one for a
gang that waits when what it is told is news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import structlog

from muster.model.effects import Bind, CancelEviction, Effect, Evict, Nominate, Outcome, PodEffect, Release, Reserve, Verdict

log = structlog.get_logger(__name__)

REPEAT_AFTER_S: Final = 60.0
"""The same refusal in other numbers is told no more often than this."""
_MAX_NAMES = 8
_MAX_REMEMBERED = 20_000


class CycleLogEntry(NamedTuple):
    event: str
    fields: dict[str, Any]


class CycleLog:
    """Remembers what each waiting gang was last told, of as many as is reasonable."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[str, str, float]] = {}

    def write(self, outcome: Outcome) -> None:
        entries = self.entries(outcome)
        if entries:
            # Made once for all of them: a cycle may have thousands.
            say = log.bind(cycle=outcome.cycle).info
            for event, fields in entries:
                say(event, **fields)

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
                yield CycleLogEntry("waits", {"gang": gang, "code": verdict.code, "why": verdict.why})
        for old in list(self._reported)[:-_MAX_REMEMBERED]:
            del self._reported[old]

    def _is_new_refusal(self, gang: str, verdict: Verdict, *, now: float) -> bool:
        code, why, at = self._reported.get(gang, ("", "", 0.0))
        return verdict.code != code or (verdict.why != why and now - at >= REPEAT_AFTER_S)


def _effect_entries(effects: Iterable[Effect]) -> Iterator[CycleLogEntry]:
    """Deeds of one sort for one gang and one reason share a line."""
    shared: dict[tuple[str, ...], list[PodEffect]] = {}
    for effect in effects:
        match effect:
            case Evict():
                key: tuple[str, ...] = ("evict", effect.gang, effect.for_gang, effect.cause, effect.method)
            case Bind() | Reserve() | Nominate() | Release() | CancelEviction():
                key = (type(effect).__name__.lower(), effect.gang, effect.cause)
            case _:
                continue
        shared.setdefault(key, []).append(effect)
    for (deed, *_), some in shared.items():
        yield CycleLogEntry(deed, _fields(some))


def _fields(some: list[PodEffect]) -> dict[str, Any]:
    first = some[0]
    fields: dict[str, Any] = {
        "gang": first.gang,
        "pods": len(some),
        "nodes": _name_list(one.node for one in some),
        "cause": first.cause,
    }
    if isinstance(first, Evict):
        fields |= {"for_gang": first.for_gang, "manner": first.method, "victims": _name_list(one.pod for one in some)}
    return {**fields, "why": first.why}


def _name_list(names: Iterable[str]) -> list[str]:
    """Each once, and not more than can be read."""
    found = list(Counter(names))
    return found if len(found) <= _MAX_NAMES else [*found[:_MAX_NAMES], f"and {len(found) - _MAX_NAMES} more"]
