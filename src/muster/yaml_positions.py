"""YAML with positions: every value has its line and column, so that an error can point at it.

Reads what Kubernetes tools read, and refuses what is nearly always a mistake: a key that is given twice, a key that YAML reads as a
boolean, an alias that contains itself. It does not interpret values; readers of policies and scenarios do, and collect faults in
`InputFaults`, so that all are reported at once.

PyYAML parses, resolves tags and gives the marks. Its composer and constructor are not used: they recurse without a bound, keep the
last of two equal keys, expand aliases without a limit, and read `1:30` as a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import yaml

from muster.model.printable_text import printable

Scalar = str | int | float | bool | None

# More than this after all aliases are followed is no file that a person wrote.
MAX_VALUES = 2_000_000
MAX_NESTING = 100
_TO_LINE_END = 10_000
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


def read_yaml(text: str, *, file: str, faults: InputFaults | None = None) -> YamlValue:
    """The one document of a YAML text. An empty text is a YamlValue None.

    A caller that goes on to check the document gives its `faults`, so that bad keys are reported together with the rest. A text
    that is no YAML at all is an InputError either way.
    """
    found = InputFaults(file) if faults is None else faults
    documents = _read_documents(text, found)
    if len(documents) > 1:
        found.add(documents[1], "only one YAML document is read here")
    if faults is None:
        found.raise_any()
    return documents[0] if documents else YamlValue(None)


def read_yaml_documents(text: str, *, file: str) -> list[YamlValue]:
    """All documents of a YAML text, without empty ones."""
    faults = InputFaults(file)
    documents = _read_documents(text, faults)
    faults.raise_any()
    return documents


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


# -- from events to values ---------------------------------------------------------------------------------------------------------


def _read_documents(text: str, faults: InputFaults) -> list[YamlValue]:
    try:
        return _EventReader(text, faults).documents()
    except yaml.MarkedYAMLError as error:
        raise InputError([_syntax_fault(error, text, file=faults.file)]) from error
    except yaml.reader.ReaderError as error:
        raise InputError([_encoding_fault(error, text, file=faults.file)]) from error


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_SPECIAL_FLOATS = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


class _EventReader:
    """Builds values straight from the parser's events: PyYAML's own composer has no bound on nesting."""

    def __init__(self, text: str, faults: InputFaults) -> None:
        self._faults = faults
        self._events = yaml.parse(text, Loader=_LOADER)
        self._tags = yaml.resolver.Resolver()
        self._anchors: dict[str, tuple[YamlValue, int] | None] = {}
        """Values and their sizes by anchor; None while the value is still being read."""

    def documents(self) -> list[YamlValue]:
        found: list[YamlValue] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                found.append(self._value(next(self._events), depth=0)[0])
        return [document for document in found if document.value is not None]

    def _value(self, event: yaml.Event, *, depth: int) -> tuple[YamlValue, int]:
        """The value that begins with this event, and how many values it stands for once aliases are followed."""
        if depth > MAX_NESTING:
            raise self._abort(event, f"nested more than {MAX_NESTING} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.MappingStartEvent):
            found = self._mapping(event, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            found = self._list(event, depth)
        else:
            assert isinstance(event, yaml.ScalarEvent)
            found = self._scalar(event), 1
        if found[1] > MAX_VALUES:
            raise self._abort(event, f"more than {MAX_VALUES} values once all aliases are followed")
        if anchor is not None:
            self._anchors[anchor] = found
        return found

    def _alias(self, event: yaml.AliasEvent) -> tuple[YamlValue, int]:
        anchor = str(event.anchor)
        found = self._anchors.get(anchor)
        if found is not None:
            return found
        known = anchor in self._anchors
        raise self._abort(event, "an alias may not contain itself" if known else f"no anchor &{anchor} comes before this alias")

    def _mapping(self, start: yaml.Event, depth: int) -> tuple[YamlValue, int]:
        entries: dict[str, YamlValue] = {}
        keys: dict[str, YamlValue] = {}
        merged: list[YamlValue] = []
        size = 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and self._tag(event) == f"{_TAG}merge"
            key = self._key(event, depth)
            value, weight = self._value(next(self._events), depth=depth + 1)
            size += weight
            if key is None:
                continue
            if is_merge:
                merged.extend(self._merge_bases(value))
            elif key.text in keys:
                self._faults.add(key, f"key {quoted(key.text)} is given twice, first on line {keys[key.text].line}", field=key.text)
            else:
                entries[key.text], keys[key.text] = value, key
        for base in merged:
            for name, entry in base.mapping.items():
                entries.setdefault(name, entry)
                keys.setdefault(name, base.keys[name])
        return _value_between(start, event, entries, keys=keys), size

    def _merge_bases(self, value: YamlValue) -> Iterator[YamlValue]:
        for base in value.items if value.is_list else (value,):
            if base.is_mapping:
                yield base
            else:
                self._faults.add(base, f"`<<` takes a mapping, not {base.type_text}")

    def _key(self, event: yaml.Event, depth: int) -> YamlValue | None:
        """A key, or None and a fault if it is none that a person can have meant."""
        if not isinstance(event, yaml.ScalarEvent):
            key, _ = self._value(event, depth=depth + 1)
            if key.is_scalar and key.text:
                return key
            self._faults.add(key, f"a key must be a text, not {key.type_text}")
            return None
        key = _value_between(event, event, event.value, text=event.value)
        match self._tag(event).removeprefix(_TAG):
            case "bool":
                self._faults.add(
                    key, f"YAML reads the key {key.text} as a boolean: write it in quotes, '{key.text}'", field=key.text
                )
                return None
            case "null":
                self._faults.add(key, "a key must be a text, not nothing")
                return None
        return key

    def _list(self, start: yaml.Event, depth: int) -> tuple[YamlValue, int]:
        items: list[YamlValue] = []
        size = 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item, weight = self._value(event, depth=depth + 1)
            items.append(item)
            size += weight
        return _value_between(start, event, tuple(items)), size

    def _scalar(self, event: yaml.ScalarEvent) -> YamlValue:
        text, tag = str(event.value), self._tag(event)
        try:
            return _value_between(event, event, _scalar(tag, text, plain=event.implicit[0]), text=text)
        except ValueError:
            at = _value_between(event, event, text, text=text)
            self._faults.add(at, f"{quoted(text)} is not what its tag {tag.removeprefix(_TAG)} says")
            return at

    def _tag(self, event: yaml.ScalarEvent) -> str:
        if event.tag is not None and event.tag != "!":
            return str(event.tag)
        return str(self._tags.resolve(yaml.ScalarNode, event.value, event.implicit))  # type: ignore[no-untyped-call]

    def _abort(self, event: yaml.Event, message: str) -> InputError:
        self._faults.add(_value_between(event, event, None), message)
        return InputError(self._faults)


def _value_between(
    start: yaml.Event,
    end: yaml.Event,
    value: Scalar | tuple[YamlValue, ...] | Mapping[str, YamlValue],
    *,
    text: str = "",
    keys: Mapping[str, YamlValue] | None = None,
) -> YamlValue:
    begins, ends = start.start_mark, end.end_mark
    assert begins is not None
    assert ends is not None
    # What ends on another line is underlined to the end of its first one; `render` cuts it there.
    width = max(1, ends.column - begins.column) if ends.line == begins.line else _TO_LINE_END
    return YamlValue(value, begins.line + 1, begins.column + 1, width, text, keys or {})


def _scalar(tag: str, text: str, *, plain: bool) -> Scalar:
    """The scalar that Kubernetes tools would read: times and `1:30` are texts, `1e3` is a number."""
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in ("true", "yes", "on")
        case "int" if ":" not in text:
            return _parse_int(text)
        case "float" if ":" not in text:
            return _SPECIAL_FLOATS[text.lower()] if text.lower() in _SPECIAL_FLOATS else float(text.replace("_", ""))
        case "str" if plain and _EXPONENT.match(text):
            return float(text)
    return text


def _parse_int(text: str) -> int:
    digits = text.replace("_", "")
    is_octal = digits.lstrip("+-").startswith("0") and digits.lstrip("+-").isdigit()
    return int(digits, 8) if is_octal else int(digits, 0)


def _syntax_fault(error: yaml.MarkedYAMLError, text: str, *, file: str) -> InputFault:
    mark = error.problem_mark or error.context_mark
    message = " ".join(part for part in (error.context, error.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    lines = text.splitlines()
    if line > len(lines):
        # What is missing at the end of a file is missing after its last line.
        line, column = max(1, len(lines)), len(lines[-1]) + 1 if lines else 1
    return InputFault(f"this is no YAML: {message}", file=file, line=line, column=column)


def _encoding_fault(error: yaml.reader.ReaderError, text: str, *, file: str) -> InputFault:
    before = text[: error.position]
    message = f"this is no YAML: {error.reason}"
    return InputFault(message, file=file, line=before.count("\n") + 1, column=len(before) - (before.rfind("\n") + 1) + 1)
