"""Says when a gang starts, how sure that is, and with which changes it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from muster.cli.screen import Line, rows_of
from muster.cli.text_format import count, duration, queue_name
from muster.forecast.dry_run import RUNS_NOW, Forecast
from muster.forecast.start_time import Start

OUTLOOK_QUESTIONS = 2
"""When it starts, and with which changes: they share the time."""
_SOON_S = 60.0
"""A bound that is nearer says nothing."""


def deadline(seconds: float) -> Callable[[], bool]:
    """True until so many seconds were spent: of the processor, so that the answer is the same on a busy machine."""
    until = time.process_time() + seconds
    return lambda: time.process_time() < until


def bounds_of(forecast: Forecast, *, seconds: float) -> list[str]:
    """What was left out to be in time."""
    if not forecast.unsearched:
        return []
    others = count(forecast.unsearched, "other waiting gang")
    return [f"told as if {others} had nobody evicted: the time to look whom was over (--seconds {seconds:g})"]


def start_rows(forecast: Forecast, *, now: float, seconds: float) -> Iterator[Line]:
    start = forecast.start
    if start is None or forecast.code == RUNS_NOW:
        return
    place = f"; {forecast.position} of {forecast.waiting_in_queue} in queue {queue_name(forecast.queue)}"
    without = "without evicting anybody: " * bool(forecast.evicted_gangs)
    yield from rows_of("starts", [without + _when(start, now, seconds) + place * (forecast.position > 0)])


def remedy_rows(forecast: Forecast, *, seconds: float) -> Iterator[Line]:
    """With which changes it runs."""
    texts = []
    for each in forecast.remedies:
        evicts = f", after evicting {count(each.evicts, 'pod')}" if each.evicts else ""
        command = f": {each.command}" if each.command else ""
        texts.append(f"{each.what}{evicts}{command}")
    if forecast.remedies_cut_short:
        texts.append(f"(not all changes were tried: the time for this was over, --seconds {seconds:g})")
    yield from rows_of("runs if", texts)


def _when(start: Start, now: float, seconds: float) -> str:
    if start.expected_s is not None:
        return f"{_moment(start.expected_s, now)}{_spread(start)}, if nobody comes before it{_known_from(start)}"
    if start.cut_short:
        return f"{_bound(start, now)}; the time for this was over (--seconds {seconds:g})"
    if start.unknown:
        latest = f"at the latest {_moment(start.latest_s, now)}" if start.latest_s is not None else ""
        known = _bound(start, now) if start.not_before_s >= _SOON_S or not latest else ""
        pods = count(start.unknown, "pod runs nobody knows how long", "pods run nobody knows how long")
        return f"{', '.join(filter(None, (known, latest)))}: {pods} (--run-time, --history){_known_from(start)}"
    ended = f", {_moment(start.not_before_s, now)}" * (start.not_before_s >= _SOON_S)
    return f"not even when all that runs has ended{ended}{_known_from(start)}"


def _bound(start: Start, now: float) -> str:
    return f"not before {_time_of_day(start.not_before_s, now)}" if start.not_before_s >= _SOON_S else "not known"


def _moment(in_s: float, now: float) -> str:
    return f"in {duration(_rounded(in_s))}, at {_time_of_day(_rounded(in_s), now)}"


def _spread(start: Start) -> str:
    first, last = _rounded(start.not_before_s), start.latest_s
    if last is None:
        return f" ({duration(first)} or more)"
    return f" ({duration(first)} to {duration(_rounded(last))})" if _rounded(last) > first else ""


def _known_from(start: Start) -> str:
    parts = ", ".join(f"{number} {source}" for source, number in start.known_from)
    return f" (run times: {parts})" if parts else ""


def _rounded(seconds: float) -> float:
    step = 60.0 if seconds >= 3600 else 10.0 if seconds >= 600 else 1.0
    return round(seconds / step) * step


def _time_of_day(in_s: float, now: float) -> str:
    moment, today = (datetime.fromtimestamp(at, UTC) for at in (now + in_s, now))
    return moment.strftime("%H:%MZ" if moment.date() == today.date() else "%Y-%m-%d %H:%MZ")
