"""Frozen values as JSON: what `--json`, the API and reports have in common. Keys are field names in camelCase."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from muster.config.plugin_options import camel_case

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
"""Most values: asked first, since views have a hundred thousand of them."""


def to_json(value: object) -> Any:
    """Dataclasses as objects with camelCase keys; pairs of a name and a number as one object."""
    kind: type = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else to_json(item) for item in value]
    if (found := _json_fields(kind)) is not None:
        document = {}
        for name, key, is_amounts in found:
            field = getattr(value, name)
            document[key] = field if type(field) in _PLAIN else dict(field) if is_amounts else to_json(field)
        return document
    return msgspec.to_builtins(value)


@cache
def _json_fields(kind: type) -> tuple[tuple[str, str, bool], ...] | None:
    """Name, JSON key, and whether it holds amounts by name, of each field of a dataclass; None of anything else."""
    if not is_dataclass(kind):
        return None
    hints = get_type_hints(kind)
    return tuple((field.name, camel_case(field.name), _is_amounts(hints[field.name])) for field in fields(kind))


def _is_amounts(hint: object) -> bool:
    pair = get_args(hint)[:1]
    return get_origin(hint) is tuple and bool(pair) and get_args(pair[0]) in ((str, int), (str, float))
