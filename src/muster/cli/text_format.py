"""Formats numbers, times, amounts and lists of names as text. Pure functions of values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from muster.literals import format_duration
from muster.model.queue import ROOT_QUEUE
from muster.model.resource_amounts import CPU, short_name, show_amount
from muster.queue_report import ResourceAmounts

_NUMBER = re.compile(r"(\d+)")
_MAX_DIGITS = 9


def clock(seconds: float) -> str:
    """A time of day: 00:41:10."""
    rounded = int(seconds)
    return f"{rounded // 3600:02d}:{rounded % 3600 // 60:02d}:{rounded % 60:02d}"


def duration(seconds: float) -> str:
    """A duration in the syntax of scenario files: 40s, 3m40s, 1h19m."""
    return format_duration(float(round(seconds)) if seconds >= 1 or not seconds else round(seconds, 2))


def real_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"


def count(number: int, word: str, plural: str = "") -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def join_names(names: Sequence[str], *, limit: int = 3) -> str:
    """`a, b and c`; beyond `limit` the rest is only counted."""
    if len(names) > limit:
        return f"{', '.join(names[: limit - 1])} and {len(names) - limit + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def count_by_gang(gangs: Iterable[str]) -> str:
    """`2 of a/train and 1 of a/tune`: the gangs of some pods."""
    return join_names([f"{pods} of {gang}" for gang, pods in Counter(gangs).items()])


def amount_of(amounts: ResourceAmounts, resource: str) -> int:
    return next((value for name, value in amounts if name == resource), 0)


def amount(resource: str, value: int) -> str:
    """`48 gpu`, `1.5 cpu`."""
    return f"{show_amount(resource, value)} {short_name(resource)}"


def unit_hours(resource: str, unit_seconds: float) -> str:
    """Unit-seconds of work in hours: `3.1 GPU-hours`."""
    units = unit_seconds / 3600 / (1000 if resource == CPU else 1)
    return f"{units:.1f} {unit_name(resource)}-hours"


def unit_name(resource: str) -> str:
    return short_name(resource).upper() if len(short_name(resource)) <= 3 else short_name(resource)


def reason_pattern(why: str, gang: str) -> str:
    """The reason of a verdict without names and numbers: equal for gangs that wait for the same kind of reason."""
    return _NUMBER.sub("#", why.replace(gang.rpartition("/")[2], ""))


def queue_name(key: str) -> str:
    return ROOT_QUEUE if key == ROOT_QUEUE else key.split("/", 1)[-1]


def compact_names(names: Iterable[str]) -> str:
    """Names in the range syntax of scenario files: `r[1-2]-n[1-8]` for sixteen of them."""
    return ", ".join(compact_name_list(names))


def compact_name_list(names: Iterable[str]) -> list[str]:
    pieces = [tuple(_NUMBER.split(name)) for name in dict.fromkeys(names)]
    longest = max((len(piece) for piece in pieces), default=0)
    for position in range(longest - 2, 0, -2):
        pieces = _merge(pieces, position)
    return ["".join(piece) for piece in sorted(pieces, key=_natural_key)]


def _merge(pieces: list[tuple[str, ...]], at: int) -> list[tuple[str, ...]]:
    """Merge names that differ only in the number at this position."""
    padded = {_around(piece, at, len(piece[at])) for piece in pieces if at < len(piece) and _is_padded(piece[at])}
    groups: dict[object, list[tuple[str, ...]]] = {}
    for piece in pieces:
        key: object = piece
        if at < len(piece) and len(piece[at]) <= _MAX_DIGITS:
            # `08`, `09` and `10` are one range: numbers of the width of a zero-padded one join it.
            width = len(piece[at])
            key = _around(piece, at, width if _around(piece, at, width) in padded else 0)
        groups.setdefault(key, []).append(piece)
    return [group[0] if len(group) == 1 else _join_numbers(group, at) for group in groups.values()]


def _around(piece: tuple[str, ...], at: int, width: int) -> tuple[object, ...]:
    return (width, piece[:at], piece[at + 1 :])


def _is_padded(number: str) -> bool:
    return number.startswith("0") and len(number) > 1


def _join_numbers(group: list[tuple[str, ...]], at: int) -> tuple[str, ...]:
    width = len(group[0][at]) if any(_is_padded(piece[at]) for piece in group) else 0
    numbers = sorted(int(piece[at]) for piece in group)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}" for run in runs]
    return (*group[0][:at], f"[{','.join(shown)}]", *group[0][at + 1 :])


def _natural_key(piece: tuple[str, ...]) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in piece)
