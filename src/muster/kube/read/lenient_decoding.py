"""Decodes an object that does not fit its struct: keeps all that fits, coerces what has one obvious meaning, drops the rest.

One invalid field must not lose its object. What is coerced or dropped becomes a Problem. Two cases are valid: `null`, and an
annotation written as a number, a boolean, a list or a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec.structs import fields

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems

S = TypeVar("S", bound=wire.WireStruct)

DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors of msgspec where a value does not fit its struct."""

_MAX_UNKNOWN_FIELDS = 3
_DROPPED: Any = object()
"""A value that was dropped: the field has its default."""


def decode_leniently(obj: Mapping[Any, object], *, wanted: type[S], problems: Problems) -> S:
    """`obj` as a `wanted`, with a Problem for each field that was coerced or dropped."""
    return cast(S, _struct(obj, wanted, problems=problems))


def as_text(value: object) -> str:
    """The text of an annotation that is written as a number, a boolean, a list or a time."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    return json.dumps(value, default=as_text, ensure_ascii=False)


def _text_or_value(value: object) -> object:
    try:
        return as_text(value)
    except (ValueError, TypeError, RecursionError):
        # Left as it is, so that it is dropped and reported like any other value that does not fit.
        return value


def _decode_part(value: object, wanted: Any, *, problems: Problems) -> Any:
    """The whole value; where it does not fit, its parts."""
    try:
        return msgspec.convert(value, wanted)
    except DECODE_ERRORS:
        pass
    if value is None:
        return _DROPPED
    wanted = _without_none(wanted)
    if isinstance(wanted, type) and issubclass(wanted, wire.WireStruct):
        return _struct(value, wanted, problems=problems)
    if get_origin(wanted) is tuple:
        return _list(value, get_args(wanted)[0], problems=problems)
    if get_origin(wanted) is dict:
        return _map(value, get_args(wanted)[1], problems=problems)
    return _scalar(value, wanted, problems=problems)


def _struct(value: object, wanted: type[wire.WireStruct], *, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.add(value, advice="is no mapping and was ignored; write for example {}", lost=True)
        return _DROPPED
    kept: dict[str, Any] = {}
    for info in fields(wanted):
        if info.encode_name in value:
            part = _decode_part(value[info.encode_name], info.type, problems=problems.at(info.encode_name))
            if part is not _DROPPED:
                kept[info.name] = part
    if wanted.__struct_config__.forbid_unknown_fields:
        _report_unknown_fields(value, wanted, problems=problems)
    missing = [info.encode_name for info in fields(wanted) if info.required and info.name not in kept]
    if missing:
        # A field that is there and was dropped has its own problem.
        absent = [name for name in missing if name not in value]
        if absent:
            problems.add(value, advice=f"has no {absent[0]} and was ignored", lost=True)
        return _DROPPED
    return wanted(**kept)


def _report_unknown_fields(value: Mapping[Any, object], wanted: type[wire.WireStruct], *, problems: Problems) -> None:
    known = {info.encode_name for info in fields(wanted)}
    unknown = sorted(str(key) for key, part in value.items() if key not in known and part is not None)
    for key in unknown[:_MAX_UNKNOWN_FIELDS]:
        problems.at(key).add_unsupported("is not honoured, so the pod gets no node; remove it or name another scheduler")


def _list(value: object, wanted: Any, *, problems: Problems) -> Any:
    if not isinstance(value, list | tuple):
        problems.add(value, advice="is no list and was ignored; write for example []")
        return _DROPPED
    parts = (_decode_part(part, wanted, problems=place) for part, place in problems.each("", value))
    return tuple(part for part in parts if part is not _DROPPED)


def _map(value: object, wanted: Any, *, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.add(value, advice="is no mapping and was ignored; write for example {}", lost=True)
        return _DROPPED
    kept: dict[str, Any] = {}
    is_annotations = problems.field == "metadata.annotations"
    for key, written in value.items():
        part = _text_or_value(written) if is_annotations else written
        place = problems.key(_key_text(key))
        if not isinstance(key, str):
            place.add(key, advice="is no text; write the key in quotes")
        coerced = "" if part is None and wanted is str else _decode_part(part, wanted, problems=place)
        if coerced is not _DROPPED:
            kept[_key_text(key)] = coerced
    return kept


def _key_text(key: object) -> str:
    text = _text_or_value(key)
    return text if isinstance(text, str) else str(type(key).__name__)


def _scalar(value: object, wanted: Any, *, problems: Problems) -> Any:
    coerce, example = _COERCIONS.get(wanted, (_drop, "a quantity such as 500m, 2 or 4Gi"))
    coerced = coerce(value)
    if coerced is _DROPPED:
        problems.add(value, advice=f"was ignored; write {example}", lost=True)
    else:
        written = json.dumps(coerced)
        problems.add(value, advice=f"was read as {written}; write {written}")
    return coerced


def _coerce_text(value: object) -> Any:
    return as_text(value) if isinstance(value, int | float | date) and _is_sensible_number(value) else _DROPPED


def _coerce_number(value: object) -> Any:
    """An integer written as text or as a float, clamped to the range of the API."""
    try:
        number = int(value) if isinstance(value, str) and len(value) < 20 else value
        if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
            return _DROPPED
        return max(-(2**31), min(2**31 - 1, int(number)))
    except (ValueError, OverflowError):
        return _DROPPED


def _coerce_bool(value: object) -> Any:
    known = {"true": True, "false": False, "yes": True, "no": False}
    return known.get(value.lower(), _DROPPED) if isinstance(value, str) else _DROPPED


def _is_sensible_number(value: object) -> bool:
    """A huge number is a mistake."""
    return not isinstance(value, int) or value.bit_length() < 256


def _drop(_: object) -> Any:
    return _DROPPED


def _without_none(wanted: Any) -> Any:
    """The X of an `X | None`."""
    if get_origin(wanted) not in (Union, UnionType):
        return wanted
    rest = [part for part in get_args(wanted) if part is not type(None)]
    return rest[0] if len(rest) == 1 else wanted


_COERCIONS = {
    str: (_coerce_text, 'a text in quotes such as "abc"'),
    wire.Int32: (_coerce_number, "a whole number such as 1"),
    bool: (_coerce_bool, "true or false"),
    datetime: (_drop, "a time such as 2026-03-01T12:00:00Z"),
    Any: (_drop, "a value that is less nested"),
}
