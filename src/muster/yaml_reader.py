"""Reads YAML with positions: what Kubernetes tools read, without what is nearly always a mistake.

Refused are a key that is given twice, a key that YAML reads as a boolean, and an alias that contains itself.

PyYAML parses, resolves tags and gives the marks. Its composer and constructor are not used: they recurse without a bound, keep the
last of two equal keys, expand aliases without a limit, and read `1:30` as a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

from muster.yaml_positions import InputError, InputFault, InputFaults, Scalar, YamlValue, quoted

# More than this after all aliases are followed is no file that a person wrote.
MAX_VALUES = 2_000_000
MAX_NESTING = 100
_TO_LINE_END = 10_000


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
