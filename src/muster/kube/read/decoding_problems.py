"""The invalid fields of one object: which field, which value, what to write instead."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from muster.model.pod import Problem

MAX_VALUE_LENGTH = 100
MAX_PROBLEMS = 20


class Problems:
    """The first problems of one object; the rest is only counted, so that a hostile object needs little memory."""

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
        return (*self._found, Problem("", f"{self._omitted} more fields of this object are invalid"))


def excerpt(value: object) -> str:
    """A value for a message, at most `MAX_VALUE_LENGTH` characters and quotes."""
    if isinstance(value, str):
        return repr(value[:MAX_VALUE_LENGTH])
    return _SHORT_REPR.repr(value)[:MAX_VALUE_LENGTH]


class _ShortRepr(reprlib.Repr):
    """Shortens nested values. Python refuses to format integers of thousands of digits."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 256 else f"a number of {x.bit_length()} bits"


_SHORT_REPR = _ShortRepr()
