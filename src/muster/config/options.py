"""Options of plugins: what a class takes, as its type hints say it, and how a policy file writes it."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from muster.model.resources import CPU, GPU, MEMORY, PODS, short_name
from muster.yaml_marks import Faults, Marked, nearest, shown

REQUIRED = inspect.Parameter.empty
"""The default of an option that has none."""

_KNOWN_RESOURCES = (CPU, MEMORY, PODS, "ephemeral-storage", GPU, "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class Option:
    """`key` is how a policy file writes it, `field` how Python does."""

    key: str
    field: str
    type: Any
    default: object = REQUIRED
    doc: str = ""
    least: float | None = None
    resources: bool = False
    """Its keys are names of resources."""

    @property
    def words(self) -> str:
        """What may be written, in words."""
        return _words(self.type)


class BadOptions(Exception):
    """A plugin whose options no policy file could write."""


def options_of(make: Callable[..., object]) -> tuple[Option, ...]:
    """What a plugin's class can be given, in its own order. The name of a plugin is no option."""
    try:
        hints = get_type_hints(make if dataclasses.is_dataclass(make) else make.__init__)
        parameters = inspect.signature(make).parameters
    except (NameError, TypeError, AttributeError, ValueError) as error:
        raise BadOptions(f"does not say what options it takes: {error}") from error
    described: dict[str, Mapping[str, Any]] = (
        {field.name: field.metadata for field in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else {}
    )
    found: list[Option] = []
    for name, parameter in parameters.items():
        if name == "name" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name not in hints or not _words(hints[name]):
            raise BadOptions(f"has an option {name} of a type that no policy file can write: {hints.get(name, 'none is given')}")
        more = described.get(name, {})
        default = _default(make, name, parameter)
        found.append(
            Option(camel(name), name, hints[name], default, more.get("doc", ""), more.get("least"), more.get("resources", False))
        )
    return tuple(found)


def camel(name: str) -> str:
    """`default_wait_s` in Python is `defaultWaitSeconds` in a file."""
    first, *rest = (f"{name[:-2]}_seconds" if name.endswith("_s") else name).split("_")
    return first + "".join(word.capitalize() for word in rest)


def _default(make: Callable[..., object], name: str, parameter: inspect.Parameter) -> object:
    if dataclasses.is_dataclass(make):
        for field in dataclasses.fields(make):
            if field.name == name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def read_options(
    make: Callable[..., object], name: Marked, given: Marked, faults: Faults, *, field: str
) -> dict[str, object] | None:
    """The arguments for a plugin's class; None, and the faults, if they cannot be read."""
    try:
        known = {option.key: option for option in options_of(make)}
    except BadOptions as error:
        faults.add(name, f"plugin {name.text} {error}", field=field)
        return None
    before = len(faults)
    if given.value is not None and not given.is_mapping:
        faults.add(given, f"the options of plugin {name.text} must be a mapping, not {given.shape}", field=field)
    for key, at in given.keys.items():
        if key not in known:
            _unknown_option(name.text, at, list(known), faults, field=f"{field}.{key}")
    read = {
        known[key].field: read_value(value, known[key], faults, field=f"{field}.{key}")
        for key, value in given.mapping.items()
        if key in known
    }
    for option in known.values():
        if option.default is REQUIRED and option.key not in given.mapping:
            faults.add(name, f"plugin {name.text} needs the option {option.key} ({option.words})", field=f"{field}.{option.key}")
    return read if len(faults) == before else None


def _unknown_option(plugin: str, at: Marked, known: list[str], faults: Faults, *, field: str) -> None:
    if known:
        faults.unknown(at, f"option of plugin {plugin}:", known, field=field)
    else:
        faults.add(at, f"unknown option {shown(at.text)}: plugin {plugin} has no options", field=field)


def read_value(given: Marked, option: Option, faults: Faults, *, field: str) -> object:
    """The value of an option, checked. Faults are recorded; the value is of no use then."""
    return _Values(option, faults).read(given, option.type, field)


class _Values:
    """Reads one option by its type."""

    def __init__(self, option: Option, faults: Faults) -> None:
        self._option, self._faults = option, faults

    def read(self, given: Marked, wanted: Any, field: str) -> object:
        inner = _without_none(wanted)
        if inner is not wanted and given.value is None:
            return None
        origin, arguments = get_origin(inner), get_args(inner)
        if choices := _choices(inner):
            return self._choice(given, choices, field)
        if origin is not None and issubclass(origin, Mapping):
            return dict(self._entries(given, arguments[1], field))
        if origin is not None and issubclass(origin, Sequence):
            return tuple(self._items(given, arguments[0], field))
        return self._scalar(given, inner, field)

    def _scalar(self, given: Marked, wanted: type, field: str) -> object:
        value = given.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        fits = (
            is_number if wanted is float else isinstance(value, int) and is_number if wanted is int else isinstance(value, wanted)
        )
        if not fits:
            self._wrong(given, _words(wanted), field)
        elif isinstance(value, int | float) and is_number:
            self._check_least(given, value, field)
        return float(value) if fits and isinstance(value, int) and wanted is float else value

    def _check_least(self, given: Marked, value: float, field: str) -> None:
        least = self._option.least
        if least is not None and value < least:
            self._faults.add(given, f"{field.rsplit('.', 1)[-1]} must be at least {least:g}, not {given.text}", field=field)

    def _choice(self, given: Marked, choices: Mapping[str, object], field: str) -> object:
        if given.is_scalar and given.text in choices:
            return choices[given.text]
        if given.is_scalar and given.value is not None:
            self._faults.unknown(given, f"{field.rsplit('.', 1)[-1]}:", choices, field=field)
        else:
            self._wrong(given, f"one of {', '.join(choices)}", field)
        return None

    def _items(self, given: Marked, wanted: Any, field: str) -> Iterator[object]:
        if not given.is_list:
            self._wrong(given, _words(self._option.type), field)
        for i, item in enumerate(given.items):
            yield self.read(item, wanted, f"{field}[{i}]")

    def _entries(self, given: Marked, wanted: Any, field: str) -> Iterator[tuple[str, object]]:
        if not given.is_mapping:
            self._wrong(given, _words(self._option.type), field)
        elif self._option.resources and not given.mapping:
            self._faults.add(given, f"{field.rsplit('.', 1)[-1]} names no resource", field=field)
        for key, value in given.mapping.items():
            if self._option.resources:
                self._resource(given.keys[key], f"{field}.{key}")
            yield key, self.read(value, wanted, f"{field}.{key}")

    def _resource(self, at: Marked, field: str) -> None:
        """Resources of Kubernetes itself have plain names; all others have a domain before theirs."""
        word = at.text
        if word in _KNOWN_RESOURCES or "/" in word or word.startswith("hugepages-"):
            return
        same = [name for name in _KNOWN_RESOURCES if short_name(name) == word]
        self._faults.add(
            at, f"unknown resource {shown(word)}", field=field, suggestion=same[0] if same else nearest(word, _KNOWN_RESOURCES)
        )

    def _wrong(self, given: Marked, words: str, field: str) -> None:
        hint = " (write it in quotes)" if words == "a text" and given.is_scalar and given.value is not None else ""
        self._faults.add(given, f"{field.rsplit('.', 1)[-1]} must be {words}, not {given.shape}{hint}", field=field)


def _without_none(wanted: Any) -> Any:
    """`X | None` is X that may be left empty."""
    if get_origin(wanted) in (Union, types.UnionType):
        others = [each for each in get_args(wanted) if each is not type(None)]
        if len(others) == 1 and len(get_args(wanted)) == 2:
            return others[0]
    return wanted


_SCALARS: dict[object, tuple[str, str]] = {
    bool: ("true or false", "booleans"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
}


def _words(wanted: Any) -> str:
    """What a file may hold where this type is wanted; empty if no file can."""
    inner = _without_none(wanted)
    origin, arguments = get_origin(inner), get_args(inner)
    if inner in _SCALARS:
        return _SCALARS[inner][0]
    if choices := _choices(inner):
        return f"one of {', '.join(choices)}"
    if origin is None or not inspect.isclass(origin):
        return ""
    if issubclass(origin, Mapping) and arguments[0] is str:
        return f"a mapping of names to {_plural(arguments[1])}" if _plural(arguments[1]) else ""
    if issubclass(origin, Sequence) and arguments[1:] in ((), (Ellipsis,)):
        return f"a list of {_plural(arguments[0])}" if _plural(arguments[0]) else ""
    return ""


def _plural(wanted: Any) -> str:
    return _SCALARS[wanted][1] if wanted in _SCALARS else ", ".join(_choices(wanted))


def _choices(wanted: Any) -> dict[str, object]:
    """What may be written and what it stands for, for a type that is a choice; otherwise nothing."""
    if get_origin(wanted) is Literal:
        return {str(value): value for value in get_args(wanted)}
    if inspect.isclass(wanted) and issubclass(wanted, Enum):
        return {str(member.value): member for member in wanted}
    return {}
