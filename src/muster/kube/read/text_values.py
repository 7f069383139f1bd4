"""Parses values in labels, annotations and statuses.

Each parser returns a value or raises `BadText` with a message that says what to write instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice

import msgspec

from muster.kube.read.decoding_problems import Problems
from muster.kube.read.wire import ResourceList
from muster.model.resource_amounts import BadQuantity, Resources, amount

MAX_NAME_LENGTH = 253
MAX_JSON_LENGTH = 64 * 1024
MAX_COUNT = 2**31 - 1
MAX_WAIT_S = 10 * 365 * 24 * 3600.0

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_DURATION = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class BadText(ValueError):
    """An invalid text; the message is the advice."""


def read_count(text: str) -> int:
    """An integer of at least one."""
    if not re.fullmatch(r"\s*\+?\d{1,10}\s*", text, re.ASCII) or not 1 <= int(text) <= MAX_COUNT:
        raise BadText(f"is no whole number from 1 to {MAX_COUNT}; write for example 4")
    return int(text)


def read_duration(text: str) -> float | None:
    """Seconds of a duration such as `3600s`, `1h30m` or `1.5h`; None where it is empty or zero."""
    written = text.strip()
    if written in ("", "0"):
        return None
    if len(written) > 64 or not _DURATION.fullmatch(written):
        hint = f"{written}s" if re.fullmatch(r"\d{1,9}", written, re.ASCII) else "3600s, 1h30m or 1.5h"
        raise BadText(f"is no duration above zero; write for example {hint}")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(written))
    if not math.isfinite(seconds) or seconds > MAX_WAIT_S:
        raise BadText("is longer than ten years; write for example 24h")
    return seconds or None


def read_seconds(text: str) -> float:
    """A number of seconds, such as `90` or `0.5`."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip(), re.ASCII):
        raise BadText("is no number of seconds; write for example 90")
    return float(text)


def read_time(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time."""
    try:
        return epoch_s(msgspec.convert(text.strip(), datetime)) or 0.0
    except (msgspec.ValidationError, UnicodeError):
        raise BadText("is no RFC 3339 time; write for example 2026-03-01T12:00:00Z") from None


def read_list(text: str) -> tuple[str, ...]:
    """A JSON list of texts; an empty text is an empty list."""
    found = read_json(text) if text.strip() else []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise BadText('is no JSON list of texts; write for example ["team-a", "team-b"]')
    return tuple(found)


def read_json(text: str) -> object:
    if len(text) > MAX_JSON_LENGTH:
        raise BadText(f"is longer than {MAX_JSON_LENGTH} characters")
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        raise BadText('is no JSON; write for example ["namespace/name"]') from None
    return found


def check_name(text: str) -> None:
    """Object names are RFC 1123 subdomains: lower-case letters, digits and `-`, joined by dots."""
    if len(text) > MAX_NAME_LENGTH or not _NAME.fullmatch(text):
        raise BadText(f"is no RFC 1123 name; the nearest is {nearest_name(text)!r}")


def nearest_name(text: str) -> str:
    labels = re.sub(r"[^a-z0-9.]+", "-", text[:MAX_NAME_LENGTH].lower()).split(".")
    return ".".join(label.strip("-") for label in labels if label.strip("-")) or "gang-a"


def epoch_s(when: datetime | None) -> float | None:
    """Seconds since 1970. A time without a zone is in UTC."""
    if when is None:
        return None
    return when.timestamp() if when.tzinfo is not None else when.replace(tzinfo=UTC).timestamp()


def read_version(text: str) -> int:
    """resourceVersion as an integer; one that is none cannot be compared and counts as the oldest."""
    return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else 0


def read_amounts(written: ResourceList, *, field: str, problems: Problems) -> dict[str, int]:
    """A resource list in integers. An invalid quantity is left out and reported."""
    amounts: dict[str, int] = {}
    for name, quantity in written.items():
        try:
            amounts[name] = amount(name, str(quantity))
        except BadQuantity as bad:
            problems.add(f"{field}[{name}]", value=quantity, advice=f"was ignored: {bad}")
    return amounts


def read_resources(written: ResourceList, *, field: str, problems: Problems) -> Resources:
    return Resources.of(read_amounts(written, field=field, problems=problems))


def flatten_status(status: Mapping[str, object]) -> dict[str, str]:
    """A status as texts: `running: 3` is {"running": "3"}; keys of nested values are joined with dots, and conditions have their
    type as key: {"conditions.Scheduled.status": "True"}. Depth and number of fields are limited."""
    walked = islice(_walk_status(status, prefix=""), _MAX_STATUS_FIELDS)
    return {key: value for key, value in walked if value is not None}


_MAX_STATUS_DEPTH = 6
_MAX_STATUS_FIELDS = 1000


def _walk_status(value: object, *, prefix: str, depth: int = 0) -> Iterator[tuple[str, str | None]]:
    """Every path in a value, with its text where it has one. A value may contain itself, so paths are what is limited."""
    yield prefix, _scalar_text(value)
    for key, part in _parts(value) if depth < _MAX_STATUS_DEPTH else ():
        yield from _walk_status(part, prefix=f"{prefix}.{key}" if prefix else key, depth=depth + 1)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((key, part) for key, part in value.items() if isinstance(key, str))
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            kind = part.get("type") if isinstance(part, Mapping) else None
            yield kind if isinstance(kind, str) else str(i), part


def _scalar_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    is_number = isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 256)
    return json.dumps(value) if is_number else None
