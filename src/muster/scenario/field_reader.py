"""Reads values of a scenario file and checks keys against their table. Faults are collected, never raised here.

A reader returns the default where it finds a fault, so that the rest of the file is still read and all faults are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeVar

from muster.literals import BadLiteral, duration, expand_names, quantity, resource_name
from muster.scenario.key_tables import KEY_TABLES, RETIRED_KEYS, RETIRED_VALUES
from muster.yaml_positions import InputFaults, YamlValue, nearest

T = TypeVar("T")
D = TypeVar("D")

MAX_COUNT = 1_000_000
_NAME = (str, int, float)
_TEXT = (*_NAME, type(None))
_MAPPING = (dict,)
DEFAULT_CYCLE_INTERVAL_S = 10.0
"""The time from one cycle to the next, unless the scenario sets it."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value and its path in the file, such as `gangs[2].pods`. A key without a value is absent and reads as the default."""

    at: YamlValue
    path: str
    faults: InputFaults
    is_absent: bool = False

    def report(self, message: str, *, suggestion: str = "") -> None:
        self.faults.add(self.at, f"{self.path}: {message}", field=self.path, suggestion=suggestion)

    def child(self, at: YamlValue, key: str) -> Field:
        return Field(at, f"{self.path}.{key}" if self.path else key, self.faults)

    # -- scalars ---------------------------------------------------------------------------------------------------------------

    def text(self, default: str = "") -> str:
        return self.at.text if self._has(_TEXT, "a text") else default

    def choice(self, choices: Collection[str], default: str = "", *, what: str = "") -> str:
        """One of these texts. `what` is the key whose values they are; the last one of the path if empty."""
        what = what or self.path.rpartition(".")[2]
        if self.report_retired(what):
            return default
        found = self.text()
        if found and found not in choices:
            self.faults.unknown(self.at, what, choices, field=self.path)
            return default
        return found or default

    def report_retired(self, key: str) -> bool:
        """Whether this is a former value of the key. The fault names the present one."""
        present = RETIRED_VALUES.get(key, {}).get(self.at.text)
        if present is not None:
            self.report(f"{self.at.text!r} is now {present!r}", suggestion=present)
        return present is not None

    def count(self, default: int = 0, *, least: int = 0) -> int:
        value = self.at.value
        if not self._has((int,), "a whole number") or not isinstance(value, int):
            return default
        if not least <= value <= MAX_COUNT:
            bound = f"below {least}" if value < least else f"above {MAX_COUNT}"
            self.report(f"{value} is {bound}", suggestion=str(max(least, min(value, MAX_COUNT))))
            return default
        return value

    def number(self, default: int = 0) -> int:
        value, most = self.at.value, 2**31 - 1
        return value if self._has((int,), "a whole number", least=-most, most=most) and isinstance(value, int) else default

    def fraction(self) -> float:
        value = self.at.value
        is_given = self._has((int, float), "a fraction from 0 to 1", least=0, most=1)
        return float(value) if is_given and isinstance(value, int | float) else 0.0

    def boolean(self, *, default: bool) -> bool:
        return self.at.value is True if self._has((bool,), "true or false") else default

    def duration(self, default: D, *, signed: bool = False) -> float | D:
        if not self._has(_TEXT, "a duration such as 90s"):
            return default
        return self._literal(partial(duration, signed=signed), default)

    def _has(self, types: tuple[type, ...], what: str, *, least: float = -inf, most: float = inf) -> bool:
        """Whether there is a value. One of another type, or a number out of bounds, is a fault."""
        value = self.at.value
        is_valid = type(value) in types and (not isinstance(value, int | float) or least <= value <= most)
        if not is_valid and not self.is_absent:
            self.report(f"takes {what}, not {self.at.type_text}")
        return is_valid and not self.is_absent

    def _literal(self, read: Callable[[str], T], default: D) -> T | D:
        """The result of `read`; a bad literal is a fault, and the default is returned."""
        try:
            return read(self.at.text)
        except BadLiteral as bad:
            self.report(str(bad), suggestion=bad.suggestion)
            return default

    # -- lists and mappings ----------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[Field]:
        """The items of a list; a single value is a list of one."""
        if self.is_absent:
            return
        if not self.at.is_list:
            yield self
        for i, item in enumerate(self.at.items):
            yield Field(item, f"{self.path}[{i}]", self.faults)

    def entries(self) -> Iterator[tuple[Field, Field]]:
        """Keys and values of a mapping. A fault of a key is one of the mapping."""
        for name, value in self.at.mapping.items() if self._has(_MAPPING, "a mapping") else ():
            yield Field(self.at.keys[name], self.path, self.faults), self.child(value, name)

    def names(self) -> list[tuple[str, Field]]:
        """Names, alone or in a list, with ranges expanded; each with its position."""
        found: list[tuple[str, Field]] = []
        for item in self.items():
            if item._has(_NAME, "a name"):
                found.extend((word, item) for word in item._literal(expand_names, ()))
        return found

    def amounts(self) -> tuple[tuple[str, str], ...]:
        """Resources by their full names, each with its quantity as written."""
        amounts: dict[str, str] = {}
        for short, value in self.at.mapping.items() if self._has(_MAPPING, "a mapping such as {cpu: 4}") else ():
            entry, name = self.child(value, short), resource_name(short)
            if entry._has(_NAME, "a quantity") and (text := entry._literal(partial(quantity, name), None)) is not None:
                amounts[name] = text
        return tuple(sorted(amounts.items()))

    def string_map(self) -> dict[str, str]:
        """A mapping from text to text; numbers and booleans are taken as written."""
        string_map: dict[str, str] = {}
        for name, entry in self.entries():
            if entry.at.is_scalar and entry.at.value is not None:
                string_map[name.at.text] = entry.at.text
            else:
                self.faults.add(entry.at, f"{entry.path} takes a text, not {entry.at.type_text}", field=self.path)
        return string_map

    def mapping(self) -> dict[str, object]:
        """A mapping that is part of a Kubernetes manifest, as it is."""
        plain = self.at.plain() if self._has(_MAPPING, "a mapping") else {}
        assert isinstance(plain, dict)
        return plain

    # -- names that must exist -------------------------------------------------------------------------------------------------

    def require_known(self, word: str, what: str, choices: Iterable[str]) -> bool:
        """Whether the name exists. A fault suggests the nearest one."""
        choices = list(choices)
        if word in choices:
            return True
        close = nearest(word, choices)
        known = "" if close or not choices else f"; known: {', '.join(sorted(choices)[:10])}"
        self.report(f"there is no {what} {word!r}{known}", suggestion=close)
        return False

    def known_text(self, what: str, choices: Iterable[str]) -> str:
        """A text that is one of the names that exist, or empty."""
        found = self.text()
        return found if found and self.require_known(found, what, choices) else ""

    def report_unknown_key(self, table: str, *, what: str = "key") -> None:
        """This key is not in the table. The fault names the present key where it is a retired one."""
        present = RETIRED_KEYS.get(table, {}).get(self.at.text)
        if present is None:
            self.faults.unknown(self.at, what, KEY_TABLES[table], field=self.path)
        else:
            self.faults.add(self.at, f"{self.at.text!r} is now {present!r}", field=self.path, suggestion=present)


class FieldReader:
    """One mapping, key by key, against its table. `is_extra_key` allows keys that are not in it."""

    def __init__(self, field: Field, *, table: str, is_extra_key: Callable[[str], bool] | None = None) -> None:
        self.field = field
        self._values = field.at.mapping
        self._title = field.path or table
        if not field.at.is_mapping:
            field.faults.add(field.at, f"{self._title} takes a mapping, not {field.at.type_text}", field=field.path)
        for key, mark in field.at.keys.items():
            if key not in KEY_TABLES[table] and not (is_extra_key is not None and is_extra_key(key)):
                field.child(mark, key).report_unknown_key(table)

    def __getitem__(self, key: str) -> Field:
        """The value; absent where it is empty, too."""
        field, found = self.field, self._values.get(key)
        path = f"{field.path}.{key}" if field.path else key
        return Field(found or field.at, path, field.faults, is_absent=found is None or found.value is None)

    def __contains__(self, key: str) -> bool:
        found = self._values.get(key)
        return found is not None and found.value is not None

    def require(self, *keys: str) -> None:
        for key in keys:
            if key not in self:
                missing = self[key]
                missing.faults.add(self.field.at, f"{self._title} has no {key}", field=missing.path)


def parse_run_span(at: Field) -> tuple[float, float]:
    """`{for: 2h, every: 10s}`: the time that passes, and the time from one cycle to the next."""
    fields = FieldReader(at, table="run")
    fields.require("for")
    every = fields["every"].duration(DEFAULT_CYCLE_INTERVAL_S)
    if every <= 0:
        fields["every"].report("must be above zero", suggestion="10s")
    return fields["for"].duration(0.0), max(every, 0.001)
