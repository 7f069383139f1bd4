"""Code that is broken on purpose: a check that then finds nothing wrong in any world proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

Case = TypeVar("Case")

Break = Callable[[pytest.MonkeyPatch], None]


def assert_notices(broken: Break, check: Callable[[Case], None], worlds: SearchStrategy[Case], *, examples: int) -> None:
    """Does the check fail in one of so many worlds while the code is broken?"""
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        search = settings(max_examples=examples, phases=[Phase.generate], derandomize=True, database=None, deadline=None)
        try:
            find(worlds, lambda case: _fails(check, case), settings=search)
        except NoSuchExample:
            pytest.fail(f"nobody notices that {getattr(broken, '__name__', broken)}")


def _fails(check: Callable[[Case], None], case: Case) -> bool:
    try:
        check(case)
    except (AssertionError, KeyError):
        return True
    return False
