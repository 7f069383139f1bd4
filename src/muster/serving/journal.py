"""What a cycle decided, as lines of the log: one for each gang that got something, one for each that lost something, and one for a
gang that waits when what it is told is news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import structlog

from muster.model.effects import Bind, Deed, Effect, Evict, Hold, Nominate, Outcome, Release, Spare, Verdict

log = structlog.get_logger(__name__)

AGAIN_S: Final = 60.0
"""The same refusal in other numbers is told no more often than this."""
_MOST_NAMED = 8
_MOST_REMEMBERED = 20_000


class Line(NamedTuple):
    event: str
    fields: dict[str, Any]


class Journal:
    """Remembers what each waiting gang was last told, of as many as is reasonable."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str, float]] = {}

    def note(self, outcome: Outcome) -> None:
        lines = self.lines(outcome)
        if lines:
            # Made once for all of them: a cycle may have thousands.
            say = log.bind(cycle=outcome.cycle).info
            for event, fields in lines:
                say(event, **fields)

    def lines(self, outcome: Outcome) -> list[Line]:
        for effect in outcome.effects:
            if isinstance(effect, Bind):
                self._told.pop(effect.gang, None)
        return [*_deeds(outcome.effects), *self._refusals(outcome)]

    def _refusals(self, outcome: Outcome) -> Iterator[Line]:
        for gang, verdict in outcome.verdicts:
            if not verdict.ok and self._is_news(gang, verdict, now=outcome.now):
                self._told.pop(gang, None)
                self._told[gang] = (verdict.code, verdict.why, outcome.now)
                yield Line("waits", {"gang": gang, "code": verdict.code, "why": verdict.why})
        for old in list(self._told)[:-_MOST_REMEMBERED]:
            del self._told[old]

    def _is_news(self, gang: str, verdict: Verdict, *, now: float) -> bool:
        code, why, at = self._told.get(gang, ("", "", 0.0))
        return verdict.code != code or (verdict.why != why and now - at >= AGAIN_S)


def _deeds(effects: Iterable[Effect]) -> Iterator[Line]:
    """Deeds of one sort for one gang and one reason share a line."""
    shared: dict[tuple[str, ...], list[Deed]] = {}
    for effect in effects:
        match effect:
            case Evict():
                key: tuple[str, ...] = ("evict", effect.gang, effect.for_gang, effect.cause, effect.manner)
            case Bind() | Hold() | Nominate() | Release() | Spare():
                key = (type(effect).__name__.lower(), effect.gang, effect.cause)
            case _:
                continue
        shared.setdefault(key, []).append(effect)
    for (deed, *_), some in shared.items():
        yield Line(deed, _fields(some))


def _fields(some: list[Deed]) -> dict[str, Any]:
    first = some[0]
    fields: dict[str, Any] = {
        "gang": first.gang,
        "pods": len(some),
        "nodes": _named(one.node for one in some),
        "cause": first.cause,
    }
    if isinstance(first, Evict):
        fields |= {"for_gang": first.for_gang, "manner": first.manner, "victims": _named(one.pod for one in some)}
    return {**fields, "why": first.why}


def _named(names: Iterable[str]) -> list[str]:
    """Each once, and not more than can be read."""
    found = list(Counter(names))
    return found if len(found) <= _MOST_NAMED else [*found[:_MOST_NAMED], f"and {len(found) - _MOST_NAMED} more"]
