from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import FAILING_SCENARIO, RESTARTING_SCENARIO, SMALL_SCENARIO, muster, process

from muster.cli.retired_options import RETIRED_OPTIONS


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL_SCENARIO)
    return file


# -- a scenario that holds ---------------------------------------------------------------------------------------------------------


def test_one_scenario_is_shown_as_a_timeline_and_a_summary(small: Path) -> None:
    result = muster("sim", small)
    assert result.code == 0
    assert "a small gang waits until a big one is done   24 cycles, 11m virtual" in result.out
    assert " 00:00:00  default/big starts: 4 members on n[1-4]\n" in result.out
    assert "default/small waits: 0/2 members placed, small-0 fits nowhere: 4 nodes full (gpu)" in result.out
    assert "finished: default/big" in result.out
    assert "GPU in use" in result.out
    assert "peak 32/32" in result.out
    assert " 2 gangs: 1 finished, 1 running.  No evictions.  No invariant violated." in result.out
    assert result.err == ""


def test_the_tree_of_queues_is_shown_where_there_is_more_than_the_default_one(small: Path) -> None:
    assert "└── research" in muster("sim", small).out


def test_a_queue_over_its_share_is_called_reclaimable_only_where_pods_may_be_reclaimed(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(
        """
name: three queues over their shares
nodes: [{name: "n[1-3]", gpu: 8}]
queues:
- {name: open, deserved: {gpu: 2}}
- {name: closed, reclaimable: false}
- {name: inner, parent: closed, deserved: {gpu: 4}}
- {name: leaving, deserved: {gpu: 6}}
gangs:
- {name: "g1", queue: open, requests: {gpu: 8}, runningOn: n1}
- {name: "g2", queue: inner, requests: {gpu: 8}, runningOn: n2}
- {name: "g3", queue: leaving, requests: {gpu: 8}, runningOn: n3, terminationDuration: 1m}
steps:
- delete: g3
- cycle
"""
    )
    lines = muster("sim", file).out.splitlines()
    notes = {name: next(line for line in lines if f"─ {name} " in line) for name in ("open", "inner", "leaving")}
    assert notes["open"].endswith("6 over deserved: reclaimable")
    assert notes["inner"].endswith("4 over deserved")
    assert "over deserved" not in notes["leaving"]


def test_an_eviction_that_was_refused_is_no_loss(tmp_path: Path) -> None:
    file = tmp_path / "refused.yaml"
    file.write_text(
        """
name: one of two evictions is refused
nodes: [{name: "n[1-3]", gpu: 8}]
gangs:
- {name: low1, priority: 1, requests: {gpu: 8}, runningOn: n1, age: 1h}
- {name: low2, priority: 1, requests: {gpu: 8}, runningOn: n2, age: 1h}
- {name: low3, priority: 3, requests: {gpu: 8}, runningOn: n3, age: 1h}
steps:
- fail: {evict: low2, times: 5}
- submit: {name: hi, priority: 9, pods: 2, requests: {gpu: 8}}
- run: 1m
"""
    )
    out = muster("sim", file).out
    assert "evicted 2 pods of 2 gangs, 16.0 GPU-hours lost" in out
    assert "lost 1 member" not in next(line for line in out.splitlines() if line.startswith(" default/low2 "))


def test_a_cluster_without_queues_shows_none(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text("name: plain\nnodes: [{name: n1, cpu: 4}]\ngangs: [{name: a, requests: {cpu: 1}}]\nsteps: [cycle]\n")
    out = muster("sim", file).out
    assert "queue" not in out
    assert "default/a" in out


def test_quiet_says_nothing_where_all_is_well(small: Path) -> None:
    result = muster("sim", small, "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_the_timeline_can_be_left_out(small: Path) -> None:
    assert "starts" not in muster("sim", small, "--no-timeline").out


def test_every_gang_is_listed_on_demand(small: Path) -> None:
    assert "default/big  " not in muster("sim", small, "--no-timeline").out
    assert "default/big  " in muster("sim", small, "--no-timeline", "--all").out


def test_the_same_file_gives_the_same_output(small: Path) -> None:
    first, second = (muster("sim", small).out.split("\n", 1)[1] for _ in range(2))
    assert first == second


def test_a_narrow_screen_has_no_long_lines(small: Path) -> None:
    lines = muster("sim", small, COLUMNS="80").out.splitlines()
    assert max(map(len, lines)) <= 80


def test_colour_is_for_terminals_and_those_who_force_it(small: Path) -> None:
    assert "\x1b[" in muster("sim", small, FORCE_COLOR="1").out


def test_a_terminal_without_unicode_is_served_all_the_same(small: Path) -> None:
    result = muster("sim", small, encoding="ascii")
    assert result.code == 0
    assert "`-- research" in result.out


# -- a scenario that does not hold -------------------------------------------------------------------------------------------------


def test_a_failed_expectation_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "fails.yaml").write_text(FAILING_SCENARIO)
    result = muster("sim", "fails.yaml", cwd=tmp_path)
    assert result.code == 1
    assert "fails.yaml:6: after 0s this does not hold:" in result.out
    assert "  bound, exactly (line 7)\n    expected  default/train-0\n    found     " in result.out
    assert "rerun:    muster sim fails.yaml:1" in result.out


def test_quiet_still_shows_failed_expectations(tmp_path: Path) -> None:
    (tmp_path / "fails.yaml").write_text(FAILING_SCENARIO)
    result = muster("sim", "-q", "fails.yaml", cwd=tmp_path)
    assert result.code == 1
    assert result.out.startswith("fails.yaml:6: ")


# -- many scenarios ----------------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_line_each_then_what_failed_then_a_count(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "both.yaml").write_text(f"{SMALL_SCENARIO}---\n{FAILING_SCENARIO}")
    (tmp_path / "restarts.yml").write_text(RESTARTING_SCENARIO)
    result = muster("sim", ".", cwd=tmp_path)
    assert result.code == 1
    lines = [line.strip() for line in result.out.splitlines()]
    assert lines[0] == "inner/both.yaml"
    assert lines[1].startswith("ok     :1    a small gang waits until a big one is done   24 cycles, 11m in ")
    assert lines[2].startswith("failed :13   a pod that fits nowhere is bound")
    assert lines[3] == "restarts.yml"
    assert "3 scenarios: 2 ok, 1 failed." in lines
    assert "inner/both.yaml:18: after 0s this does not hold:" in result.out


def test_the_line_of_a_failure_runs_just_that_scenario(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(f"{SMALL_SCENARIO}---\n{FAILING_SCENARIO}")
    result = muster("sim", "both.yaml:13", cwd=tmp_path)
    assert result.code == 1
    assert "a small gang" not in result.out
    assert "1 gang: 1 waiting." in result.out


def test_the_timeline_of_many_is_shown_on_demand(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(f"{SMALL_SCENARIO}---\n{RESTARTING_SCENARIO}")
    out = muster("sim", "both.yaml", "--timeline", cwd=tmp_path).out
    assert "default/small waits" in out
    assert "default/high preempts: evicts 2 of default/low (16 gpu)" in out
    assert "restart" in out


# -- for machines ------------------------------------------------------------------------------------------------------------------


def test_json_has_everything(small: Path) -> None:
    result = muster("sim", small, "--json")
    document = result.document
    assert list(document) == ["schema", "muster", "command", "ok", "errors", "scenarios"]
    assert (document["schema"], document["command"], document["ok"], document["errors"]) == (2, "sim", True, [])
    (scenario,) = document["scenarios"]
    assert set(scenario) == {
        *("name", "file", "line", "ok", "totals", "cycles", "virtualSeconds", "wallSeconds", "writes", "rows"),
        *("samples", "gangs", "queues", "shares", "evictions", "undoneEvictions", "timelineNotes", "failures"),
        *("violations", "effects"),
    }
    assert scenario["totals"] == {
        "gangs": 2,
        "stages": {"finished": 1, "running": 1},
        "evictions": 0,
        "failures": 0,
        "violations": 0,
    }
    gang = next(gang for gang in scenario["gangs"] if gang["gang"] == "default/small")
    assert gang | {"attempts": 0} == {
        "gang": "default/small",
        "queue": "queue/research",
        "priority": 0,
        "members": 2,
        "min": 2,
        "size": 2,
        "succeeded": 0,
        "failed": 0,
        "stage": "running",
        "nodes": ["n1"],
        "waitedSeconds": gang["waitedSeconds"],
        "why": "",
        "code": "",
        "attempts": 0,
        "evicted": 0,
    }
    queue = next(queue for queue in scenario["queues"] if queue["queue"] == "queue/research")
    assert queue["used"]["nvidia.com/gpu"] == 8
    assert {each["effect"] for each in scenario["effects"]} >= {"Bind", "Condition"}
    bind = next(each for each in scenario["effects"] if each["effect"] == "Bind")
    assert bind["fields"]["node"] == "n1"


def test_json_of_a_failure_has_the_difference(tmp_path: Path) -> None:
    (tmp_path / "fails.yaml").write_text(FAILING_SCENARIO)
    result = muster("sim", "fails.yaml", "--json", cwd=tmp_path)
    assert result.code == 1
    assert result.document["ok"] is False
    (failure,) = result.document["scenarios"][0]["failures"]
    assert failure["line"] == 6
    assert failure["mismatches"][0]["expected"] == "default/train-0"


def test_json_of_bad_input_has_the_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nnodes: [{name: n1, gpus: 8}]\n")
    result = muster("sim", "bad.yaml", "--json", cwd=tmp_path)
    assert result.code == 2
    (error,) = result.document["errors"]
    assert (error["file"], error["line"], error["suggestion"]) == ("bad.yaml", 2, "gpu")


# -- bad input ---------------------------------------------------------------------------------------------------------------------


def test_an_error_in_a_file_is_shown_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nnodes:\n- {name: n1, gpus: 8}\nsteps:\n- cycel\n")
    result = muster("sim", "bad.yaml", cwd=tmp_path)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(
        "bad.yaml:3: unknown key 'gpus'. Did you mean 'gpu'?\n"
        "   2 | nodes:\n"
        "   3 | - {name: n1, gpus: 8}\n"
        "     |              ^^^^\n"
    )
    assert "bad.yaml:5: " in result.err
    assert result.err.endswith("2 errors\n")


def test_a_step_that_no_cluster_would_take_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nnodes: [{name: n1}]\nsteps:\n- cycle\n- delete: Pod/default/nobody\n")
    result = muster("sim", "bad.yaml", cwd=tmp_path)
    assert result.code == 2
    assert "bad.yaml:5: " in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sim"], "name a scenario file or a folder"),
        (["sim", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["sim", "smal.yaml"], "Did you mean 'small.yaml'?"),
        (["sim", "empty"], "no scenario in this folder"),
        (["sim", "binary.yaml"], "not UTF-8 text"),
        (["sim", "none.yaml"], "there is no scenario in this file"),
        (["sim", "small.yaml", "--generate", "nodes=5"], "either files or --generate, not both"),
        (["sim", "--generate", "nods=5"], "--generate: unknown option 'nods'. Did you mean 'nodes'?"),
        (["sim", "--generate", "nodes=many"], "--generate: nodes: 'many' is no whole number from 1 to "),
        (["sim", "small.yaml", "--policy", "no.yaml"], "no.yaml:1: this file cannot be read"),
        (["sim", "small.yaml", "--policy", "policy.yaml"], "policy.yaml:1: unknown plugin 'fits'. Did you mean 'fit'?"),
        (["sim", "small.yaml", "--decision-log", "nowhere/out.jsonl"], "the decision log cannot be written: no such file"),
        (["sim", "--nothing"], "No such option"),
        (["simulate"], "No such command 'simulate'"),
    ],
)
def test_bad_input_is_reported_in_a_sentence_and_ends_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_SCENARIO)
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\xfe")
    (tmp_path / "none.yaml").write_text("# nothing\n")
    (tmp_path / "policy.yaml").write_text("plugins: [fits]\n")
    result = muster(*arguments, cwd=tmp_path)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""


@pytest.mark.parametrize(("command", "option"), RETIRED_OPTIONS)
def test_an_option_of_an_earlier_version_is_an_error_that_names_the_present_one(command: str, option: str) -> None:
    result = muster(command, f"{option}=3")
    assert result.code == 2
    assert result.err == f"muster {command}: {option} {RETIRED_OPTIONS[command, option]}\n"


def test_names_in_a_file_cannot_repaint_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text('name: "red \\e[31m alert"\nnodes: [{name: n1}]\nsteps: [cycle]\n')
    result = muster("sim", "evil.yaml", cwd=tmp_path)
    assert result.code == 0
    assert r"red \x1b[31m alert" in result.out


# -- generated worlds and policies -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_timeline_and_another_seed_another() -> None:
    result = [muster("sim", "--generate", f"nodes=8,gangs=10,events=15,seed={seed}", "--timeline") for seed in (3, 3, 4)]
    timelines = [each.out.split("\n", 1)[1] for each in result]
    assert [each.code for each in result] == [0, 0, 0]
    assert timelines[0] == timelines[1] != timelines[2]
    assert result[0].out.startswith(" generated: 8 nodes, 10 gangs, 15 events, seed 3   ")


def test_a_policy_file_takes_the_place_of_the_scenarios_own(tmp_path: Path) -> None:
    (tmp_path / "tame.yaml").write_text("actions: [expire, enqueue, allocate]\nplugins: [priority, fit]\n")
    (tmp_path / "restarts.yaml").write_text(RESTARTING_SCENARIO)
    result = muster("sim", "restarts.yaml", "--policy", "tame.yaml", cwd=tmp_path)
    assert result.code == 1
    assert "No evictions." in result.out


def test_the_demo_is_short_and_shows_the_main_points() -> None:
    result = process("sim", "scenarios/demo.yaml", COLUMNS="120")
    assert result.code == 0
    assert "2h virtual" in result.out
    assert "node failed: r6-n3" in result.out
    assert "prod/train-xl reclaims" in result.out
    assert "no rack fits 12 members" in result.out
    assert len(result.out.splitlines()) < 120
