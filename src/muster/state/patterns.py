"""Regular expressions that cannot be made to take for ever: a name is read once, letter by letter, without ever going back.

Users write them (HyperNodes select nodes by them) for schedulers whose language matches so; Python's own would try exponentially
many ways through some of them. Known are letters, classes, groups, alternatives, repeats and anchors, as RE2 has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LONGEST = 10_000
MOST_STATES = 10_000
DEEPEST = 100
MOST_REPEATS = 1000
_FREE_WORK = 1_000_000
_WORK_A_NAME = 5_000

_ASCII = frozenset(map(chr, range(128)))
_DIGITS = frozenset("0123456789")
_WORD = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = frozenset(" \t\n\r\f\v")
_CLASSES = {
    **{"d": _DIGITS, "w": _WORD, "s": _SPACE},
    **{"D": _ASCII - _DIGITS, "W": _ASCII - _WORD, "S": _ASCII - _SPACE},
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_REPEATS = ("*", "+", "?", "{")
_ALL = 1 << 30


class BadPattern(ValueError):
    """No pattern, or one that asks too much. The message says why."""


class _Letter(NamedTuple):
    of: frozenset[str]


class _Anchor(NamedTuple):
    at_end: bool


class _Row(NamedTuple):
    parts: tuple[_Part, ...]


class _Either(NamedTuple):
    parts: tuple[_Part, ...]


class _Repeat(NamedTuple):
    part: _Part
    least: int
    most: int


_Part = _Letter | _Anchor | _Row | _Either | _Repeat


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names in which the pattern is found. Raises BadPattern."""
    names = tuple(names)
    machine = _Machine(_Reader(pattern).read())
    machine.work_left = _FREE_WORK + _WORK_A_NAME * len(names)
    return frozenset(name for name in names if machine.finds_in(name))


# --- Reading ------------------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise BadPattern(f"it is longer than {LONGEST} letters")
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> _Part:
        found = self._either()
        if self._at < len(self._text):
            raise BadPattern(f"there is no ( for the ) at position {self._at}")
        return found

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise BadPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _either(self) -> _Part:
        self._depth += 1
        if self._depth > DEEPEST:
            raise BadPattern(f"it is more than {DEEPEST} groups deep")
        rows = [self._row()]
        while self._peek() == "|":
            self._take()
            rows.append(self._row())
        self._depth -= 1
        return rows[0] if len(rows) == 1 else _Either(tuple(rows))

    def _row(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._single()))
        return _Row(tuple(parts))

    def _single(self) -> _Part:
        letter = self._take()
        if letter == "(":
            return self._group()
        if letter == "[":
            return _Letter(self._class())
        if letter == "\\":
            return _Letter(self._escaped())
        if letter in "*+?":
            raise BadPattern(f"there is nothing to repeat at position {self._at - 1}")
        if letter in "^$":
            return _Anchor(at_end=letter == "$")
        return _Letter(_ASCII if letter == "." else frozenset(letter))

    def _group(self) -> _Part:
        if self._peek() == "?":
            self._take()
            if self._take() != ":":
                raise BadPattern("of the groups that begin with (? only (?: is known")
        found = self._either()
        if self._peek() != ")":
            raise BadPattern("a ) is missing")
        self._take()
        return found

    def _repeated(self, part: _Part) -> _Part:
        if self._peek() not in _REPEATS:
            return part
        if isinstance(part, _Anchor):
            raise BadPattern(f"there is nothing to repeat at position {self._at}")
        found = _Repeat(part, *self._bounds())
        if self._peek() == "?":
            # How greedy it is makes no difference to whether it is found.
            self._take()
        if self._peek() in _REPEATS:
            raise BadPattern(f"there are two repeats in a row at position {self._at}")
        return found

    def _bounds(self) -> tuple[int, int]:
        if self._peek() != "{":
            return {"*": (0, _ALL), "+": (1, _ALL), "?": (0, 1)}[self._take()]
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if not (least.isascii() and least.isdigit()) or (most and not (most.isascii() and most.isdigit())):
            raise BadPattern(f"the {{ at position {self._at} says no number; write \\{{ for the letter")
        if len(least) > 4 or len(most) > 4 or max(int(least), int(most or 0)) > MOST_REPEATS:
            raise BadPattern(f"it repeats something more than {MOST_REPEATS} times")
        self._at = end + 1
        bounds = int(least), int(most) if most else _ALL if comma else int(least)
        if bounds[0] > bounds[1]:
            raise BadPattern(f"it repeats something at least {bounds[0]} and at most {bounds[1]} times")
        return bounds

    def _escaped(self) -> frozenset[str]:
        letter = self._take()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _CONTROLS:
            return frozenset(_CONTROLS[letter])
        if letter.isalnum():
            raise BadPattern(f"\\{letter} is not known")
        return frozenset(letter)

    def _class(self) -> frozenset[str]:
        negated = self._peek() == "^"
        if negated:
            self._take()
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            found |= self._span()
            first = False
        self._take()
        return _ASCII - found if negated else frozenset(found)

    def _span(self) -> frozenset[str]:
        """One letter of a class, or all from it to another one."""
        low = self._member()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return low
        self._take()
        high = self._member()
        if len(low) != 1 or len(high) != 1 or min(low) > min(high):
            raise BadPattern(f"the range that ends at position {self._at} is none")
        return frozenset(map(chr, range(ord(min(low)), min(ord(min(high)), 127) + 1))) | high

    def _member(self) -> frozenset[str]:
        letter = self._take()
        return self._escaped() if letter == "\\" else frozenset(letter)


# --- Matching -----------------------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Reads one of these letters and goes on to `then`; without letters it goes on to all of `then` at once, if it may here."""

    letters: frozenset[str] | None
    then: list[int]
    anchor: _Anchor | None = None


class _Machine:
    """All ways through the pattern at once."""

    def __init__(self, pattern: _Part) -> None:
        self.work_left = 0
        self._states: list[_State] = []
        self._done = self._add(_State(None, []))
        self._start = self._build(pattern, self._done)

    def finds_in(self, name: str) -> bool:
        ready: set[int] = set()
        for at in range(len(name) + 1):
            # It may begin at any letter.
            ready = self._reached({*ready, self._start}, is_start=at == 0, is_end=at == len(name))
            if self._done in ready:
                return True
            if at < len(name):
                ready = self._after(ready, name[at])
        return False

    def _after(self, ready: set[int], letter: str) -> set[int]:
        found: set[int] = set()
        for number in ready:
            letters = self._states[number].letters
            if letters is not None and letter in letters:
                found.update(self._states[number].then)
        return found

    def _reached(self, seeds: set[int], *, is_start: bool, is_end: bool) -> set[int]:
        """All that can be reached without reading a letter."""
        found, waiting = set(seeds), list(seeds)
        while waiting:
            state = self._states[waiting.pop()]
            blocked = state.anchor is not None and not (is_end if state.anchor.at_end else is_start)
            if state.letters is not None or blocked:
                continue
            fresh = [number for number in state.then if number not in found]
            found.update(fresh)
            waiting.extend(fresh)
        self.work_left -= len(found)
        if self.work_left < 0:
            raise BadPattern("there are too many ways through it")
        return found

    # -- building --------------------------------------------------------------------------------------------------------------

    def _add(self, state: _State) -> int:
        if len(self._states) >= MOST_STATES:
            raise BadPattern("it is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, part: _Part, then: int) -> int:
        """Where to begin so that the part is read before `then`."""
        match part:
            case _Letter():
                return self._add(_State(part.of, [then]))
            case _Anchor():
                return self._add(_State(None, [then], part))
            case _Row():
                for each in reversed(part.parts):
                    then = self._build(each, then)
                return then
            case _Either():
                return self._add(_State(None, [self._build(each, then) for each in part.parts]))
            case _Repeat():
                return self._build_repeat(part, then)

    def _build_repeat(self, part: _Repeat, then: int) -> int:
        if part.most == _ALL:
            again = self._add(_State(None, [then]))
            self._states[again].then.append(self._build(part.part, again))
            then = again
        else:
            end = then
            for _ in range(part.most - part.least):
                then = self._add(_State(None, [end, self._build(part.part, then)]))
        for _ in range(part.least):
            then = self._build(part.part, then)
        return then
