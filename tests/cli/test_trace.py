"""`muster trace`: as a user runs it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import muster

SWF = "; a comment\n1 10 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1\n2 20 5 -1 8 -1 -1 8 200 -1 0 3 1 -1 2 -1 -1 -1\n"


def test_a_history_is_converted_to_musters_own_table(tmp_path: Path) -> None:
    (tmp_path / "site.swf").write_text(SWF)
    result = muster("trace", "convert", tmp_path / "site.swf", "-o", tmp_path / "jobs.csv")
    assert result.code == 0
    assert "1 jobs; 1 rows without a run time left out" in result.err
    assert (tmp_path / "jobs.csv").read_text().splitlines() == [
        "name,arrival_s,run_s,members,cpu_m,memory,gpus,gpu_models,queue,priority,checkpoint_s",
        "1,0,100,8,1000,0,0,,2,0,0",
    ]


def test_a_line_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    (tmp_path / "site.swf").write_text(SWF.replace("100", "often"))
    result = muster("trace", "convert", tmp_path / "site.swf")
    assert result.code == 2
    assert "site.swf:2: column run: 'often' is no number from 0 on" in result.err
