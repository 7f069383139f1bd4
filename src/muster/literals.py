"""What people write in scenarios and options: ranges of names, durations, amounts."""

from __future__ import annotations

import re
from itertools import product

from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, BadQuantity, amount, is_resource_name

MAX_RANGE = 100_000
MAX_DURATION_S = 10 * 365 * 24 * 3600.0

RESOURCE_SHORT_NAMES = {"cpu": CPU, "memory": MEMORY, "gpu": GPU, "pods": PODS}

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class BadLiteral(ValueError):
    """A text that is no such literal; the message has an example."""

    def __init__(self, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.suggestion = suggestion


def expand_names(text: str) -> list[str]:
    """`n[1-3]` is n1, n2, n3; `n[08-10]` keeps its zeros; `r[1-2]-n[a,b]` is every combination, the last range fastest."""
    parts = _RANGE.split(text)
    if any(sign in part for part in parts[::2] for sign in "[]"):
        raise BadLiteral(f"{text!r} has a bracket without its other half (write for example n[1-4])")
    choices = [[part] if i % 2 == 0 else _range_values(part, text) for i, part in enumerate(parts)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > MAX_RANGE:
        raise BadLiteral(f"{text!r} is {size} names, more than {MAX_RANGE}")
    return ["".join(names) for names in product(*choices)]


def _range_values(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for piece in inside.split(","):
        span = _SPAN.fullmatch(piece.strip())
        if span is None:
            if not re.fullmatch(r"[-A-Za-z0-9.]+", piece.strip()):
                raise BadLiteral(f"{text!r} is no range (write for example n[1-4] or n[1,3,5-7])")
            found.append(piece.strip())
            continue
        first, last = int(span[1]), int(span[2])
        if first > last:
            raise BadLiteral(f"{text!r} runs backwards", suggestion=text.replace(piece.strip(), f"{span[2]}-{span[1]}"))
        if last - first >= MAX_RANGE:
            raise BadLiteral(f"{text!r} is more than {MAX_RANGE} names")
        width = len(span[1]) if span[1].startswith("0") else 0
        found.extend(f"{number:0{width}d}" for number in range(first, last + 1))
    return found


def is_range(text: str) -> bool:
    return "[" in text


def duration(text: str, *, signed: bool = False) -> float:
    """Seconds of `90s`, `5m`, `2h`, `1h30m`. With `signed` also of `-2h`."""
    written = text.strip()
    sign = -1.0 if signed and written.startswith("-") else 1.0
    digits = written.removeprefix("-") if signed else written
    if digits == "0":
        return 0.0
    if not _DURATION.fullmatch(digits):
        hint = f"{digits}s" if re.fullmatch(r"\d{1,9}(\.\d+)?", digits) else ""
        raise BadLiteral(f"{text!r} is no duration (write for example 90s, 5m, 2h or 1h30m)", suggestion=hint)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(digits))
    if seconds > MAX_DURATION_S:
        raise BadLiteral(f"{text!r} is longer than ten years")
    return sign * seconds


def format_duration(seconds: float) -> str:
    """A duration as a person would write it: `90s`, `5m`, `1h30m`."""
    whole = round(seconds)
    if seconds != whole:
        return f"{seconds:g}s"
    sign, whole = ("-", -whole) if whole < 0 else ("", whole)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if whole < 120 or not (hours or minutes):
        return f"{sign}{whole}s"
    return sign + "".join(f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number)


def resource_name(short: str) -> str:
    """`gpu` means nvidia.com/gpu; every other resource is written as the cluster writes it."""
    return RESOURCE_SHORT_NAMES.get(short, short)


def is_resource(name: str) -> bool:
    """A name that can only be a resource: one of the short ones, or one with a domain."""
    return name in RESOURCE_SHORT_NAMES or is_resource_name(name)


def quantity(resource: str, text: str) -> str:
    """The quantity as written, once it is sure that it is one."""
    try:
        amount(resource, text)
    except BadQuantity as bad:
        raise BadLiteral(str(bad)) from None
    return text
