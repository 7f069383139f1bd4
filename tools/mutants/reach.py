"""Which tests execute which line, and how long each test takes, measured once and kept in a file.

A test that takes long is no fast test, and is noted without lines. Lines are known by their function and text, so that the file
stays useful when the code changes. It only says which tests are worth running: a wrong entry can leave a fault unnoticed, never the
reverse.
"""

from __future__ import annotations

import ast
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import coverage
import pytest

from tools.mutants.faults import SOURCE, Fault, files, functions_by_line
from tools.mutants.run import in_copy, passes

SLOW_S = 8.0
_AT_ONCE = 20  # tests in one copy


@dataclass
class Reach:
    tests: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # of each line a number whose bits stand for `tests`

    @classmethod
    def read(cls, file: Path) -> Reach:
        if not file.exists():
            return cls()
        known = json.loads(file.read_text(encoding="utf-8"))
        lines = {line: int(bits, 16) for line, bits in known["lines"].items()}
        return cls(tests=known["tests"], seconds=known["seconds"], lines=lines)

    def write(self, file: Path) -> None:
        lines = {line: f"{bits:x}" for line, bits in self.lines.items()}
        file.write_text(json.dumps({"tests": self.tests, "seconds": self.seconds, "lines": lines}), encoding="utf-8")

    def measure(self, items: dict[str, pytest.Item], file: Path) -> None:
        """Run the tests that are not known yet, and write down what they execute."""
        unknown = [name for name in items if name not in self.seconds]
        for source in files():
            line_names(source)  # once, and not in every copy
        for at in range(0, len(unknown), _AT_ONCE):
            if at % (10 * _AT_ONCE) == 0:
                print(f"which lines do the tests execute? {at}/{len(unknown)}", flush=True)
                self.write(file)
            some = unknown[at : at + _AT_ONCE]
            found = in_copy(partial(_executed, [items[name] for name in some]), most_s=SLOW_S * _AT_ONCE)
            alone = [found] if found else [in_copy(partial(_executed, [items[name]]), most_s=SLOW_S) for name in some]
            known = {name: each for text in alone if text for name, each in json.loads(text).items()}
            for name in some:
                self._add(name, known.get(name, {"seconds": SLOW_S, "lines": []}))
        self.write(file)

    def _add(self, name: str, found: dict[str, Any]) -> None:
        self.seconds[name] = found["seconds"]
        for line in found["lines"]:
            self.lines[line] = self.lines.get(line, 0) | 1 << len(self.tests)
        self.tests.append(name)

    def of(self, fault: Fault) -> list[str]:
        """The tests that execute the faulty line; those of its function, if the line is not the first of its statement, or new."""
        bits = self.lines.get(line_names(fault.path)[fault.line]) or self._any(f"{fault.module} {fault.function}: ")
        return self._names(bits)

    def thoroughness(self, module: str) -> Counter[str]:
        """How many lines of this module each test executes."""
        found: Counter[str] = Counter()
        for line, bits in self.lines.items():
            if line.startswith(f"{module} "):
                found.update(self._names(bits))
        return found

    def _names(self, bits: int) -> list[str]:
        return [name for name, bit in zip(self.tests, reversed(f"{bits:b}"), strict=False) if bit == "1"]

    def _any(self, prefix: str) -> int:
        found = 0
        for line, bits in self.lines.items():
            found |= bits if line.startswith(prefix) else 0
        return found


def _executed(items: list[pytest.Item]) -> str:
    """The lines that each test executes and how long it takes, as JSON; of a test that fails without a fault no line."""
    measured = coverage.Coverage(data_file=None, include=[str(file) for file in files()], config_file=False)
    measured.start()
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        measured.switch_context(item.nodeid)
        begin = time.process_time()
        if passes(item):
            found[item.nodeid] = {"seconds": round(time.process_time() - begin, 3), "lines": []}
    measured.stop()
    for file in files():
        for line, names in measured.get_data().contexts_by_lineno(str(file)).items():
            for name in found.keys() & set(names):
                found[name]["lines"].append(line_names(file)[line])
    return json.dumps(found)


@cache
def line_names(file: Path) -> dict[int, str]:
    """Each line by its module, function and text."""
    source = file.read_text(encoding="utf-8")
    functions: dict[int, str] = defaultdict(str, functions_by_line(ast.parse(source)))
    module = file.relative_to(SOURCE).as_posix()
    return {at: f"{module} {functions[at]}: {text.strip()}" for at, text in enumerate(source.splitlines(), start=1)}
