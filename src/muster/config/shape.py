"""Is this a plugin? What somebody else's class must have to take part, checked against the hooks themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from muster.engine import hooks
from muster.yaml_marks import nearest

# A plugin that has only these changes nothing.
_NO_SAY = ("prepare", "blame", "minds")


@dataclass(frozen=True, slots=True)
class Hook:
    """One method that the engine calls. `beside` are the other members that it is of no use without."""

    name: str
    positional: tuple[str, ...]
    named: tuple[str, ...]
    beside: tuple[str, ...]

    @property
    def parameters(self) -> str:
        return ", ".join((*self.positional, *(["*", *self.named] if self.named else ())))


@cache
def all_hooks() -> Mapping[str, Hook]:
    """Every hook, as the engine declares it."""
    found: dict[str, Hook] = {}
    for part in vars(hooks).values():
        if not (inspect.isclass(part) and part.__module__ == hooks.__name__ and getattr(part, "_is_protocol", False)):
            continue
        methods = {name: value for name, value in vars(part).items() if inspect.isfunction(value) and not name.startswith("_")}
        values = [name for name, value in vars(part).items() if isinstance(value, property)]
        for name, method in methods.items():
            beside = tuple(other for other in (*values, *methods) if other != name)
            _, *parameters = inspect.signature(method).parameters.values()
            named = tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
            found[name] = Hook(name, tuple(each.name for each in parameters if each.name not in named), named, beside)
    return found


def hooks_of(plugin: object) -> list[Hook]:
    return [hook for name, hook in all_hooks().items() if hasattr(plugin, name)]


def flaws(plugin: object) -> list[str]:
    """What keeps an object from being a plugin, each to be read after its name."""
    return [*_of_name(plugin), *_of_hooks(plugin)]


def _of_name(plugin: object) -> Iterator[str]:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        yield f"has no name: give it an attribute `name` that is a text{'' if name is None else f', not {name!r}'}"


def _of_hooks(plugin: object) -> Iterator[str]:
    present = hooks_of(plugin)
    if not [hook for hook in present if hook.name not in _NO_SAY]:
        yield _no_hook(plugin)
    for hook in present:
        yield from _of_hook(plugin, hook)


def _no_hook(plugin: object) -> str:
    known = all_hooks()
    for method in sorted(name for name in dir(plugin) if not name.startswith("_")):
        near = nearest(method, known)
        if near and near not in _NO_SAY:
            return f"has no hook, so it would never be asked. It has {method!r}: did you mean {near!r}?"
    return f"has no hook, so it would never be asked; it needs one of {', '.join(name for name in known if name not in _NO_SAY)}"


def _of_hook(plugin: object, hook: Hook) -> Iterator[str]:
    method = getattr(plugin, hook.name)
    wanted = f"`{hook.name}` must be a method that takes ({hook.parameters})"
    if not callable(method):
        yield f"is no plugin: {wanted}, not {type(method).__name__}"
        return
    signature = inspect.signature(method)
    try:
        signature.bind(*hook.positional, **dict.fromkeys(hook.named))
    except TypeError:
        yield f"is no plugin: {wanted}, not {signature.replace(return_annotation=signature.empty)}"
    if inspect.iscoroutinefunction(method):
        yield f"is no plugin: {wanted}, not an async one"
    missing = [name for name in hook.beside if not hasattr(plugin, name)]
    if missing:
        yield f"is no plugin: `{hook.name}` is of no use without `{'`, `'.join(missing)}`"
    weight = getattr(plugin, "weight", None) if "weight" in hook.beside and not missing else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
        yield f"is no plugin: its `weight` must be a number of at least 0, not {weight!r}"
