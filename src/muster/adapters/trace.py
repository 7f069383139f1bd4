"""The decision log: one line for each scheduler that starts, with its policy, one for each event, one for each cycle's outcome.

Events are written as the scheduler saw them, so that a log needs no cluster to be run again; outcomes are written so that the same
decisions are the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import msgspec

from muster.model import effects as effects_module
from muster.model.effects import Effect, Outcome, Verdict
from muster.model.events import BindFailed, ClaimFailed, Event, EvictFailed, Gone, Seen, Thing
from muster.model.pod import Kind, Pod

FORMAT = 1

_THINGS: dict[str, type[Thing]] = {cls.__name__: cls for cls in Thing.__args__}
_OTHERS: dict[str, type[Gone | BindFailed | EvictFailed | ClaimFailed]] = {
    cls.__name__: cls for cls in (Gone, BindFailed, EvictFailed, ClaimFailed)
}
_EFFECTS: dict[str, type[Effect]] = {cls.__name__: cls for cls in effects_module.Effect.__args__}


class BadLog(ValueError):
    """A line that is no part of a decision log."""


@dataclass(frozen=True, slots=True)
class Header:
    """A scheduler starts anew, with this policy."""

    policy: str


Entry = Header | Event | Outcome


class TraceWriter:
    """Writes a log as it happens."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def begin(self, policy: str) -> None:
        self._line({"muster": FORMAT, "policy": policy})

    def events(self, events: Iterable[Event]) -> None:
        for event in events:
            self._line(_event_line(event))

    def outcome(self, outcome: Outcome) -> None:
        self._file.write(outcome_bytes(outcome) + b"\n")

    def _line(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


def outcome_bytes(outcome: Outcome) -> bytes:
    """The one way in which an outcome is written: equal decisions, equal bytes."""
    return msgspec.json.encode(
        {
            "cycle": outcome.cycle,
            "now": outcome.now,
            "effects": [{type(effect).__name__: effect} for effect in outcome.effects],
            "verdicts": outcome.verdicts,
            "stats": outcome.stats,
        }
    )


def read_trace(lines: Iterable[bytes]) -> Iterator[tuple[int, Entry, bytes]]:
    """Line number, what the line says, and its bytes."""
    kinds: dict[Kind, Kind] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\n")
        if not line:
            continue
        try:
            yield number, _entry(msgspec.json.decode(line), kinds), line
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise BadLog(f"line {number} is no line of a decision log: {error}") from error


def _event_line(event: Event) -> dict[str, object]:
    if isinstance(event, Seen):
        return {"seen": type(event.thing).__name__, "thing": event.thing}
    return {"event": type(event).__name__, "of": event}


def _entry(line: object, kinds: dict[Kind, Kind]) -> Entry:
    if not isinstance(line, dict):
        raise BadLog("not an object")
    if "seen" in line:
        return Seen(_thing(line["seen"], line["thing"], kinds))
    if "event" in line:
        return msgspec.convert(line["of"], _OTHERS[line["event"]])
    if "cycle" in line:
        return _outcome(line)
    if "muster" not in line:
        raise BadLog("it is neither an event nor an outcome nor the start of a scheduler")
    if line["muster"] != FORMAT:
        raise BadLog(f"format {line['muster']} is not {FORMAT}")
    return Header(policy=str(line["policy"]))


def _thing(name: str, said: object, kinds: dict[Kind, Kind]) -> Thing:
    thing = msgspec.convert(said, _THINGS[name])
    if isinstance(thing, Pod):
        # Pods of one kind share it, as they did when they were first decoded.
        object.__setattr__(thing, "kind", kinds.setdefault(thing.kind, thing.kind))
    return thing


def _outcome(line: dict[str, object]) -> Outcome:
    said = line["effects"]
    if not isinstance(said, list):
        raise BadLog("effects is not a list")
    return Outcome(
        cycle=msgspec.convert(line["cycle"], int),
        now=msgspec.convert(line["now"], float),
        effects=tuple(msgspec.convert(fields, _EFFECTS[name]) for entry in said for name, fields in entry.items()),
        verdicts=msgspec.convert(line["verdicts"], tuple[tuple[str, Verdict], ...]),
        stats=msgspec.convert(line["stats"], tuple[tuple[str, int], ...]),
    )
