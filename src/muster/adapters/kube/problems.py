"""Collects what is wrong with one object, in words for its owner: which field, which value, what to write instead."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from muster.model.pod import Problem

LONGEST_VALUE = 100
MOST_PROBLEMS = 20


class Problems:
    """The first problems of one object; the rest are only counted, so that a hostile object stays small."""

    __slots__ = ("_found", "_left_out")

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._left_out = 0

    def add(self, field: str, *, value: object, advice: str, lost: bool = False) -> None:
        self.extend((Problem(field[: 2 * LONGEST_VALUE], f"{excerpt(value)} {advice}", lost),))

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if len(self._found) < MOST_PROBLEMS:
                self._found.append(problem)
            else:
                self._left_out += 1

    def all(self) -> tuple[Problem, ...]:
        if not self._left_out:
            return tuple(self._found)
        return (*self._found, Problem("", f"{self._left_out} more fields of this object are bad"))


def excerpt(value: object) -> str:
    """A value as a person recognises it, never longer than `LONGEST_VALUE` characters and its quotes."""
    if isinstance(value, str):
        return repr(value[:LONGEST_VALUE])
    return _SHORT.repr(value)[:LONGEST_VALUE]


class _Short(reprlib.Repr):
    """Shortens nested values. Python refuses to write out numbers of thousands of digits; nobody would read them."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 256 else f"a number of {x.bit_length()} bits"


_SHORT = _Short()
