"""Is this a plugin? What a class must have to be one, checked against the hooks themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from muster.config.retired_names import HOOKS
from muster.engine import hooks
from muster.model.topics import Topic
from muster.yaml_positions import nearest

# A plugin that has only these changes nothing.
_PASSIVE_HOOKS = ("prepare", "reasons", "applies_to")
# Their answers are kept until the rows, or a topic that the plugin declares, change.
_NODE_HOOKS = ("match", "prefer", "fit", "score")


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One method that the engine calls. `requires` are the other members that it is of no use without."""

    name: str
    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    requires: tuple[str, ...]

    @property
    def parameters(self) -> str:
        return ", ".join((*self.positional, *(["*", *self.keyword_only] if self.keyword_only else ())))


@cache
def protocols() -> Mapping[type, Mapping[str, Callable[..., object]]]:
    """The protocols of the hooks and the methods of each, as the engine declares them."""
    found = [
        part
        for part in vars(hooks).values()
        if inspect.isclass(part) and part.__module__ == hooks.__name__ and getattr(part, "_is_protocol", False)
    ]
    return {part: {name: method for name, method in vars(part).items() if _is_hook(name, method)} for part in found}


def _is_hook(name: str, method: object) -> bool:
    return inspect.isfunction(method) and not name.startswith("_")


@cache
def all_hooks() -> Mapping[str, HookSpec]:
    """Every hook, as the engine declares it."""
    found: dict[str, HookSpec] = {}
    for protocol, methods in protocols().items():
        values = [name for name, value in vars(protocol).items() if isinstance(value, property)]
        for name, method in methods.items():
            requires = tuple(other for other in (*values, *methods) if other != name)
            _, *parameters = inspect.signature(method).parameters.values()
            keyword_only = tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
            positional = tuple(each.name for each in parameters if each.name not in keyword_only)
            found[name] = HookSpec(name, positional, keyword_only, requires)
    return found


def hooks_of(plugin: object) -> list[HookSpec]:
    return [hook for name, hook in all_hooks().items() if hasattr(plugin, name)]


def plugin_errors(plugin: object) -> list[str]:
    """What keeps an object from being a plugin, each to be read after its name."""
    return [*_name_errors(plugin), *_hooks_errors(plugin), *_depends_errors(plugin)]


def _name_errors(plugin: object) -> Iterator[str]:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        yield f"has no name: give it an attribute `name` that is a text{'' if name is None else f', not {name!r}'}"


def _hooks_errors(plugin: object) -> Iterator[str]:
    present = hooks_of(plugin)
    retired = [f"has the method {old!r}, which is now the hook {new!r}" for old, new in HOOKS.items() if hasattr(plugin, old)]
    yield from retired
    if not retired and not [hook for hook in present if hook.name not in _PASSIVE_HOOKS]:
        yield _no_hook_error(plugin)
    for hook in present:
        yield from _hook_errors(plugin, hook)


def _no_hook_error(plugin: object) -> str:
    known = all_hooks()
    for method in sorted(name for name in dir(plugin) if not name.startswith("_")):
        near = nearest(method, known)
        if near and near not in _PASSIVE_HOOKS:
            return f"has no hook, so it would never be called. It has {method!r}: did you mean {near!r}?"
    hooks = ", ".join(name for name in known if name not in _PASSIVE_HOOKS)
    return f"has no hook, so it would never be called; it needs one of {hooks}"


def _hook_errors(plugin: object, hook: HookSpec) -> Iterator[str]:
    method = getattr(plugin, hook.name)
    wanted = f"`{hook.name}` must be a method that takes ({hook.parameters})"
    if not callable(method):
        yield f"is no plugin: {wanted}, not {type(method).__name__}"
        return
    signature = _signature(method)
    try:
        signature.bind(*hook.positional, **dict.fromkeys(hook.keyword_only))
    except TypeError:
        yield f"is no plugin: {wanted}, not {signature.replace(return_annotation=signature.empty)}"
    if inspect.iscoroutinefunction(method):
        yield f"is no plugin: {wanted}, not an async one"
    missing = [name for name in hook.requires if not hasattr(plugin, name)]
    if missing:
        yield f"is no plugin: `{hook.name}` is of no use without `{'`, `'.join(missing)}`"
    weight = getattr(plugin, "weight", None) if "weight" in hook.requires and not missing else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
        yield f"is no plugin: its `weight` must be a number of at least 0, not {weight!r}"


def _signature(method: Callable[..., object]) -> inspect.Signature:
    """Of a method as it is called. That of its function is kept: plugins are made again and again of few classes."""
    function = getattr(method, "__func__", None)
    return inspect.signature(method) if function is None else _signature_without_self(function)


@lru_cache(maxsize=1024)
def _signature_without_self(function: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _depends_errors(plugin: object) -> Iterator[str]:
    depends = getattr(plugin, "depends", ())
    if not isinstance(depends, tuple) or not all(isinstance(topic, Topic) for topic in depends):
        yield f"is no plugin: its `depends` must be a tuple of muster.model.topics.Topic, not {depends!r}"
    elif depends and not any(hasattr(plugin, hook) for hook in _NODE_HOOKS):
        yield f"is no plugin: `depends` is of no use without one of `{'`, `'.join(_NODE_HOOKS)}`"
