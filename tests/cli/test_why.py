"""`muster why`, and the tables of queues, gangs and nodes: what a person asks of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.commands import muster

CLUSTER = """\
name: research waits behind its own limit
nodes: [{name: "n[1-4]", gpu: 8}, {name: n5, gpu: 8, unschedulable: true}]
queues: [{name: prod, deserved: {gpu: 16}}, {name: research, deserved: {gpu: 16}, limit: {gpu: 24}}]
gangs:
- {name: sweep, queue: research, pods: 3, min: 1, requests: {gpu: 8}, runningOn: "n[1-3]", age: 4h, priority: 5}
steps:
- submit: {name: llm, queue: research, pods: 2, requests: {gpu: 8}, priority: 5}
- submit: {name: late, queue: research, pods: 1, requests: {gpu: 8}, priority: 1}
- run: 1m
- submit: {name: serve, queue: prod, pods: 2, requests: {gpu: 8}, priority: 9}
- run: 2m
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def ask(workspace: Path, *arguments: str) -> str:
    result = muster(*arguments, "--cluster", "cluster.yaml", cwd=workspace)
    assert result.code == 0, result.err
    return result.out


def test_a_gang_that_waits_is_told_what_decides_and_who_is_before_it(workspace: Path) -> None:
    out = ask(workspace, "why", "llm", "--at", "30s")
    assert out.splitlines()[0] == "default/llm is waiting for 30s, 1 of 2 in queue research."
    assert " decides  queue research: gpu 24 used + 16 requested > 24 limit" in out
    assert " queue    research: gpu 24 used of 16 deserved, 24 limit" in out
    assert " before it default/llm (16 gpu)" in ask(workspace, "why", "default/late", "--at", "30s")


def test_a_gang_that_runs_is_told_where_and_what_it_may_lose_and_lost(workspace: Path) -> None:
    out = ask(workspace, "why", "sweep")
    assert out == ask(workspace, "why", "sweep-1")
    assert out.splitlines()[0].startswith("default/sweep is running for 4h")
    assert "evicted first when capacity is needed" in out
    assert "lost 1 member for default/serve" in out
    assert "had 1 of default/sweep evicted" in ask(workspace, "why", "serve", "-n", "default")


def test_the_same_is_asked_of_a_decision_log_at_a_time(workspace: Path) -> None:
    assert muster("sim", "cluster.yaml", "--decision-log", "log.jsonl", "--quiet", cwd=workspace).code == 0
    for at in ("00:00:30", "30s", "2026-01-01T00:00:30Z"):
        result = muster("why", "llm", "--cluster", "log.jsonl", "--at", at, cwd=workspace)
        assert result.out == ask(workspace, "why", "llm", "--at", "30s")
    result = muster("why", "llm", "--cluster", "log.jsonl", "--at", "tomorrow", cwd=workspace)
    assert (result.code, "--at: 'tomorrow' is no time" in result.err) == (64, True)


@pytest.mark.parametrize("file", ["log.jsonl", "cluster.yaml"])
def test_a_time_that_is_not_in_the_log_is_never_taken_for_another(workspace: Path, file: str) -> None:
    assert muster("sim", "cluster.yaml", "--decision-log", "log.jsonl", "--quiet", cwd=workspace).code == 0
    end = muster("gangs", "-c", file, "-A", cwd=workspace).out
    note = f"5h (--at) is after the last cycle in {file}: this is how it ends, at 2026-01-01T00:0"
    assert note in " ".join(muster("gangs", "-c", file, "-A", "--at", "5h", COLUMNS="400", cwd=workspace).out.split())
    assert "--at" not in end
    assert "--at" not in muster("gangs", "-c", file, "--at", "30s", cwd=workspace).out
    result = muster("why", "llm", "-c", file, "--at", "2025-12-31T23:00:00Z", cwd=workspace)
    assert (result.code, result.out) == (64, "")
    assert f"--at: 2025-12-31T23:00:00Z is before {file} begins, at 2026-01-01T00:00:" in result.err


def test_a_time_is_refused_where_there_is_only_one_moment(workspace: Path) -> None:
    (workspace / "still.yaml").write_text(CLUSTER.partition("steps:")[0])
    for file, more in (("still.yaml", ()), ("cluster.yaml", ("--as-scheduler", "volcano"))):
        result = muster("gangs", "-c", file, "--at", "30s", *more, cwd=workspace)
        assert (result.code, result.out) == (64, "")
        assert f"--at: {file} is known at one moment only; a time is in a decision log" in result.err


@pytest.mark.parametrize("name", ["none.yaml", "none.json", "none.jsonl"])
def test_an_empty_file_is_said_to_be_empty(workspace: Path, name: str) -> None:
    (workspace / name).write_text("\n")
    for command in (("why", "llm"), ("queues",), ("nodes",)):
        result = muster(*command, "-c", name, cwd=workspace)
        assert (result.code, result.out) == (64, "")
        assert f"{name}: this file is empty" in result.err


OTHERS = """\
name: another scheduler serves a gang
nodes: [{name: n1, gpu: 8}]
gangs:
- {name: llm, pods: 2, requests: {gpu: 1}, schedulerName: volcano}
- {name: own, pods: 2, requests: {gpu: 1}}
"""


def test_a_gang_of_another_scheduler_is_told_first_to_be_one(workspace: Path) -> None:
    (workspace / "others.yaml").write_text(OTHERS)
    told = "default/llm is served by the scheduler volcano (2 pods): --as-scheduler volcano looks through it"
    result = muster("why", "llm", "-c", "others.yaml", cwd=workspace)
    assert (result.code, result.out) == (0, f"{told}.\n")
    assert muster("why", "llm", "-c", "others.yaml", "--json", cwd=workspace).document["notes"][0] == told
    result = muster("why", "llm-0", "-c", "others.yaml", cwd=workspace)
    assert (result.code, result.out) == (64, "")
    assert "llm-0 is served by the scheduler volcano (1 pod): --as-scheduler volcano looks through it" in result.err
    through = muster("why", "llm", "-c", "others.yaml", "--as-scheduler", "volcano", cwd=workspace)
    assert through.out.splitlines()[0].startswith("default/llm is waiting for 0s, ")
    assert "is served by" not in muster("why", "own", "-c", "others.yaml", cwd=workspace).out


def test_tables_say_what_of_other_schedulers_they_leave_out(workspace: Path) -> None:
    (workspace / "others.yaml").write_text(OTHERS)
    lines = muster("gangs", "-c", "others.yaml", cwd=workspace).out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["default/own", "note"]
    assert lines[2].split(maxsplit=1)[1] == "1 gang of other schedulers not shown: volcano"
    assert "pods of other schedulers are charged to no queue: volcano" in muster("queues", "-c", "others.yaml", cwd=workspace).out
    through = muster("gangs", "-c", "others.yaml", "--as-scheduler", "volcano", cwd=workspace).out
    assert "default/llm" in through
    assert "charged" not in through


def test_a_scheduler_that_no_pod_names_is_said_to_be_unknown(workspace: Path) -> None:
    (workspace / "others.yaml").write_text(OTHERS)
    for question in (("gangs",), ("queues",), ("nodes",), ("why", "llm"), ("plan", "others.yaml")):
        result = muster(*question, "-c", "others.yaml", "--as-scheduler", "vulcano", cwd=workspace)
        if question[0] != "plan":
            assert "no pod of this cluster names the scheduler vulcano (--as-scheduler)" in result.out, question
    assert "names the scheduler" not in ask(workspace, "gangs", "--as-scheduler", "muster")


def test_a_folder_is_no_cluster(workspace: Path) -> None:
    result = muster("queues", "-c", ".", cwd=workspace)
    assert result.code == 64
    assert "--cluster: . is a folder; name one file" in result.err


def test_a_gang_that_is_not_there_is_answered_with_the_nearest(workspace: Path) -> None:
    result = muster("why", "serv", "--cluster", "cluster.yaml", cwd=workspace)
    assert result.code == 64
    assert "there is no gang 'serv' in the cluster. Did you mean 'default/serve'?" in result.err


def test_tables_show_first_what_needs_attention(workspace: Path) -> None:
    lines = ask(workspace, "gangs").splitlines()
    assert [line.split()[0] for line in lines] == ["gang", "default/llm", "default/late", "default/serve", "default/sweep"]
    assert ask(workspace, "nodes").splitlines()[1].split() == ["n5", "8", "8", "64", "0", "cordoned"]
    assert [line.split()[-1] for line in ask(workspace, "gangs", "--stage", "waiting", "-o", "wide").splitlines()[1:]] == [
        "16",
        "8",
    ]
    assert "at its limit" not in ask(workspace, "queues")
    assert [row["queue"] for row in json.loads(ask(workspace, "queues", "--json"))["queues"]] == [
        "root",
        "queue/prod",
        "queue/research",
    ]
    assert yaml.safe_load(ask(workspace, "gangs", "-o", "yaml"))["gangs"][0]["gang"] == "default/llm"
    assert muster("gangs", "-o", "xml", "--cluster", "cluster.yaml", cwd=workspace).code == 64
    document = json.loads(ask(workspace, "why", "llm", "-o", "json"))
    assert (document["gang"]["stage"], document["position"]) == ("waiting", 1)


def test_a_table_is_shown_again_until_somebody_interrupts(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("muster.cli.tables.time.sleep", pause)
    result = muster("gangs", "--watch", "-c", "cluster.yaml", cwd=workspace)
    assert result.code == 130
    assert result.out.count("gang ") == 2
    assert pauses == [5.0, 5.0]
    assert muster("nodes", "-w", "-c", "missing.yaml", cwd=workspace).code == 64


def test_labels_are_as_wide_as_the_widest_so_that_texts_begin_in_one_column(workspace: Path) -> None:
    rows = [line for line in ask(workspace, "why", "default/late", "--at", "30s").splitlines() if line.startswith(" ")]
    assert any(line.startswith(" before it default/llm") for line in rows)
    assert {line[10] for line in rows} == {" "}
    assert all(line[11] != " " for line in rows)


def test_a_filter_that_names_nothing_is_an_error(workspace: Path) -> None:
    for option, value, message in (
        ("--stage", "wating", "there is no stage 'wating'; did you mean 'waiting'?"),
        ("--queue", "reserch", "there is no queue 'reserch' in the cluster. Did you mean 'research'?"),
    ):
        result = muster("gangs", option, value, "--cluster", "cluster.yaml", cwd=workspace)
        assert (result.code, result.out) == (64, ""), result.err
        assert message in result.err
    assert "default/llm" in ask(workspace, "gangs", "--queue", "research")
