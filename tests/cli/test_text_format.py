from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.cli.chart import Series, bar, mark_lines, sparkline
from muster.cli.screen import BOLD, TextPart
from muster.cli.text_format import clock, compact_name_list, compact_names, count, duration, join_names, unit_hours
from muster.cli.text_table import lay_out
from muster.literals import expand_names

NAMES = st.lists(st.from_regex(r"[a-c]{1,2}(-?[0-9]{1,3}){0,3}", fullmatch=True), unique=True, max_size=40)


@given(NAMES)
def test_folded_names_are_the_same_names_in_scenario_syntax(names: list[str]) -> None:
    assert sorted(name for piece in compact_name_list(names) for name in expand_names(piece)) == sorted(names)


def test_names_are_folded_as_a_person_would() -> None:
    assert compact_names([f"n{i}" for i in (1, 2, 3, 5)]) == "n[1-3,5]"
    assert compact_names(f"r{r}-n{n}" for r in (1, 2) for n in (1, 2, 3)) == "r[1-2]-n[1-3]"
    assert compact_names(["eval-08", "eval-09", "eval-10"]) == "eval-[08-10]"
    assert compact_names(["b", "a"]) == "a, b"
    assert compact_names(["n10", "n9x"]) == "n9x, n10"
    assert compact_names([]) == ""


def test_times_and_numbers_have_units() -> None:
    assert clock(2470) == "00:41:10"
    assert [duration(s) for s in (0, 40, 220, 4740)] == ["0s", "40s", "3m40s", "1h19m"]
    assert (count(1, "gang"), count(1203, "event")) == ("1 gang", "1,203 events")
    assert unit_hours("nvidia.com/gpu", 8 * 3600) == "8.0 GPU-hours"
    assert unit_hours("cpu", 500 * 3600) == "0.5 CPU-hours"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c", "d"]) == "a, b and 2 more"


def test_a_chart_shows_means_over_time() -> None:
    series = Series(((0.0, 1.0), (10.0, 0.0), (30.0, 0.5)), 40.0)
    assert series.mean() == (10 + 5) / 40
    assert series.columns(4) == [1.0, 0.0, 0.0, 0.5]
    assert sparkline(series.columns(4), top=1.0) == "█  ▄"
    assert sparkline([0.001, 0.99], top=1.0) == "▁▇"
    assert sparkline([0.5, 1.0], top=1.0, unicode=False) == "=%"
    assert bar(0.5, width=4) == "██"
    assert bar(7.0, width=4) == "████"


def test_notes_below_a_chart_do_not_run_into_each_other() -> None:
    assert mark_lines([(2, "one"), (20, "two"), (4, "three")], width=40) == ["    ↑ three         ↑ two", "  ↑ one"]


def test_a_table_wraps_its_last_column_under_itself_or_below_the_row() -> None:
    columns = ["name", ">n", "empty", "why"]
    rows: list[tuple[TextPart, ...]] = [("a", "1", "", "short"), (("bb", BOLD), "22", "", " ".join(["word"] * 20))]
    wide = [line.plain for line in lay_out(columns, rows, width=70)]
    assert wide[0] == " name   n  why"
    assert wide[1] == " a      1  short"
    assert wide[2].startswith(" bb    22  word word")
    assert wide[3].startswith("           word")
    narrow = [line.plain.rstrip() for line in lay_out(columns, rows, width=40)]
    assert narrow[:3] == [" name   n", " a      1", "     short"]
    assert all(len(line) <= 40 for line in narrow)
    assert [line.plain for line in lay_out(columns, rows, width=None)][2].endswith("word word")


def test_a_table_without_a_header_has_every_cell_below_its_row_too() -> None:
    rows = [("1.", "expire", "end reservations that timed out"), ("2.", "allocate", "place gangs on free capacity, in queue order")]
    lines = [line.plain for line in lay_out([">", "", ""], rows, width=45)]
    assert lines == [" 1.  expire", "     end reservations that timed out", " 2.  allocate", *lines[3:]]
    assert lines[3].startswith("     place gangs")
