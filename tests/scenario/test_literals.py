"""Ranges, durations and amounts: the small words of the language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.literals import BadLiteral, duration, expand_names, format_duration, quantity, resource_name


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1,3,5-6]x", ["n1x", "n3x", "n5x", "n6x"]),
        ("r[1-2]-n[1-2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
        ("rack-[a,b]", ["rack-a", "rack-b"]),
        ("n[7-7]", ["n7"]),
    ],
)
def test_a_range_is_all_its_names_in_order(written: str, names: list[str]) -> None:
    assert expand_names(written) == names


@pytest.mark.parametrize("written", ["n[1-", "n1]", "n[]", "n[a b]", "n[1-2]-m[1-200000]", "n[1-999999999]"])
def test_what_is_no_range_is_refused(written: str) -> None:
    with pytest.raises(BadLiteral):
        expand_names(written)


def test_a_range_that_runs_backwards_is_turned_round_in_the_hint() -> None:
    with pytest.raises(BadLiteral) as caught:
        expand_names("n[9-2]")
    assert caught.value.suggestion == "n[2-9]"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("0", 0), ("90s", 90), ("5m", 300), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("1d", 86400)],
)
def test_a_duration_is_its_seconds(written: str, seconds: float) -> None:
    assert duration(written) == seconds


def test_only_a_signed_duration_may_be_negative() -> None:
    assert duration("-2h", signed=True) == -7200
    with pytest.raises(BadLiteral):
        duration("-2h")


def test_a_bare_number_is_no_duration_and_the_hint_has_the_unit() -> None:
    with pytest.raises(BadLiteral) as caught:
        duration("90")
    assert caught.value.suggestion == "90s"


@pytest.mark.parametrize("written", ["", "s", "5 m", "1h-5m", "1w", "20000000h", "inf"])
def test_what_is_no_duration_is_refused(written: str) -> None:
    with pytest.raises(BadLiteral):
        duration(written)


@given(st.integers(-(10**7), 10**7))
def test_a_duration_that_is_shown_can_be_read_again(seconds: int) -> None:
    assert duration(format_duration(seconds), signed=True) == seconds


def test_gpu_is_short_for_its_full_name_and_other_resources_are_written_out() -> None:
    assert resource_name("gpu") == "nvidia.com/gpu"
    assert resource_name("example.com/fpga") == "example.com/fpga"


def test_a_quantity_is_kept_as_written_once_it_is_sure_that_it_is_one() -> None:
    assert quantity("memory", "4Gi") == "4Gi"
    with pytest.raises(BadLiteral):
        quantity("memory", "4Gb")
