"""Collects what is wrong with one object, in words for its owner: which field, which value, what to write instead."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from muster.model.pod import Problem

MAX_VALUE_LENGTH = 100
MAX_PROBLEMS = 20


class Problems:
    """The first problems of one object; the rest are only counted, so that a hostile object stays small."""

    __slots__ = ("_found", "_omitted")

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._omitted = 0

    def add(self, field: str, *, value: object, advice: str, lost: bool = False) -> None:
        self.extend((Problem(field[: 2 * MAX_VALUE_LENGTH], f"{excerpt(value)} {advice}", lost),))

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if len(self._found) < MAX_PROBLEMS:
                self._found.append(problem)
            else:
                self._omitted += 1

    def all(self) -> tuple[Problem, ...]:
        if not self._omitted:
            return tuple(self._found)
        return (*self._found, Problem("", f"{self._omitted} more fields of this object are bad"))


def excerpt(value: object) -> str:
    """A value as a person recognises it, never longer than `MAX_VALUE_LENGTH` characters and its quotes."""
    if isinstance(value, str):
        return repr(value[:MAX_VALUE_LENGTH])
    return _SHORT_REPR.repr(value)[:MAX_VALUE_LENGTH]


class _ShortRepr(reprlib.Repr):
    """Shortens nested values. Python refuses to write out numbers of thousands of digits; nobody would read them."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 256 else f"a number of {x.bit_length()} bits"


_SHORT_REPR = _ShortRepr()
