"""Parses values in labels, annotations and statuses.

Each parser returns a value or raises `BadText` with a message that says what to write instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import TypeVar
from urllib.parse import quote

import msgspec

from muster.kube.read.decoding_problems import Problems
from muster.kube.read.wire import ResourceList
from muster.model.resource_amounts import BadQuantity, Resources, amount

T = TypeVar("T")

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


def read_annotation(annotations: Mapping[str, str], key: str, read: Callable[[str], T], *, problems: Problems) -> T | None:
    text = annotations.get(key)
    return None if text is None else read_or_report(text, read, problems=problems.annotation(key))


def read_or_report(text: str, read: Callable[[str], T], *, problems: Problems) -> T | None:
    """The value of the text; an invalid text is a Problem and None."""
    try:
        return read(text)
    except BadText as bad:
        problems.add(text, advice=str(bad), lost=True)
        return None


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
    advice = 'is no JSON list of texts; write for example ["team-a", "team-b"]'
    return read_json(text, tuple[str, ...], advice=advice) if text.strip() else ()


def read_json(text: str, wanted: type[T], *, advice: str) -> T:
    """`advice` is for JSON of another type."""
    if len(text) > MAX_JSON_LENGTH:
        raise BadText(f"is longer than {MAX_JSON_LENGTH} characters")
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.ValidationError:
        raise BadText(advice) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadText('is no JSON; write for example ["namespace/name"]') from None


def check_name(text: str) -> None:
    """Object names are RFC 1123 subdomains: lower-case letters, digits and `-`, joined by dots."""
    if len(text) > MAX_NAME_LENGTH or not _NAME.fullmatch(text):
        raise BadText(f"is no RFC 1123 name; the nearest is {nearest_name(text)!r}")


def name_in_keys(text: str) -> str:
    """A name as a part of keys. What no object can be called is encoded, so that it names nothing else: keys are joined by the
    characters that this leaves out."""
    if len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text):
        return text
    digest = sha256(text.encode()).hexdigest()[:16] if len(text) > MAX_NAME_LENGTH else ""
    return quote(text[: MAX_NAME_LENGTH - len(digest)], safe="") + digest


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


def read_amounts(written: ResourceList, *, problems: Problems, field: str) -> dict[str, int]:
    """A resource list in integers. An invalid quantity is left out and reported."""
    amounts: dict[str, int] = {}
    for name, quantity in written.items():
        try:
            amounts[name] = amount(name, str(quantity))
        except BadQuantity as bad:
            problems.at(field).key(name).add(quantity, advice=f"was ignored: {bad}")
    return amounts


def read_resources(written: ResourceList, *, problems: Problems, field: str) -> Resources:
    return Resources.of(read_amounts(written, problems=problems, field=field))


def status_texts(status: Mapping[str, object]) -> dict[str, str]:
    """The fields of a status that the scheduler writes, as texts: {"running": "3", "allocated.cpu": "2"}. Conditions are none of
    them: they are compared where they are written."""
    return dict(islice(_status_texts(status), _MAX_STATUS_FIELDS))


_MAX_STATUS_FIELDS = 1000


def _status_texts(status: Mapping[str, object], *, parent: str = "") -> Iterator[tuple[str, str]]:
    for key, value in status.items():
        if isinstance(value, str):
            yield f"{parent}{key}", value
        elif isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 256):
            yield f"{parent}{key}", json.dumps(value)
        elif isinstance(value, Mapping) and not parent:
            yield from _status_texts(value, parent=f"{key}.")
