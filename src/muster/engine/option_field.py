"""How a plugin, or the policy itself, declares an option: its default, what it means, and what it may be. Policies are read and
documented by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

T = TypeVar("T")


def option(default: T | Callable[[], T], doc: str, *, minimum: float | None = None, resources: bool = False) -> T:
    """An option of a dataclass. A default that is a function is called for every plugin made.

    `minimum` is the smallest number that makes sense, for a number or for each value of a mapping; `resources`: the keys of a
    mapping are names of resources.
    """
    metadata = {"doc": doc, "minimum": minimum, "resources": resources}
    if callable(default):
        made: T = field(default_factory=default, metadata=metadata)
    else:
        made = field(default=default, metadata=metadata)
    return made
