"""A cluster as a decision log has it, at its end or at a time in it, and what was decided about each gang until then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from muster.cli.errors import UserError
from muster.cli.text_format import count, count_by_gang
from muster.config import load_policy
from muster.decision_log import BadDecisionLog, LogHeader, read_decision_log
from muster.engine.hooks import Policy
from muster.literals import duration as parse_duration
from muster.model.effects import Bind, Evict, Nominate, Outcome
from muster.model.events import ClusterObject, Delete, Event, Upsert, event_subject
from muster.model.pod import Pod, PodStatusPhase

_MAX_ENTRIES = 8
_MINUTE = 60.0
"""A time of day without seconds may be this much before the beginning."""


@dataclass(slots=True)
class LoggedCluster:
    policy: Policy | None = None
    now: float = 0.0
    objects: dict[tuple[str, str], ClusterObject] = field(default_factory=dict)
    decisions: dict[str, list[str]] = field(default_factory=dict)
    """The last ones, by gang."""
    ended: list[tuple[Pod, float]] = field(default_factory=list)
    """Pods that succeeded, and for how long they ran."""
    note: str = ""
    """Where it is not as it was at the time that was asked for."""


def read_logged_cluster(lines: Iterable[bytes], *, file: str, at: str) -> LoggedCluster:
    """`at`: a time of day, a date with a time, or how long after the log begins; empty for its end."""
    cluster, pending, until = LoggedCluster(), list[Event](), None
    try:
        for _, entry, _ in read_decision_log(lines):
            if isinstance(entry, LogHeader):
                cluster.policy = load_policy(entry.policy, file=file)
                cluster.objects.clear()
            elif isinstance(entry, Outcome):
                if at and until is None:
                    until = _moment_within(file, at, begin=entry.now)
                if until is not None and entry.now > until and cluster.now:
                    break
                _fold(cluster, pending, now=entry.now)
                cluster.now = entry.now
                _record(cluster, entry)
            else:
                pending.append(entry)
        else:
            cluster.note = _note_of_end(file, at, until, end=cluster.now)
    except BadDecisionLog as bad:
        raise UserError(f"{file}: no decision log: {bad}") from None
    if cluster.policy is None or not cluster.now:
        raise UserError(f"{file}: {_why_nothing(cluster, pending)}")
    return cluster


def _moment_within(file: str, at: str, *, begin: float) -> float:
    found = _moment(at, begin=begin)
    if found < begin - _MINUTE:
        raise UserError(f"--at: {at} is before {file} begins, at {_shown(begin)}")
    return found


def _note_of_end(file: str, at: str, until: float | None, *, end: float) -> str:
    if until is None or until <= end:
        return ""
    return f"{at} (--at) is after the last cycle in {file}: this is how it ends, at {_shown(end)}"


def _why_nothing(cluster: LoggedCluster, pending: list[Event]) -> str:
    return "nothing was decided in this decision log" if cluster.policy is not None or pending else "this file is empty"


def _fold(cluster: LoggedCluster, pending: list[Event], *, now: float) -> None:
    for event in pending:
        if isinstance(event, Upsert):
            subject, obj = event_subject(event.obj), event.obj
            if isinstance(obj, Pod) and obj.status_phase is PodStatusPhase.SUCCEEDED and obj.started is not None:
                before = cluster.objects.get(subject)
                if isinstance(before, Pod) and not before.finished:
                    cluster.ended.append((obj, now - obj.started))
            cluster.objects[subject] = obj
        elif isinstance(event, Delete):
            cluster.objects.pop((event.kind, event.key), None)
    pending.clear()


def _moment(text: str, *, begin: float) -> float:
    if text[:1].isdigit() and ":" in text and "-" not in text:
        start = datetime.fromtimestamp(begin, UTC)
        try:
            hours, minutes, seconds = map(float, [*text.split(":"), "0"][:3])
        except ValueError:
            raise _bad_time(text) from None
        found = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return (found if found >= start - timedelta(seconds=_MINUTE) else found + timedelta(days=1)).timestamp()
    try:
        if "-" in text:
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return begin + parse_duration(text)
    except ValueError:
        raise _bad_time(text) from None


def _shown(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bad_time(text: str) -> UserError:
    return UserError(f"--at: {text!r} is no time; write for example 14:05, 2026-07-01T14:05:00Z, or 1h19m after the beginning")


def _record(cluster: LoggedCluster, outcome: Outcome) -> None:
    at = datetime.fromtimestamp(outcome.now, UTC).strftime("%H:%M:%S")
    for key, verdict in outcome.verdicts:
        if not verdict.ok:
            _add(cluster, key.partition(":")[2] or key, f"{at} {verdict.why}")
    for kind, verb in ((Bind, "bound"), (Nominate, "nominated")):
        gangs = Counter(effect.gang for effect in outcome.effects if isinstance(effect, kind))
        for gang, number in gangs.items():
            _add(cluster, gang, f"{at} {verb}: {count(number, 'member')}")
    _record_evictions(cluster, [effect for effect in outcome.effects if isinstance(effect, Evict)], at)


def _record_evictions(cluster: LoggedCluster, evictions: list[Evict], at: str) -> None:
    for gang in dict.fromkeys(effect.for_gang for effect in evictions):
        victims = count_by_gang(effect.gang for effect in evictions if effect.for_gang == gang)
        _add(cluster, gang, f"{at} had {victims} evicted")
    for (gang, for_gang), number in Counter((effect.gang, effect.for_gang) for effect in evictions).items():
        _add(cluster, gang, f"{at} lost {count(number, 'member')} for {for_gang}")


def _add(cluster: LoggedCluster, gang: str, text: str) -> None:
    entries = cluster.decisions.setdefault(gang, [])
    if not entries or entries[-1].partition(" ")[2] != text.partition(" ")[2]:
        entries.append(text)
    del entries[:-_MAX_ENTRIES]
