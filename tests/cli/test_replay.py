from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import RESTARTING_SCENARIO, SMALL_SCENARIO, muster


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two scenarios in one log, one of them with a restart and a crash."""
    (tmp_path / "both.yaml").write_text(f"{SMALL_SCENARIO}---\n{RESTARTING_SCENARIO}")
    assert muster("sim", "-q", "both.yaml", "--decision-log", "out.jsonl", cwd=tmp_path).code == 0
    return tmp_path / "out.jsonl"


def with_replacement(log: Path, *, old: str, new: str) -> Path:
    text = log.read_text()
    assert old in text
    log.write_text(text.replace(old, new, 1))
    return log


def test_a_log_with_restarts_comes_out_identical(log: Path) -> None:
    result = muster("replay", log)
    assert result.code == 0
    assert result.out.endswith(" events: identical (4 starts of a scheduler)\n")


def test_every_start_of_a_scheduler_is_in_the_log_with_its_policy(log: Path) -> None:
    starts = [line for line in log.read_text().splitlines() if line.startswith('{"muster":')]
    assert len(starts) == 4
    assert "- priority" in json.loads(starts[0])["policy"]


def test_json_has_the_counts(log: Path) -> None:
    document = muster("replay", log, "--json").document
    assert document["ok"] is True
    assert document["cycles"] > 24
    assert document["difference"] is None


def test_a_decision_that_was_changed_is_found(log: Path) -> None:
    line = next(line for line in log.read_text().splitlines() if '"Bind"' in line)
    changed = line.replace('"node":"n1"', '"node":"n9"', 1)
    assert changed != line
    with_replacement(log, old=line, new=changed)
    result = muster("replay", log)
    assert result.code == 1
    assert "cycle 1 differs: effect 1 of " in result.out
    assert "logged    Bind uid=" in result.out
    assert "node=n9" in result.out
    assert "decided   Bind uid=" in result.out
    assert "differ in  node" in result.out
    assert "0 cycles before it: identical." in result.out


def test_json_of_a_difference_has_both_sides(log: Path) -> None:
    line = next(line for line in log.read_text().splitlines() if '"Bind"' in line)
    with_replacement(log, old=line, new=line.replace('"node":"n1"', '"node":"n9"', 1))
    result = muster("replay", log, "--json")
    assert result.code == 1
    difference = result.document["difference"]
    assert difference["fields"] == ["node"]
    assert (difference["logged"]["Bind"]["node"], difference["decided"]["Bind"]["node"]) == ("n9", "n1")


def test_another_policy_may_decide_otherwise(log: Path, tmp_path: Path) -> None:
    (tmp_path / "spread.yaml").write_text("plugins: [priority, fit, spread]\n")
    result = muster("replay", log, "--policy", tmp_path / "spread.yaml")
    assert result.code == 1
    assert "cycle 1 differs: " in result.out


def test_the_jobs_of_a_log_are_played_again_with_both_policies(tmp_path: Path) -> None:
    jobs = "".join(f"- {{name: job-{at}, pods: 1, requests: {{gpu: 2}}, runDuration: 1h}}\n" for at in range(2))
    later = "- submit: {name: whole, pods: 1, requests: {gpu: 8}, runDuration: 1h}\n- run: {for: 3h, every: 1m}\n"
    (tmp_path / "jobs.yaml").write_text(
        f"name: jobs\nnodes: [{{name: 'n[1-2]', gpu: 8}}]\ngangs:\n{jobs}steps:\n- run: 5m\n{later}"
    )
    assert muster("sim", "-q", "jobs.yaml", "--decision-log", "out.log", cwd=tmp_path).code == 0
    (tmp_path / "spread.yaml").write_text("base: default\nplugins: [{binpack: false}, spread]\n")
    result = muster("replay", tmp_path / "out.log", "--policy", tmp_path / "spread.yaml")
    assert result.code == 1
    assert "differs: effect" in result.out
    (waits,) = [line.split() for line in result.out.splitlines() if line.startswith(" wait, p99")]
    assert waits[3] == "0"
    assert float(waits[4]) > 0.8
    document = muster("replay", tmp_path / "out.log", "--policy", tmp_path / "spread.yaml", "--json").document
    assert document["comparison"]["policies"] == ["logged", "spread"]


def test_a_truncated_log_is_reported_with_how_far_it_was_right(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    result = muster("replay", log)
    assert result.code == 2
    assert f"line {len(lines)} is truncated" in result.err
    assert "cycles before it: identical)" in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no cycle in this log"),
        ("hello\n", "line 1 is not a line of a decision log"),
        ('{"a": 1}\n', "line 1 is not a line of a decision log: it is neither an event nor an outcome"),
        ("[1]\n", "line 1 is not a line of a decision log: not an object"),
        ('{"muster": 99, "policy": ""}\n', "format 99 is not 3"),
        ('{"muster": 3, "policy": "plugins: [nobody]"}\n', "the policy in this log cannot be loaded here (unknown plugin 'nobody'"),
        (
            '{"event": "Delete", "fields": {"kind": "Pod", "key": "x", "version": 1}}\n',
            "comes before the line that names the policy",
        ),
    ],
)
def test_a_foreign_file_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "foreign.jsonl").write_text(text)
    result = muster("replay", "foreign.jsonl", cwd=tmp_path)
    assert result.code == 2
    assert result.err.startswith("muster: foreign.jsonl: ")
    assert message in result.err


def test_a_missing_log_is_reported(tmp_path: Path) -> None:
    result = muster("replay", "nowhere.jsonl", cwd=tmp_path)
    assert (result.code, result.err) == (2, "muster: nowhere.jsonl: no such file or directory\n")


def test_a_plugin_from_a_file_is_found_again_beside_the_log_or_by_its_policy(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    plugin = "class Last:\n    name = 'last'\n    def gang_key(self, s, gang):\n        return -gang.created\n"
    (tmp_path / "policies" / "last.py").write_text(plugin)
    policy = tmp_path / "policies" / "policy.yaml"
    policy.write_text("plugins: [priority, fit, './last.py:Last']\n")
    (tmp_path / "small.yaml").write_text(RESTARTING_SCENARIO)
    assert muster("sim", "small.yaml", "-q", "--policy", policy, "--decision-log", "o.jsonl", cwd=tmp_path).code in (0, 1)
    lost = muster("replay", "o.jsonl", cwd=tmp_path)
    assert lost.code == 2
    assert "move the log to the folder of the policy file, or name a policy file with --policy" in lost.err
    (tmp_path / "policies" / "o.jsonl").write_bytes((tmp_path / "o.jsonl").read_bytes())
    assert muster("replay", "policies/o.jsonl", cwd=tmp_path).code == 0
    assert muster("replay", "o.jsonl", "--policy", policy, cwd=tmp_path).code == 0
