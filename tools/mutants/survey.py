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
from tools.mutants.run import Functions, first_to_fail, in_copy, loaded_functions

ENDLESS = "no end"


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
            tests = [items[name] for name in self._tests(fault) if name in items]
            self._add(fault, self._first_to_notice(fault, tests, functions))

    def _first_to_notice(self, fault: Fault, tests: list[pytest.Item], functions: Functions) -> str:
        """A copy that dies has noticed the fault only if these tests pass without it."""
        most_s = 20 + 5 * sum(self._reach.seconds[test.nodeid] for test in tests)
        noticed = in_copy(partial(first_to_fail, tests, fault, functions), most_s=most_s)
        if noticed is None and in_copy(partial(first_to_fail, tests, None, functions), most_s=most_s) != "":
            raise SystemExit(f"tests fail without a fault, or use too much time or memory: {[test.nodeid for test in tests]}")
        return ENDLESS if noticed is None else noticed

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

    def _add(self, fault: Fault, test: str) -> None:
        self.results[fault] = test
        if test:
            self._noticed[fault.module][test] += 1
            self._before[fault.key] = test
            self._file.write_text(json.dumps(self._before, indent=0), encoding="utf-8")
        else:
            print(f"not noticed, executed by {len(self._reach.of(fault))} tests: {fault.key}", flush=True)


@cache
def _words(text: str) -> frozenset[str]:
    """Without their endings, so that `reservations` is in `test_a_reservation_is_lost`."""
    return frozenset(word[:6] for word in re.findall("[a-z]{4,}", text.lower()))
