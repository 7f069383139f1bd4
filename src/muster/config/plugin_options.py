"""Options of plugins: what a class takes by its type hints, and how a policy file writes it."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from muster.config.retired_names import OPTIONS, is_retired
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, is_resource_name, short_name
from muster.yaml_positions import InputFaults, YamlValue, nearest, quoted

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
    minimum: float | None = None
    resources: bool = False
    """Its keys are names of resources."""

    @property
    def type_text(self) -> str:
        """What may be written, in words."""
        return _type_text(self.type)


class BadOptions(Exception):
    """A plugin with an option that no policy file could write."""


@lru_cache(maxsize=256)
def options_of(make: Callable[..., object]) -> tuple[Option, ...]:
    """What a plugin's class can be given, in its own order. The name of a plugin is no option."""
    try:
        hints = get_type_hints(make if dataclasses.is_dataclass(make) else make.__init__)
        parameters = inspect.signature(make).parameters
    except (NameError, TypeError, AttributeError, ValueError) as error:
        raise BadOptions(f"does not say what options it takes: {error}") from error
    fields = {field.name: field for field in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else {}
    found: list[Option] = []
    for name, parameter in parameters.items():
        if name == "name" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name not in hints or not _type_text(hints[name]):
            raise BadOptions(f"has an option {name} of a type that no policy file can write: {hints.get(name, 'none is given')}")
        default, declared = parameter.default, fields.get(name)
        if declared is not None and declared.default_factory is not dataclasses.MISSING:
            default = declared.default_factory()
        written = declared.metadata if declared is not None else {}
        more = {key: written[key] for key in ("doc", "minimum", "resources") if key in written}
        found.append(Option(camel_case(name), name, hints[name], default, **more))
    return tuple(found)


def camel_case(name: str) -> str:
    """`default_permit_wait_s` in Python is `defaultPermitWaitSeconds` in a file."""
    first, *rest = (f"{name[:-2]}_seconds" if name.endswith("_s") else name).split("_")
    return first + "".join(word.capitalize() for word in rest)


def read_options(
    make: Callable[..., object], name: YamlValue, given: YamlValue, faults: InputFaults, *, field: str
) -> dict[str, object] | None:
    """The arguments for a plugin's class; None, and the faults, if they cannot be read."""
    try:
        known = {option.key: option for option in options_of(make)}
    except BadOptions as error:
        faults.add(name, f"plugin {name.text} {error}", field=field)
        return None
    before = len(faults)
    if given.value is not None and not given.is_mapping:
        faults.add(given, f"the options of plugin {name.text} must be a mapping, not {given.type_text}", field=field)
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
            faults.add(
                name, f"plugin {name.text} needs the option {option.key} ({option.type_text})", field=f"{field}.{option.key}"
            )
    return read if len(faults) == before else None


def _unknown_option(plugin: str, at: YamlValue, known: list[str], faults: InputFaults, *, field: str) -> None:
    if is_retired(at, f"option of plugin {plugin}:", OPTIONS.get(plugin, {}), faults, field=field):
        return
    if known:
        faults.unknown(at, f"option of plugin {plugin}:", known, field=field)
    else:
        faults.add(at, f"unknown option {quoted(at.text)}: plugin {plugin} has no options", field=field)


def read_value(given: YamlValue, option: Option, faults: InputFaults, *, field: str) -> object:
    """The value of an option, checked. Faults are recorded; the value is of no use then."""
    return _ValueReader(option, faults).read(given, option.type, field)


class _ValueReader:
    """Reads one option by its type."""

    def __init__(self, option: Option, faults: InputFaults) -> None:
        self._option, self._faults = option, faults

    def read(self, given: YamlValue, wanted: Any, field: str) -> object:
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

    def _scalar(self, given: YamlValue, wanted: type, field: str) -> object:
        value = given.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        fits = (
            is_number if wanted is float else isinstance(value, int) and is_number if wanted is int else isinstance(value, wanted)
        )
        if not fits:
            self._add_type_fault(given, _type_text(wanted), field)
        elif isinstance(value, int | float) and is_number:
            self._check_minimum(given, value, field)
        return float(value) if fits and isinstance(value, int) and wanted is float else value

    def _check_minimum(self, given: YamlValue, value: float, field: str) -> None:
        minimum = self._option.minimum
        if minimum is not None and value < minimum:
            self._faults.add(given, f"{field.rsplit('.', 1)[-1]} must be at least {minimum:g}, not {given.text}", field=field)

    def _choice(self, given: YamlValue, choices: Mapping[str, object], field: str) -> object:
        if given.is_scalar and given.text in choices:
            return choices[given.text]
        if given.is_scalar and given.value is not None:
            self._faults.unknown(given, f"{field.rsplit('.', 1)[-1]}:", choices, field=field)
        else:
            self._add_type_fault(given, f"one of {', '.join(choices)}", field)
        return None

    def _items(self, given: YamlValue, wanted: Any, field: str) -> Iterator[object]:
        if not given.is_list:
            self._add_type_fault(given, _type_text(self._option.type), field)
        for i, item in enumerate(given.items):
            yield self.read(item, wanted, f"{field}[{i}]")

    def _entries(self, given: YamlValue, wanted: Any, field: str) -> Iterator[tuple[str, object]]:
        if not given.is_mapping:
            self._add_type_fault(given, _type_text(self._option.type), field)
        elif self._option.resources and not given.mapping:
            self._faults.add(given, f"{field.rsplit('.', 1)[-1]} names no resource", field=field)
        for key, value in given.mapping.items():
            if self._option.resources:
                self._check_resource(given.keys[key], f"{field}.{key}")
            yield key, self.read(value, wanted, f"{field}.{key}")

    def _check_resource(self, at: YamlValue, field: str) -> None:
        word = at.text
        if is_resource_name(word):
            return
        same = [name for name in _KNOWN_RESOURCES if short_name(name) == word]
        self._faults.add(
            at, f"unknown resource {quoted(word)}", field=field, suggestion=same[0] if same else nearest(word, _KNOWN_RESOURCES)
        )

    def _add_type_fault(self, given: YamlValue, type_text: str, field: str) -> None:
        hint = " (write it in quotes)" if type_text == "a text" and given.is_scalar and given.value is not None else ""
        self._faults.add(given, f"{field.rsplit('.', 1)[-1]} must be {type_text}, not {given.type_text}{hint}", field=field)


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


def _type_text(wanted: Any) -> str:
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


def as_yaml(value: object) -> str:
    """As a policy file has it."""
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return str(value.value)
        case float():
            return f"{value:g}"
        case Mapping():
            return "{" + ", ".join(f"{key}: {as_yaml(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(as_yaml(each) for each in value) + "]"
    return "null" if value is None else str(value)
