"""Patterns find what Python's own find, and none of them takes for ever."""

import re
import time
import warnings
from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
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
    # RE2 and Go read `{,1}` as these four letters, Python as `{0,1}`.
    assume("{," not in pattern)
    try:
        found = matching(pattern, names)
    except BadPattern:
        return
    with warnings.catch_warnings():
        # Python may one day read a bracket within brackets otherwise.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            expected = {name for name in names if re.search(pattern, name)}
        except re.error:
            return  # RE2 knows more than Python: a repeated anchor, \\z, {}.
    assert found == expected


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("gpu-1", {"gpu-1", "gpu-10", "a-gpu-1"}),
        ("^gpu-1", {"gpu-1", "gpu-10"}),
        ("gpu-1$", {"gpu-1", "a-gpu-1"}),
        ("^gpu-1$", {"gpu-1"}),
        ("^(gpu-1|cpu)$", {"gpu-1", "cpu"}),
        ("", {"gpu-1", "gpu-10", "a-gpu-1", "cpu"}),
    ],
)
def test_a_pattern_is_searched_for_and_anchored_only_by_its_anchors(pattern: str, found: set[str]) -> None:
    assert matching(pattern, ["gpu-1", "gpu-10", "a-gpu-1", "cpu"]) == found


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", ".*" * 20 + "x", "(a?){500}a{500}b", "((a{100}){100}){100}", "." * 9000]
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    began_s = time.process_time()
    with suppress(BadPattern):
        matching(pattern, ["a" * 200 + f"-{i}" for i in range(50)])
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("n[", "missing ]: ["),
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("(?=a)b", "invalid perl operator: (?="),
        (r"(a)\1", "invalid escape sequence: \\1"),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("a{3,2}", "invalid repetition size: {3,2}"),
        ("[b-a]", "invalid character class range: b-a"),
        ("(" * 200, "missing ): (((((((((((((((((((((((((((((((((((((((((((((((((..."),
        ("a" * 20_000, "it is longer than 10000 characters"),
        ("(a{900}){900}", "invalid repetition size: {900}"),
        ("(a?b?c?a?b?c?){900}", "it is too large: 10804 instructions, at most 10000 are allowed"),
    ],
)
def test_an_invalid_pattern_says_why(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=f"^{re.escape(why)}$"):
        matching(pattern, ["a"])
