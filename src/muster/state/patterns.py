"""Regular expressions that users write (HyperNodes select nodes by them), matched by RE2: in time that grows with the name alone.

The schedulers that these objects were written for match as RE2 does; Python's `re` backtracks, and some patterns would take it
exponentially long. A pattern is searched for, not anchored: `^` and `$` anchor it.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2

MAX_LENGTH = 10_000
MAX_PROGRAM_SIZE = 10_000
"""Instructions of the compiled pattern: beyond that RE2 no longer keeps its states in memory and becomes slow."""
_MAX_REASON_LENGTH = 60


class BadPattern(ValueError):
    """No regular expression, or one that is too large. The message says why."""


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names in which the pattern is found. Raises BadPattern."""
    compiled = _compile(pattern)
    return frozenset(name for name in names if compiled.search(name) is not None)


def _compile(pattern: str) -> re2._Regexp:
    if len(pattern) > MAX_LENGTH:
        raise BadPattern(f"it is longer than {MAX_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_reason(error)) from error
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise BadPattern(f"it is too large: {compiled.programsize} instructions, at most {MAX_PROGRAM_SIZE} are allowed")
    return compiled


def _reason(error: re2.error) -> str:
    """RE2's own sentence, such as `missing ]: [`, cut where it repeats a long pattern."""
    (text,) = error.args
    reason: str = text.decode("utf-8", errors="replace")
    return reason if len(reason) <= _MAX_REASON_LENGTH else f"{reason[:_MAX_REASON_LENGTH]}..."
