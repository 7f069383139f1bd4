"""When a gang starts: what `muster why` and `muster plan` say, and by what run times."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import muster

from muster.forecast.start_time import run_times_of
from muster.model.pod import Pod, PodSignature

CLUSTER = """\
name: research waits behind its own limit
nodes: [{name: "n[1-4]", gpu: 8}]
queues: [{name: prod, deserved: {gpu: 16}}, {name: research, deserved: {gpu: 16}, limit: {gpu: 24}}]
gangs:
- name: sweep
  queue: research
  pods: 3
  requests: {gpu: 8}
  runningOn: "n[1-3]"
  age: 1h
  priority: 5
  annotations: {muster.dev/run-seconds: "7200"}
- {name: other, queue: prod, requests: {gpu: 8}, runningOn: n4, age: 1h, priority: 5}
steps:
- submit: {name: llm, queue: research, pods: 2, requests: {gpu: 8}, priority: 5, annotations: {muster.dev/run-seconds: "7200"}}
- submit: {name: late, queue: research, pods: 2, requests: {gpu: 8}, priority: 1}
- submit: {name: all, queue: prod, pods: 4, requests: {gpu: 8}, priority: 1, annotations: {muster.dev/run-seconds: "60"}}
- submit: {name: huge, queue: prod, pods: 5, requests: {gpu: 8}, priority: 0, annotations: {muster.dev/run-seconds: "60"}}
- cycle
"""

OWNERS = """\
name: an owner's jobs run for ten to thirty minutes
nodes: [{name: n1, gpu: 8}]
queues: [{name: q}]
gangs:
- {name: train-1, queue: q, requests: {gpu: 8}, runDuration: 10m}
steps:
- run: 10m30s
- submit: {name: train-2, queue: q, requests: {gpu: 8}, runDuration: 20m}
- run: 20m30s
- submit: {name: train-3, queue: q, requests: {gpu: 8}, runDuration: 30m}
- run: 30m30s
- submit: {name: train-4, queue: q, requests: {gpu: 8}}
- run: 1m
- submit: {name: next, queue: q, requests: {gpu: 8}}
- cycle
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "owners.yaml").write_text(OWNERS)
    (tmp_path / "job.yaml").write_text("{name: train, namespace: prod, queue: prod, pods: 4, requests: {gpu: 8}}\n")
    return tmp_path


def starts(workspace: Path, *arguments: str) -> str:
    out = muster(*arguments, cwd=workspace).out
    found = [f"starts   {line.split(maxsplit=1)[1]}" for line in out.splitlines() if line.startswith(" starts ")]
    return found[0] if found else out


def test_declared_run_times_give_the_minute_in_which_it_starts(workspace: Path) -> None:
    assert starts(workspace, "why", "llm", "-c", "cluster.yaml") == (
        "starts   in 1h, at 01:00Z, if nobody comes before it (run times: 3 declared)"
    )
    assert "in 3h, at 03:00Z" in starts(workspace, "why", "late", "-c", "cluster.yaml")


def test_without_a_run_time_there_is_a_bound_and_with_an_assumed_one_an_expectation(workspace: Path) -> None:
    bound = starts(workspace, "why", "all", "-c", "cluster.yaml")
    assert bound.startswith("starts   not before 03:00Z: 3 pods run nobody knows how long (--run-time, --history)")
    assumed = starts(workspace, "why", "all", "-c", "cluster.yaml", "--run-time", "30m")
    assert "in 3h30m, at 03:30Z, if nobody comes before it (run times: 3 assumed" in assumed


def test_what_never_fits_never_starts_and_says_so(workspace: Path) -> None:
    found = starts(workspace, "why", "huge", "-c", "cluster.yaml", "--run-time", "30m")
    assert found.startswith("starts   not even when all that runs has ended")


def test_earlier_pods_of_the_same_owner_say_how_long_the_next_one_runs(workspace: Path) -> None:
    found = starts(workspace, "why", "next", "-c", "owners.yaml")
    assert found == "starts   in 19m10s, at 01:21Z (9m10s to 29m10s), if nobody comes before it (run times: 1 of earlier pods)"


def test_a_plan_says_when_and_where_in_the_queue_and_without_evictions(workspace: Path) -> None:
    found = starts(workspace, "plan", "job.yaml", "-c", "cluster.yaml", "--after-steps", "--run-time", "30m")
    assert found.startswith("starts   in 3h31m, at 03:31Z")
    assert found.endswith("; 3 of 3 in queue prod")
    document = muster("plan", "job.yaml", "-c", "cluster.yaml", "--json", "--run-time", "30m", cwd=workspace).document
    [gang] = document["gangs"]
    assert (gang["position"], gang["waitingInQueue"]) == (1, 1)
    assert gang["start"]["expectedSeconds"] == 3600.0
    assert gang["start"]["knownFrom"] == {"assumed": 1, "declared": 3}


def test_what_cannot_be_read_of_run_times_is_an_error(workspace: Path) -> None:
    result = muster("why", "llm", "-c", "cluster.yaml", "--run-time", "soon", cwd=workspace)
    assert (result.code, "--run-time: 'soon' is no duration" in result.err) == (64, True)
    result = muster("why", "llm", "-c", "cluster.yaml", "--history", "missing.jsonl", cwd=workspace)
    assert (result.code, "--history: missing.jsonl" in result.err) == (64, True)


def test_what_never_fits_is_not_told_a_bound_by_pods_of_which_nobody_knows(workspace: Path) -> None:
    assert starts(workspace, "why", "huge", "-c", "cluster.yaml").startswith("starts   not even when all that runs has ended")


def test_a_few_earlier_runs_of_an_owner_are_judged_by_how_much_those_of_all_owners_differ() -> None:
    def ended(owner: str, number: int, ran_s: float) -> tuple[Pod, float]:
        return Pod(f"{owner}-{number}", "team", f"{owner}-{number}-0", PodSignature()), ran_s

    many = [ended(owner, number, ran_s) for owner in "abcd" for number, ran_s in enumerate((800.0, 1000.0, 1250.0))]
    pod, _ = ended("a", 9, 0.0)
    few, known = run_times_of(many[:3]), run_times_of(many)
    assert few.of(pod, ran_s=0.0, part=0.5, declared=None) == ("of earlier pods", 1000.0)
    assert few.of(pod, ran_s=2000.0, part=0.5, declared=None) == ("unknown", None)
    source, middle = known.of(pod, ran_s=0.0, part=0.5, declared=None)
    assert (source, round(middle or 0.0)) == ("of earlier pods", 1000)
    # Who has outlived all of them ends soon, and nobody ends before now.
    ends = [known.of(pod, ran_s=2000.0, part=part, declared=None)[1] or 0.0 for part in (0.0, 0.5, 0.99)]
    assert 2000.0 <= ends[0] < ends[1] < ends[2] < 3000.0
    assert known.of(pod, ran_s=0.0, part=0.5, declared=600.0) == ("of earlier pods", 600.0)


def test_who_has_outlived_an_assumed_run_time_goes_on_for_as_long_again() -> None:
    known = run_times_of([], assumed=3600)
    pod = Pod(uid="p", namespace="n", name="p", created=0.0, signature=PodSignature())
    told = [known.of(pod, ran_s=ran_s, part=0.5, declared=None)[1] for ran_s in (0, 3599, 3600, 9000)]
    assert told == [3600, 3600, 7200, 10800]


KEPT = """\
name: a gang that has waited for long comes before a small one that would fit
nodes: [{name: "n[1-3]", gpu: 8}]
gangs:
- {name: first, requests: {gpu: 8}, runningOn: n1, age: 1s, annotations: {muster.dev/run-seconds: "3600"}}
- {name: second, pods: 2, requests: {gpu: 8}, runningOn: "n[2-3]", age: 1s, annotations: {muster.dev/run-seconds: "7200"}}
- {name: big, pods: 3, requests: {gpu: 8}, annotations: {muster.dev/run-seconds: "60"}}
- {name: small, requests: {gpu: 8}, annotations: {muster.dev/run-seconds: "36000"}}
"""


def test_nodes_that_will_be_kept_for_a_gang_are_kept_in_the_forecast(tmp_path: Path) -> None:
    (tmp_path / "kept.yaml").write_text(KEPT)
    result = muster("why", "big", "-c", "kept.yaml", cwd=tmp_path)
    assert "starts   in 2h, at 02:00Z, if nobody comes before it" in result.out


CONTENDED = """\
name: three gangs could have others evicted
priorityClasses: [{name: high, value: 100}]
nodes: [{name: "n[1-4]", gpu: 8}]
gangs:
- {name: low, pods: 4, requests: {gpu: 8}, min: 1, runningOn: "n[1-4]", age: 1h}
- {name: first, requests: {gpu: 8}, priority: 300}
- {name: second, requests: {gpu: 8}, priority: 200}
- {name: third, requests: {gpu: 8}, priority: 100}
"""


def test_once_the_time_is_over_only_the_gang_that_is_asked_about_is_looked_for_whom_it_evicts(tmp_path: Path) -> None:
    (tmp_path / "contended.yaml").write_text(CONTENDED)
    all_of_it = muster("why", "third", "-c", "contended.yaml", cwd=tmp_path)
    assert "default/third can run after evicting" in all_of_it.out
    assert "told as if" not in all_of_it.out
    hasty = muster("why", "third", "-c", "contended.yaml", "--seconds", "0", cwd=tmp_path)
    assert "default/third can run after evicting" in hasty.out
    assert "told as if 2 other waiting gangs had nobody evicted: the time to look whom was over (--seconds 0)" in hasty.out
    (tmp_path / "job.yaml").write_text("{name: more, requests: {gpu: 8}}")
    planned = muster("plan", "job.yaml", "-c", "contended.yaml", "--seconds", "0", "--json", cwd=tmp_path)
    assert planned.document["gangs"][0]["unsearched"] == 3
