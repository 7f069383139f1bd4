"""Values with positions, and what is wrong with them: every value that a person wrote has its line and column, so that an error can
point at it.

Nothing is interpreted here; readers of policies and scenarios do, and collect faults in `InputFaults`, so that all are reported at
once. `yaml_reader` makes these values of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from muster.model.printable_text import printable

Scalar = str | int | float | bool | None

_MAX_COLUMNS_SHOWN = 200
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Those that YAML counts."""


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value and its position. Lines and columns count from 1, as editors show them.

    `value` is a scalar, a tuple of YamlValue, or a mapping from text to YamlValue; `keys` has the positions of a mapping's keys.
    `text` is a scalar as it was written (`1.10`, `0x1F`, `no`), before YAML read a number or a boolean into it.
    """

    value: Scalar | tuple[YamlValue, ...] | Mapping[str, YamlValue]
    line: int = 1
    column: int = 1
    width: int = 1
    text: str = ""
    keys: Mapping[str, YamlValue] = field(default_factory=dict)

    @property
    def mapping(self) -> Mapping[str, YamlValue]:
        """Its entries; none if it is no mapping."""
        return self.value if isinstance(self.value, Mapping) else {}

    @property
    def items(self) -> tuple[YamlValue, ...]:
        """Its items; none if it is no list."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, Mapping)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, tuple)

    @property
    def is_scalar(self) -> bool:
        return not isinstance(self.value, Mapping | tuple)

    @property
    def type_text(self) -> str:
        """What it is, in words for a sentence."""
        match self.value:
            case Mapping():
                return "a mapping"
            case tuple():
                return "a list"
            case None:
                return "nothing"
            case bool():
                return f"the boolean {self.text or str(self.value).lower()}"
            case str():
                return f"the text {quoted(self.value)}"
            case _:
                return f"the number {self.text or self.value}"

    def plain(self) -> object:
        """The same without positions: dicts, lists and scalars."""
        match self.value:
            case Mapping() as entries:
                return {key: entry.plain() for key, entry in entries.items()}
            case tuple() as items:
                return [item.plain() for item in items]
            case scalar:
                return scalar


def yaml_value(value: object, *, line: int = 1, column: int = 1) -> YamlValue:
    """Wrap plain data that comes from no file: all of it has one position."""
    match value:
        case YamlValue():
            return value
        case Mapping():
            keys = {str(key): YamlValue(str(key), line, column, text=str(key)) for key in value}
            entries = {str(key): yaml_value(entry, line=line, column=column) for key, entry in value.items()}
            return YamlValue(entries, line, column, keys=keys)
        case list() | tuple():
            return YamlValue(tuple(yaml_value(item, line=line, column=column) for item in value), line, column)
        case None | str() | int() | float():
            return YamlValue(value, line, column, text="" if value is None else str(value))
    raise TypeError(f"{type(value).__name__} is nothing that YAML could hold")


# -- faults -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputFault:
    """One fault: its position, a message, and the nearest valid value. `field` is a path such as `plugins[2].weight`."""

    message: str
    file: str = ""
    line: int = 1
    column: int = 1
    width: int = 1
    field: str = ""
    value: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion and repr(self.suggestion) not in self.message else ""
        return f"{self.file}:{self.line}: {self.message}{'.' if hint else ''}{hint}"

    def render(self, source: str = "") -> str:
        """The sentence, and below it the line before, the line itself and a caret line, if there is a source."""
        lines = _LINE_BREAK.split(source.rstrip("\r\n"))
        if not source or not 1 <= self.line <= len(lines) or self.column > _MAX_COLUMNS_SHOWN:
            return printable(str(self))
        lines = [line[:_MAX_COLUMNS_SHOWN].rstrip() for line in lines[: self.line]]
        at = lines[-1]
        digits = max(4, len(str(self.line)))
        numbers = [number for number in (self.line - 1, self.line) if number >= 1]
        shown_lines = [f"{number:>{digits}} | {_shown(lines[number - 1])}".rstrip() for number in numbers]
        start = self.column - 1
        indent = len(_shown(at[:start]))
        carets = "^" * max(1, len(_shown(at[: start + self.width])) - indent)
        return "\n".join([printable(str(self)), *shown_lines, f"{'':>{digits}} | {' ' * indent}{carets}"])


def _shown(source: str) -> str:
    """A part of a source line that begins where the line does, so that tabs are as wide as in the whole."""
    return printable(source.expandtabs(4))


class InputError(Exception):
    """A file that cannot be used, with all its faults, in their order in the file."""

    def __init__(self, faults: Iterable[InputFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def render(self, source: str = "") -> str:
        return "\n".join(fault.render(source) for fault in self.faults)


class InputFaults:
    """Collects the faults of one file, so that all are reported at once."""

    def __init__(self, file: str, error: Callable[[Iterable[InputFault]], InputError] = InputError) -> None:
        self.file = file
        self._error = error
        self._found: list[InputFault] = []

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[InputFault]:
        return iter(self._found)

    def add(self, at: YamlValue, message: str, *, field: str = "", suggestion: str = "") -> None:
        value = at.text if at.is_scalar else ""
        self._found.append(InputFault(message, self.file, at.line, at.column, at.width, field, value, suggestion))

    def unknown(self, at: YamlValue, what: str, choices: Iterable[str], *, field: str = "") -> None:
        """`at` names something that does not exist: a fault with the nearest one. `what` is a word such as `key` or `plugin`."""
        choices = list(choices)
        suggestion = nearest(at.text, choices)
        known = "" if suggestion or not choices else f"; known: {', '.join(sorted(choices))}"
        self.add(at, f"unknown {what} {quoted(at.text)}{known}", field=field, suggestion=suggestion)

    def raise_any(self) -> None:
        if self._found:
            raise self._error(sorted(self._found, key=lambda fault: (fault.line, fault.column)))


def nearest(word: str, choices: Iterable[str]) -> str:
    """The choice nearest to `word`, or empty. Case, `-` and `_` do not count."""
    known: dict[str, str] = {}
    for choice in choices:
        known.setdefault(_normalized(choice), choice)
    found = get_close_matches(_normalized(word), list(known), n=1, cutoff=0.6)
    return known[found[0]] if found else ""


def quoted(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _normalized(word: str) -> str:
    return re.sub(r"[-_. ]", "", word).lower()
