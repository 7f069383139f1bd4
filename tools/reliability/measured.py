"""A row of the page: what is tried, how much of it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """`reached`: how far it came, in words. `faults`: everything that went wrong; the first ones are shown."""

    reached: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    target: str
    amount: int
    """The target's amount."""
    measure: Callable[[int], Measured]
