"""Which tests are tried on which fault, and what came of it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from functools import cache, partial
from pathlib import Path

import pytest

from tools.mutants.faults import Fault
from tools.mutants.reach import Reach
from tools.mutants.run import Functions, exchange_code, in_copy, loaded_functions, passes


class Survey:
    """Tries faults one by one. A test that noticed a fault in an earlier run is the first to be tried on it again."""

    def __init__(self, reach: Reach, noticed: Path, *, seconds: float) -> None:
        self.results: dict[Fault, str] = {}  # the test that noticed it, empty if none did
        self._reach = reach
        self._seconds = seconds
        self._file = noticed
        self._before: dict[str, str] = json.loads(noticed.read_text(encoding="utf-8")) if noticed.exists() else {}
        self._noticed: dict[str, Counter[str]] = defaultdict(Counter)
        self._thorough: dict[str, Counter[str]] = {}

    def try_all(self, faults: list[Fault], items: dict[str, pytest.Item]) -> None:
        functions = loaded_functions()
        for at, fault in enumerate(faults):
            if at % 20 == 0:
                print(f"{at}/{len(faults)} faults", flush=True)
            tests = self._tests(fault)
            noticed = in_copy(partial(_first_to_notice, fault, functions, items, tests), most_s=self._most_s(tests))
            self._add(fault, "no end" if noticed is None else noticed)

    def _tests(self, fault: Fault) -> list[str]:
        """As many as fit the time: first the one that noticed it before, then those that noticed faults of this module or speak of
        the same things, then those that execute most of the module."""
        noticed, seconds, words = self._noticed[fault.module], self._reach.seconds, _words(f"{fault.module} {fault.function}")
        if fault.module not in self._thorough:
            self._thorough[fault.module] = self._reach.thoroughness(fault.module)
        thorough, before = self._thorough[fault.module], self._before.get(fault.key)

        def promise(test: str) -> tuple[bool, int, float, str]:
            return (test != before, -noticed[test] - len(words & _words(test)), -thorough[test] / (0.5 + seconds[test]), test)

        chosen: list[str] = []
        left = self._seconds
        for test in sorted(self._reach.of(fault), key=promise):
            if not chosen or seconds[test] <= left:
                chosen.append(test)
                left -= seconds[test]
        return chosen

    def _most_s(self, tests: list[str]) -> float:
        return 20 + 5 * sum(self._reach.seconds[test] for test in tests)

    def _add(self, fault: Fault, test: str) -> None:
        self.results[fault] = test
        if test:
            self._noticed[fault.module][test] += 1
            self._before[fault.key] = test
            self._file.write_text(json.dumps(self._before, indent=0), encoding="utf-8")
        else:
            print(f"not noticed: {fault.key}", flush=True)


def _first_to_notice(fault: Fault, functions: Functions, items: dict[str, pytest.Item], tests: list[str]) -> str:
    exchange_code(fault, functions)
    return next((test for test in tests if test in items and not passes(items[test])), "")


@cache
def _words(text: str) -> frozenset[str]:
    """Without their endings, so that `reservations` is in `test_a_reservation_is_lost`."""
    return frozenset(word[:6] for word in re.findall("[a-z]{4,}", text.lower()))
