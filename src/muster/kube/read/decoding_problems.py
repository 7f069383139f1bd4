"""The invalid fields of one object: which field, which value, what to write instead."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from muster.model.pod import Problem

T = TypeVar("T")

MAX_VALUE_LENGTH = 100
MAX_PROBLEMS = 20
_OMITTED = Problem("", "")


class Problems(msgspec.Struct, gc=False):
    """The problems of one object, and the field that is being read: `field.ErrorList` and `field.Path` of Kubernetes in one.

    `at`, `key` and `each` go to the fields below; problems that are added there belong to the same object. Only the first ones are
    kept and the rest is counted, so that a hostile object needs little memory.
    """

    field: str = ""
    _found: list[Problem] = []

    def at(self, field: str) -> Problems:
        return Problems(f"{self.field}.{field}" if self.field else field, self._found)

    def key(self, key: object) -> Problems:
        return Problems(f"{self.field}[{key}]", self._found)

    def each(self, field: str, items: Sequence[T]) -> Sequence[tuple[T, Problems]]:
        """The items of a list in a field below, each with its own field."""
        if not items:
            return ()
        path = self.at(field).field if field else self.field
        return [(item, Problems(f"{path}[{i}]", self._found)) for i, item in enumerate(items)]

    def label(self, name: str) -> Problems:
        return Problems(f"metadata.labels[{name}]", self._found)

    def annotation(self, name: str) -> Problems:
        return Problems(f"metadata.annotations[{name}]", self._found)

    def add(self, value: object, *, advice: str, lost: bool = False) -> None:
        self.extend((Problem(self.field[: 2 * MAX_VALUE_LENGTH], f"{excerpt(value)} {advice}", lost),))

    def add_unsupported(self, advice: str) -> None:
        """The field asks for what is not honoured."""
        self.extend((Problem(self.field[: 2 * MAX_VALUE_LENGTH], advice, unsupported=True),))

    def at_most(self, most: int, items: tuple[T, ...]) -> tuple[T, ...]:
        """The first of a list. Whoever lists more than anybody needs does not get a node: each cycle would look at all of them."""
        if len(items) > most:
            self.add_unsupported(f"has {len(items)} entries, and {most} are honoured at most, so the pod gets no node; use fewer")
        return items[:most]

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if problem.unsupported:
                # First, so that it is not among those that are left out: the pod must not be bound.
                self._found.insert(0, problem)
            else:
                self._found.append(problem if len(self._found) < MAX_PROBLEMS else _OMITTED)

    def all(self) -> tuple[Problem, ...]:
        omitted = len(self._found) - MAX_PROBLEMS
        if omitted <= 0:
            return tuple(self._found)
        return (*self._found[:MAX_PROBLEMS], Problem("", f"{omitted} more fields of this object are invalid"))


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
