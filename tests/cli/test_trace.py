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
        "name,arrival_s,run_s,members,cpu_m,memory,gpus,gpu_models,queue,priority,checkpoint_s,declared_s",
        "1,0,100,8,1000,0,0,,2,0,0,200",
    ]


def test_a_line_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    (tmp_path / "site.swf").write_text(SWF.replace("100", "often"))
    result = muster("trace", "convert", tmp_path / "site.swf")
    assert result.code == 2
    assert "site.swf:2: column run: 'often' is no number from 0 on" in result.err


JOBS = "name,arrival_s,run_s,gpus\na,0,7200,2\nb,0,7200,2\nwhole,3600,3600,8\nlast,36000,60,1\n"


def test_policies_are_compared_in_one_table_with_the_jobs_that_differ(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "spread.yaml").write_text("base: default\nplugins: [{binpack: false}, spread]\n")
    policies = ("-p", "default", "-p", tmp_path / "spread.yaml")
    result = muster("compare", tmp_path / "jobs.csv", "--nodes", "2x8", *policies, "--csv", tmp_path / "out.csv")
    assert result.code == 0
    assert "4 jobs, 0.4 days, 2 nodes, 16 GPUs, 1 seed" in result.out
    assert [line.split() for line in result.out.splitlines() if line.startswith(" wait, mean")] == [
        ["wait,", "mean", "h", "0", "0.25", "+0.25"]
    ]
    assert result.out.splitlines()[-1].startswith(" whole  with spread waited 1.0 h: 0/1 members placed, whole-0 fits nowhere")
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[3] == "default,0,whole,,8,3600,3600,7200,0,0,0,"
    assert len(rows) == 1 + 2 * 4


def test_the_comparison_as_json_has_every_value(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    result = muster("compare", tmp_path / "jobs.csv", "--nodes", "2x8", "-p", "default", "--fill", "100", "--seeds", "2", "--json")
    (figure,) = result.document["figures"]
    assert figure["name"] == "GPUs allocated"
    assert len(figure["values"][0]) == 2


def test_a_comparison_has_a_page_a_table_of_figures_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "spread.yaml").write_text("base: default\nplugins: [{binpack: false}, spread]\n")
    files = ("--html", tmp_path / "report.html", "--figures", tmp_path / "figures.csv", "--results", tmp_path / "results")
    command = ("compare", tmp_path / "jobs.csv", "--nodes", "2x8", "-p", "default", "-p", tmp_path / "spread.yaml", *files)
    assert muster(*command).code == 0
    page, table = (tmp_path / "report.html").read_text(), (tmp_path / "figures.csv").read_text()
    assert "<figcaption>GPUs in use" in page
    assert page.count("<polyline") == 2 * 4
    assert "with spread waited 1.0 h: 0/1 members placed" in page
    assert "<script" not in page
    assert '"wait, mean",h,spread,0,0.25' in table.splitlines()
    assert len(list((tmp_path / "results").iterdir())) == 2
    (tmp_path / "figures.csv").unlink()
    assert muster(*command, "--processes", "2").code == 0
    assert (tmp_path / "figures.csv").read_text() == table


def test_sim_plays_a_history_with_one_policy(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    result = muster("sim", tmp_path / "jobs.csv", "--nodes", "1x8")
    assert result.code == 0
    assert "difference" not in result.out
    assert [line.split()[-1] for line in result.out.splitlines() if "wait, mean" in line] == ["0.25"]


def test_a_history_is_needed() -> None:
    result = muster("compare")
    assert result.code == 2
    assert "--generate" in result.err


def test_what_asks_for_no_gpus_fills_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("name,arrival_s,run_s,cpu_m\na,0,60,1000\n")
    result = muster("compare", tmp_path / "jobs.csv", "--nodes", "1x8", "--fill", "100")
    assert result.code == 2
    assert "--fill is about GPUs, and no job of this history asks for any" in result.err


def test_jobs_that_never_end_are_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("name,arrival_s,run_s,members,gpus\nfits,0,60,1,8\nhuge,0,60,3,8\n")
    result = muster("sim", tmp_path / "jobs.csv", "--nodes", "2x8")
    assert result.code == 0
    lines = result.out.splitlines()
    at = next(number for number, line in enumerate(lines) if "never end" in line)
    assert lines[at].strip() == "1 of 2 jobs never end with default, such as"
    assert lines[at + 1].startswith(" huge  still waits: ")
    assert "never end" not in muster("sim", tmp_path / "jobs.csv", "--nodes", "3x8").out


def test_policies_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("arrival_s,run_s,gpus\n0,60,1\n")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text("base: default\n")
    chosen = ("-p", "a/mine.yaml", "-p", "b/mine.yaml", "-p", "default")
    result = muster("compare", "jobs.csv", "--nodes", "1x8", "--json", *chosen, cwd=tmp_path)
    assert result.document["policies"] == ["a/mine.yaml", "b/mine.yaml", "default"]


def test_a_history_is_read_or_made(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("arrival_s,run_s,gpus\n0,60,1\n")
    result = muster("compare", tmp_path / "jobs.csv", "--generate", "gangs=3")
    assert (result.code, result.err.strip()) == (2, "muster: either a history or --generate, not both")
