"""Patterns find what Python's own find, and none of them takes for ever."""

import re
import time
import warnings
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.state.patterns import BadPattern, matching

LETTERS = st.sampled_from(["a", "b", "-", "1", ".", "[ab]", "[^a]", "[a-c1-3]", r"\d", r"\w", r"\.", "[-a]", "[]a]", "^", "$"])
PATTERNS = st.recursive(
    LETTERS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, inner).map("|".join)
        | inner.map("(?:{})*".format)
        | inner.map("({})+".format)
        | inner.map("({})?".format)
        | inner.map("({}){{1,3}}".format)
        | inner.map("({}){{2}}?".format)
        | inner.map("({}){{1,}}".format)
    ),
    max_leaves=8,
)
NAMES = st.lists(st.text(alphabet="abc-1.", max_size=8), max_size=5)


@settings(max_examples=500, deadline=None)
@given(pattern=PATTERNS, names=NAMES)
def test_what_is_found_is_what_python_finds(pattern: str, names: list[str]) -> None:
    assert matching(pattern, names) == {name for name in names if re.search(pattern, name)}


@settings(max_examples=500, deadline=None)
@given(pattern=st.text(alphabet="ab(|)[]{}*+?^$.\\-,1:dz", max_size=12), names=NAMES)
def test_whatever_is_parsed_is_parsed_as_python_parses_it(pattern: str, names: list[str]) -> None:
    try:
        found = matching(pattern, names)
    except BadPattern:
        return
    with warnings.catch_warnings():
        # Python may one day read a bracket within brackets otherwise.
        warnings.simplefilter("ignore", FutureWarning)
        assert found == {name for name in names if re.search(pattern, name)}


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", ".*" * 20 + "x", "(a?){500}a{500}b", "((a{100}){100}){100}", "." * 9000]
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    began = time.monotonic()
    with suppress(BadPattern):
        matching(pattern, ["a" * 200 + f"-{i}" for i in range(50)])
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("n[", "ends too early"),
        ("(a", "a ) is missing"),
        ("a)", "there is no ("),
        ("*a", "nothing to repeat"),
        ("a**", "two repeats in a row"),
        ("(?=a)b", "only (?: is known"),
        (r"(a)\1", "\\1 is not known"),
        ("a{2000}", "more than 1000 times"),
        ("a{3,2}", "at least 3 and at most 2"),
        ("[b-a]", "is none"),
        ("(" * 200, "groups deep"),
        ("a" * 20_000, "longer than"),
        ("(a{900}){900}", "too large"),
    ],
)
def test_an_invalid_pattern_says_why(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(why)):
        matching(pattern, ["a"])
