"""Reads one mapping of a scenario file, key by key, against its key table. Faults are collected, never raised here.

A reader returns the default where it finds a fault, so that the rest of the file is still read and all faults are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TypeVar

from muster.scenario.key_tables import RETIRED_VALUES, key_names, retired_keys
from muster.scenario.literals import BadLiteral, duration, expand_names, quantity, resource_name
from muster.yaml_positions import InputFaults, YamlValue, nearest

T = TypeVar("T")
D = TypeVar("D")

MAX_COUNT = 1_000_000
DEFAULT_CYCLE_INTERVAL_S = 10.0
"""The time from one cycle to the next, unless the scenario sets it."""


class FieldReader:
    """`path` is the mapping's place in the file, such as `gangs[2]`; `is_extra_key` allows keys that are not in the table."""

    def __init__(
        self, at: YamlValue, *, table: str, path: str, faults: InputFaults, is_extra_key: Callable[[str], bool] | None = None
    ) -> None:
        self.at = at
        self.path = path
        self.faults = faults
        self._table = table
        if not at.is_mapping:
            faults.add(at, f"{path or table} takes a mapping, not {at.type_text}", field=path)
        known = key_names(table)
        for key, mark in at.keys.items():
            if key not in known and not (is_extra_key is not None and is_extra_key(key)):
                report_unknown_key(mark, table=table, field=self.field(key), faults=faults)

    def field(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> YamlValue | None:
        """The value, or None where the key is absent or empty."""
        found = self.at.mapping.get(key)
        return None if found is None or found.value is None else found

    def report_invalid(self, key: str, message: str, *, suggestion: str = "") -> None:
        at, field = self.at.mapping.get(key, self.at), self.field(key)
        self.faults.add(at, f"{field}: {message}", field=field, suggestion=suggestion)

    def report_missing(self, key: str) -> None:
        self.faults.add(self.at, f"{self.path or self._table} has no {key}", field=self.field(key))

    # -- scalars ---------------------------------------------------------------------------------------------------------------

    def text(self, key: str, default: str = "") -> str:
        found = self.get(key)
        if found is None:
            return default
        if not found.is_scalar or isinstance(found.value, bool):
            self.report_invalid(key, f"takes a text, not {found.type_text}")
            return default
        return found.text

    def choice(self, key: str, choices: Collection[str], default: str = "") -> str:
        found = self.text(key)
        if not found:
            return default
        if found not in choices:
            report_unknown_value(self.at.mapping[key], key, choices, field=self.field(key), faults=self.faults)
            return default
        return found

    def count(self, key: str, default: int, *, least: int = 0) -> int:
        found = self.get(key)
        if found is None:
            return default
        return parse_count(found, field=self.field(key), faults=self.faults, least=least, default=default)

    def number(self, key: str, default: int) -> int:
        found = self.get(key)
        if found is None:
            return default
        if not isinstance(found.value, int) or isinstance(found.value, bool) or abs(found.value) >= 2**31:
            self.report_invalid(key, f"takes a whole number, not {found.type_text}")
            return default
        return found.value

    def fraction(self, key: str) -> float:
        found = self.get(key)
        if found is None:
            return 0.0
        if isinstance(found.value, bool) or not isinstance(found.value, int | float) or not 0 <= found.value <= 1:
            self.report_invalid(key, f"takes a fraction from 0 to 1, not {found.type_text}")
            return 0.0
        return float(found.value)

    def boolean(self, key: str, *, default: bool) -> bool:
        found = self.get(key)
        if found is None:
            return default
        if not isinstance(found.value, bool):
            self.report_invalid(key, f"takes true or false, not {found.type_text}")
            return default
        return found.value

    def duration(self, key: str, default: float | None = None, *, signed: bool = False) -> float | None:
        found = self.get(key)
        if found is None:
            return default
        return parse_duration(found, field=self.field(key), faults=self.faults, signed=signed, default=default)

    # -- lists and mappings ----------------------------------------------------------------------------------------------------

    def items(self, key: str) -> Iterator[tuple[str, YamlValue]]:
        """The items of a list with their paths; a single value is a list of one."""
        found = self.get(key)
        if found is None:
            return
        if not found.is_list:
            yield self.field(key), found
        for i, item in enumerate(found.items):
            yield f"{self.field(key)}[{i}]", item

    def entries(self, key: str) -> Iterator[tuple[YamlValue, YamlValue]]:
        """Keys and values of a mapping."""
        found = self.get(key)
        if found is None:
            return
        if not found.is_mapping:
            self.report_invalid(key, f"takes a mapping, not {found.type_text}")
        for name, value in found.mapping.items():
            yield found.keys[name], value

    def expanded_names(self, key: str) -> list[tuple[str, YamlValue]]:
        """Names, alone or in a list, with ranges expanded; each with its position."""
        return [word for path, item in self.items(key) for word in parse_names(item, field=path, faults=self.faults)]

    def amounts(self, key: str) -> tuple[tuple[str, str], ...]:
        found = self.get(key)
        return () if found is None else parse_amounts(found, field=self.field(key), faults=self.faults)

    def string_map(self, key: str) -> dict[str, str]:
        """A mapping from text to text; numbers and booleans are taken as written."""
        string_map: dict[str, str] = {}
        for name, value in self.entries(key):
            if value.is_scalar and value.value is not None:
                string_map[name.text] = value.text
            else:
                self.faults.add(value, f"{self.field(key)}.{name.text} takes a text, not {value.type_text}", field=self.field(key))
        return string_map

    def mapping(self, key: str) -> dict[str, object]:
        """A mapping that is part of a Kubernetes manifest, as it is."""
        found = self.get(key)
        if found is None:
            return {}
        plain = found.plain()
        if not isinstance(plain, dict):
            self.report_invalid(key, f"takes a mapping, not {found.type_text}")
            return {}
        return plain


def report_unknown_key(at: YamlValue, *, table: str, field: str, faults: InputFaults, what: str = "key") -> None:
    """The fault names the present key where the key is a retired one."""
    present = retired_keys(table).get(at.text)
    if present is None:
        faults.unknown(at, what, key_names(table), field=field)
    else:
        faults.add(at, f"{at.text!r} is now {present!r}", field=field, suggestion=present)


def report_unknown_value(at: YamlValue, key: str, choices: Collection[str], *, field: str, faults: InputFaults) -> None:
    present = RETIRED_VALUES.get(key, {}).get(at.text)
    if present is None:
        faults.unknown(at, key, choices, field=field)
    else:
        faults.add(at, f"{field}: {at.text!r} is now {present!r}", field=field, suggestion=present)


def parse_count(found: YamlValue, *, field: str, faults: InputFaults, least: int = 0, default: int = 0) -> int:
    value = found.value
    if not isinstance(value, int) or isinstance(value, bool):
        faults.add(found, f"{field}: takes a whole number, not {found.type_text}", field=field)
        return default
    if not least <= value <= MAX_COUNT:
        bound = f"below {least}" if value < least else f"above {MAX_COUNT}"
        faults.add(found, f"{field}: {value} is {bound}", field=field, suggestion=str(max(least, min(value, MAX_COUNT))))
        return default
    return value


def parse_duration(found: YamlValue, *, field: str, faults: InputFaults, signed: bool = False, default: D) -> float | D:
    if not found.is_scalar or isinstance(found.value, bool):
        faults.add(found, f"{field}: takes a duration such as 90s, not {found.type_text}", field=field)
        return default
    return parse_scalar(found, lambda text: duration(text, signed=signed), field=field, faults=faults, default=default)


def parse_names(found: YamlValue, *, field: str, faults: InputFaults) -> list[tuple[str, YamlValue]]:
    if not found.is_scalar or isinstance(found.value, bool) or found.value is None:
        faults.add(found, f"{field}: takes a name, not {found.type_text}", field=field)
        return []
    return [(word, found) for word in parse_scalar(found, expand_names, field=field, faults=faults, default=())]


def parse_amounts(found: YamlValue, *, field: str, faults: InputFaults) -> tuple[tuple[str, str], ...]:
    """Resources by their full names, each with its quantity as written."""
    if not found.is_mapping:
        faults.add(found, f"{field}: takes a mapping such as {{cpu: 4}}, not {found.type_text}", field=field)
    amounts: dict[str, str] = {}
    for short, value in found.mapping.items():
        name, place = resource_name(short), f"{field}.{short}"
        if not value.is_scalar or value.value is None or isinstance(value.value, bool):
            faults.add(value, f"{place}: takes a quantity, not {value.type_text}", field=place)
            continue
        text = parse_scalar(value, partial(quantity, name), field=place, faults=faults, default=None)
        if text is not None:
            amounts[name] = text
    return tuple(sorted(amounts.items()))


def parse_scalar(found: YamlValue, read: Callable[[str], T], *, field: str, faults: InputFaults, default: D) -> T | D:
    """The result of `read`; a bad literal is a fault, and the default is returned."""
    try:
        return read(found.text)
    except BadLiteral as bad:
        faults.add(found, f"{field}: {bad}", field=field, suggestion=bad.suggestion)
        return default


def require_known_name(found: YamlValue, word: str, what: str, choices: Iterable[str], *, field: str, faults: InputFaults) -> bool:
    """Whether the name exists. A fault suggests the nearest one."""
    choices = list(choices)
    if word in choices:
        return True
    close = nearest(word, choices)
    known = "" if close or not choices else f"; known: {', '.join(sorted(choices)[:10])}"
    faults.add(found, f"{field}: there is no {what} {word!r}{known}", field=field, suggestion=close)
    return False


def parse_run_span(at: YamlValue, *, path: str, faults: InputFaults) -> tuple[float, float]:
    """`{for: 2h, every: 10s}`: the time that passes, and the time from one cycle to the next."""
    fields = FieldReader(at, table="run", path=path, faults=faults)
    if "for" not in fields:
        fields.report_missing("for")
    every = fields.duration("every", DEFAULT_CYCLE_INTERVAL_S) or 0.0
    if every <= 0:
        fields.report_invalid("every", "must be above zero", suggestion="10s")
    return fields.duration("for", 0.0) or 0.0, max(every, 0.001)
