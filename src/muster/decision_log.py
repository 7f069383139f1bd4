"""The decision log: one line for each start of a scheduler, with its policy, one for each event, one for the outcome of each cycle.

Events are written as the scheduler received them, so that a log can be replayed without a cluster; equal decisions are equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import msgspec

from muster.model import effects as effects_module
from muster.model.effects import Effect, Outcome, Verdict
from muster.model.events import BindFailed, ClusterObject, Delete, Event, EvictFailed, ReservationFailed, SaveFailed, Upsert
from muster.model.pod import Pod, PodSignature
from muster.model.printable_text import printable_json

FORMAT = 3
"""3: Plans and Histories are objects and effects."""

_OBJECT_TYPES: dict[str, type[ClusterObject]] = {cls.__name__: cls for cls in ClusterObject.__args__}
_OTHER_EVENT_TYPES: dict[str, type[Delete | BindFailed | EvictFailed | ReservationFailed | SaveFailed]] = {
    cls.__name__: cls for cls in (Delete, BindFailed, EvictFailed, ReservationFailed, SaveFailed)
}
_EFFECT_TYPES: dict[str, type[Effect]] = {cls.__name__: cls for cls in effects_module.Effect.__args__}


class BadDecisionLog(ValueError):
    """A line that is not of a decision log."""


@dataclass(frozen=True, slots=True)
class LogHeader:
    """A scheduler starts with this policy."""

    policy: str


LogEntry = LogHeader | Event | Outcome


class DecisionLogWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def begin(self, policy: str) -> None:
        self._write_line({"muster": FORMAT, "policy": policy})

    def events(self, events: Iterable[Event]) -> None:
        for event in events:
            self._write_line(_event_line(event))

    def outcome(self, outcome: Outcome) -> None:
        self._file.write(outcome_bytes(outcome) + b"\n")

    def _write_line(self, line: object) -> None:
        self._file.write(printable_json(msgspec.json.encode(line)) + b"\n")


def outcome_bytes(outcome: Outcome) -> bytes:
    """The encoding of an outcome: equal decisions, equal bytes."""
    document = {
        "cycle": outcome.cycle,
        "now": outcome.now,
        "effects": [{type(effect).__name__: effect} for effect in outcome.effects],
        "verdicts": outcome.verdicts,
        "stats": outcome.stats,
    }
    return printable_json(msgspec.json.encode(document))


def read_decision_log(lines: Iterable[bytes]) -> Iterator[tuple[int, LogEntry, bytes]]:
    """Line number, entry, and the bytes of the line."""
    signatures: dict[PodSignature, PodSignature] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\n")
        if not line:
            continue
        try:
            yield number, _decode_entry(msgspec.json.decode(line), signatures), line
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, msgspec.DecodeError) and number > 1 and not raw.endswith(b"\n"):
                raise BadDecisionLog(f"line {number} is truncated") from None
            raise BadDecisionLog(f"line {number} is not a line of a decision log: {error}") from error


def _event_line(event: Event) -> dict[str, object]:
    if isinstance(event, Upsert):
        return {"upsert": type(event.obj).__name__, "object": event.obj}
    return {"event": type(event).__name__, "fields": event}


def _decode_entry(line: object, signatures: dict[PodSignature, PodSignature]) -> LogEntry:
    if not isinstance(line, dict):
        raise BadDecisionLog("not an object")
    if "upsert" in line:
        return Upsert(_decode_object(line["upsert"], line["object"], signatures))
    if "event" in line:
        return msgspec.convert(line["fields"], _OTHER_EVENT_TYPES[line["event"]])
    if "cycle" in line:
        return _decode_outcome(line)
    if "muster" not in line:
        raise BadDecisionLog("it is neither an event nor an outcome nor the start of a scheduler")
    if line["muster"] != FORMAT:
        raise BadDecisionLog(f"format {line['muster']} is not {FORMAT}")
    return LogHeader(policy=str(line["policy"]))


def _decode_object(name: str, raw_fields: object, signatures: dict[PodSignature, PodSignature]) -> ClusterObject:
    obj = msgspec.convert(raw_fields, _OBJECT_TYPES[name])
    if isinstance(obj, Pod):
        # Pods of one signature share the object, as those of a live cluster do.
        object.__setattr__(obj, "signature", signatures.setdefault(obj.signature, obj.signature))
    return obj


def _decode_outcome(line: dict[str, object]) -> Outcome:
    raw_fields = line["effects"]
    if not isinstance(raw_fields, list):
        raise BadDecisionLog("effects is not a list")
    return Outcome(
        cycle=msgspec.convert(line["cycle"], int),
        now=msgspec.convert(line["now"], float),
        effects=tuple(msgspec.convert(fields, _EFFECT_TYPES[name]) for entry in raw_fields for name, fields in entry.items()),
        verdicts=msgspec.convert(line["verdicts"], tuple[tuple[str, Verdict], ...]),
        stats=msgspec.convert(line["stats"], tuple[tuple[str, int], ...]),
    )
