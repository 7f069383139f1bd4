"""Runs the tests that may notice a fault, in a copy of a process that has collected them.

The fault is made there by exchanging the code of the function.
"""

from __future__ import annotations

import gc
import math
import os
import resource
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from tools.mutants.faults import SOURCE, Fault

ROOT = Path(__file__).parents[2]
FAST_TESTS = (
    "tests/test_scenarios.py",
    "tests/devices",
    "tests/evict",
    "tests/lifecycle",
    "tests/oracles",
    "tests/placement",
    "tests/plugins",
    "tests/preempt",
    "tests/queues",
    "tests/quota",
    "tests/sim",
    "tests/topology",
    "tests/trust",
)
OPTIONS = ("-n", "0", "-s", "-q", "-p", "no:cacheprovider", "--timeout", "0", "-m", "not soak")
MOST_BYTES = 4 << 30

Functions = dict[tuple[str, str], list[FunctionType]]  # by file and qualified name


class FastTests:
    """A pytest plugin: once the tests are collected, they are handed to `use` instead of being run."""

    def __init__(self, use: Callable[[dict[str, pytest.Item]], None]) -> None:
        self._use = use
        self.finished = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:  # Modules that cannot be imported count here.
            self._use({item.nodeid: item for item in session.items})
            self.finished = True
        return True


def collect(use: Callable[[dict[str, pytest.Item]], None]) -> None:
    plugin = FastTests(use)
    pytest.main([*OPTIONS, *FAST_TESTS], plugins=[plugin])
    if not plugin.finished:
        raise SystemExit("the tests cannot be collected")


def passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def in_copy(work: Callable[[], str], *, most_s: float) -> str | None:
    """What this work comes to in a copy of this process; None if it dies, or needs more time or memory than it may."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            _be_silent()
            _limit(most_s)
            with os.fdopen(write, "wb") as out:
                out.write(work().encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        text = said.read().decode()
    _, status = os.waitpid(child, 0)
    return None if status else text


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _limit(most_s: float) -> None:
    """Processor time, not time of day: a busy machine is not a fault."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(most_s), math.ceil(most_s)))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def first_to_fail(items: list[pytest.Item], fault: Fault | None, functions: Functions) -> str:
    if fault is not None:
        exchange_code(fault, functions)
    return next((item.nodeid for item in items if not passes(item)), "")


def exchange_code(fault: Fault, functions: Functions) -> None:
    """Whoever holds the function has the faulty code from now on."""
    new = _code_of(fault.code, fault.function)
    assert new is not None, f"no function {fault.function} in {fault.path}"
    for function in functions[str(fault.path), fault.function]:
        function.__code__ = new


def loaded_functions() -> Functions:
    """Those of the source, wherever they are held: by a class, a property, a cache. What is alive now is not looked at again by the
    garbage collector, so that copies share its memory."""
    found: Functions = defaultdict(list)
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(str(SOURCE)):
            found[value.__code__.co_filename, value.__code__.co_qualname].append(value)
    gc.freeze()
    return found


def _code_of(code: CodeType, function: str) -> CodeType | None:
    if code.co_qualname == function:
        return code
    inner = (_code_of(const, function) for const in code.co_consts if isinstance(const, CodeType))
    return next((found for found in inner if found is not None), None)
