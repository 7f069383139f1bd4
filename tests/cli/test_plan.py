"""`muster plan`: the forecast of a job, and its exit code."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from tests.cli.commands import muster

from muster.cli.cluster_file import newest_time

CLUSTER = """\
name: two racks, both in use
policy:
  plugins: [priority, fit, binpack, lost-work, pdb, nominated, {topology: {tiers: {rack: rack}}}]
  actions: [expire, enqueue, allocate, preempt, gang-preempt]
nodes:
- {name: "r1n[1-4]", gpu: 8, labels: {rack: r1}}
- {name: "r2n[1-4]", gpu: 8, labels: {rack: r2}}
queues: [{name: team}]
objects:
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: llm, namespace: research}
  spec: {selector: {matchLabels: {app: llm}}, maxUnavailable: 3}
gangs:
- {name: llm, namespace: research, pods: 3, requests: {gpu: 8}, priority: 10, runningOn: "r1n[1-3]", age: 30m, labels: {app: llm}}
- {name: sweep, namespace: research, pods: 4, min: 3, requests: {gpu: 8}, priority: 10, runningOn: "r2n[1-4]", age: 3h}
steps:
- delete: research/sweep
- run: 1m
"""
HARD = """\
{name: train, namespace: prod, pods: 4, requests: {gpu: 8}, priority: 100, networkTopology: {mode: hard, highestTierAllowed: 1}}
"""
MANIFESTS = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: job, namespace: prod}
spec: {minMember: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: job-0, namespace: prod, annotations: {scheduling.k8s.io/group-name: job}}
spec: {schedulerName: muster, containers: [{name: main, resources: {requests: {nvidia.com/gpu: "8"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: job-1, namespace: prod, annotations: {scheduling.k8s.io/group-name: job}}
spec: {schedulerName: muster, containers: [{name: main, resources: {requests: {nvidia.com/gpu: "8"}}}]}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def run_plan(workspace: Path, job: str, *more: str) -> tuple[int, str, str]:
    (workspace / "job.yaml").write_text(job)
    result = muster("plan", "job.yaml", "--cluster", "cluster.yaml", *more, cwd=workspace)
    return result.code, result.out, result.err


def test_a_job_that_fits_can_run_now(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, "{name: small, requests: {gpu: 8}}\n")
    assert code == 0
    assert out == "default/small can run now.\n\n where    1 node: r1n4, 1 member each\n"


def test_a_job_that_needs_evictions_shows_the_victims_and_their_cost(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, HARD)
    assert code == 2
    assert out.splitlines() == [
        "prod/train can run after evicting 1 gang.",
        "",
        " where    r1, 4 nodes: r1n[1-4], 1 member each",
        " evicts   research/llm   3 pods, whole gang   priority 10 < 100   loses 0.5 h of work",
        " costs    12.0 GPU-hours of lost work; 1 gang ends",
        " touches  disruption budgets research/llm",
        " without  no rack fits 4 members (gpu 8 each): best of 2 is r1, which fits 1 (highest tier allowed: 1 (rack)); "
        "it would fit in the whole cluster when that is empty, for 4",
        " instead  r2: 96.0 GPU-hours (evicts research/sweep (4 pods))",
        " starts   without evicting anybody: not known: 7 pods run nobody knows how long (--run-time, --history); "
        "1 of 1 in queue default",
    ]


def test_evicting_surplus_members_keeps_their_gang_running(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, "{name: two, pods: 2, requests: {gpu: 8}, priority: 100}\n")
    assert code == 2
    assert "default/two can run after evicting surplus members of 1 gang." in out
    assert "research/sweep   1 of 4 pods, above its minimum of 3   priority 10 < 100   keeps running" in out
    assert "; no gang ends" in out


def test_a_job_that_cannot_run_shows_why_and_what_each_domain_lacks(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, HARD.replace("pods: 4", "pods: 5"))
    assert code == 3
    assert out.startswith("prod/train cannot run.\n\n why      ")
    assert "4 of 5" in out or "5" in out


def test_a_job_of_manifests_is_read_as_the_api_would(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, MANIFESTS)
    assert code == 3
    assert out.startswith("prod/job cannot run.")
    code, out, _ = run_plan(workspace, MANIFESTS, "--after-steps")
    assert code == 0
    assert out.startswith("prod/job can run now.")


def test_after_steps_the_cluster_is_as_the_scenario_leaves_it(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, HARD, "--after-steps")
    assert code == 0
    assert "4 nodes: r2n[1-4], 1 member each" in out


def test_another_policy_may_say_otherwise(workspace: Path) -> None:
    (workspace / "meek.yaml").write_text("plugins: [priority, fit, binpack]\nactions: [allocate]\n")
    code, out, _ = run_plan(workspace, HARD, "--policy", "meek.yaml")
    assert code == 3
    assert "cannot run" in out


def test_json_has_all_of_it(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, HARD, "--json")
    document = json.loads(out)
    assert (code, document["code"], document["ok"]) == (2, 2, True)
    (gang,) = document["gangs"]
    assert gang["domain"] == "r1"
    assert gang["placements"][0] == ["prod/train-0", "r1n1"]
    assert gang["evictedGangs"][0]["gang"] == "research/llm"
    assert gang["gpuHours"] == 12.0
    assert [alternative["domain"] for alternative in gang["alternatives"]] == ["r2"]


def test_a_snapshot_of_objects_is_a_cluster_too(workspace: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}},
    }
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unknown-to-us"}}
    whole = {"apiVersion": "v1", "kind": "List", "items": [other, node]}
    (workspace / "snapshot.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode()))
    (workspace / "job.yaml").write_text("{name: small, requests: {gpu: 8}}\n")
    result = muster("plan", "job.yaml", "--cluster", "snapshot.json.gz", cwd=workspace)
    assert (result.code, result.out) == (0, "default/small can run now.\n\n where    1 node: n1, 1 member each\n"), result.err


def test_bad_input_is_no_answer(workspace: Path) -> None:
    for job, message in (
        ("{name: small, request: {gpu: 8}}\n", "Did you mean 'requests'?"),
        ("{name: small, queue: taem}\n", "Did you mean 'team'?"),
        (CLUSTER, "this is a scenario, not a job: pass it as --cluster"),
        ("", "no job in this file"),
    ):
        code, out, err = run_plan(workspace, job)
        assert (code, out) == (64, ""), err
        assert message in err


def test_wrong_use_is_no_answer(workspace: Path) -> None:
    (workspace / "job.yaml").write_text(HARD)
    assert "no kubeconfig at" in muster("plan", "job.yaml", cwd=workspace, KUBECONFIG="nowhere").err
    assert muster("plan", "job.yaml", "--cluster", "nowhere.yaml", cwd=workspace).code == 64
    assert muster("plan", "--no-such-option", cwd=workspace).code == 64
    assert muster("plan", "--help", cwd=workspace).code == 0


def test_several_scenarios_in_a_file_are_distinguished_by_their_line(workspace: Path) -> None:
    text = "name: a\nnodes: [{name: n1, gpu: 8}]\n---\nname: b\nnodes: [{name: n2, gpu: 8}]\n"
    (workspace / "two.yaml").write_text(text)
    (workspace / "job.yaml").write_text("{name: small, requests: {gpu: 8}}\n")
    result = muster("plan", "job.yaml", "--cluster", "two.yaml", cwd=workspace)
    assert result.code == 64
    assert "contains 2 scenarios, at lines 1, 4: select one, such as two.yaml:1" in result.err
    assert "n2" in muster("plan", "job.yaml", "--cluster", "two.yaml:4", cwd=workspace).out


JOB = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sweep-b, namespace: prod}
spec:
  parallelism: 2
  template:
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""
CUSTOM = """\
apiVersion: example.com/v1
kind: Trainer
metadata: {name: own, namespace: prod}
spec:
  size: 2
  template:
    spec: {schedulerName: muster, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""


def test_a_job_of_pods_that_start_by_themselves_has_one_answer_and_says_what_is_assumed(workspace: Path) -> None:
    code, out, _ = run_plan(workspace, JOB)
    assert code == 0
    assert out.splitlines()[0] == "prod/sweep-b can run now with 1 of 2 members."
    assert "each pod starts by itself, because nothing makes them a gang (--min N does)" in out
    assert "schedulerName muster (it names none); queue default (--queue)" in out
    code, out, _ = run_plan(workspace, JOB, "--min", "2", "--priority", "100")
    assert code == 2
    assert out.startswith("prod/sweep-b can run after evicting surplus members of 1 gang.")
    assert "priority 10 < 100" in out
    assert "queue team" not in run_plan(workspace, JOB, "--queue", "team")[1]


def test_a_kind_that_is_not_known_is_read_by_the_paths_that_one_names(workspace: Path) -> None:
    code, _, err = run_plan(workspace, CUSTOM)
    assert code == 64
    assert "the kind Trainer is not known; name where its pods are: --pods spec.template --replicas spec.replicas" in err
    code, out, _ = run_plan(workspace, CUSTOM, "--pods", "spec.template", "--replicas", "spec.size")
    assert (code, out.splitlines()[0]) == (0, "prod/own can run now.")
    assert "a gang that needs all of its 2 pods (--min)" in out


def test_a_folder_is_one_job_and_equal_names_are_told_apart(workspace: Path) -> None:
    (workspace / "jobs").mkdir()
    (workspace / "jobs" / "a.yaml").write_text(JOB)
    (workspace / "jobs" / "b.yaml").write_text(JOB.replace("batch/v1", "apps/v1").replace("kind: Job", "kind: Deployment"))
    result = muster("plan", "jobs", "--cluster", "cluster.yaml", "--json", cwd=workspace)
    assert [gang["gang"] for gang in result.document["gangs"]] == ["prod/sweep-b", "prod/sweep-b-deployment"]


def listed(*items: object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def observed_pod(name: str, scheduler: str, node: str | None) -> dict[str, object]:
    spec = {
        "schedulerName": scheduler,
        "priority": 5,
        "containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    }
    metadata = {"name": name, "namespace": "prod", "uid": name, "creationTimestamp": "2026-07-01T03:00:00Z"}
    if node is None:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    status = {"phase": "Running", "startTime": "2026-07-01T03:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status}


def test_kubectl_output_is_as_old_as_its_newest_object_and_pods_that_exist_are_asked_about(workspace: Path) -> None:
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "n1", "creationTimestamp": "2026-07-01T05:00:00Z"},
        "status": {"allocatable": amounts},
    }
    running, waiting = observed_pod("old", "volcano", "n1"), observed_pod("new", "volcano", None)
    (workspace / "live.json").write_text(listed(node, running))
    job = listed({**waiting, "spec": {**waiting["spec"], "priority": 9}})  # type: ignore[dict-item]
    (workspace / "job.json").write_text(job)
    result = muster("plan", "job.json", "--cluster", "live.json", "--as-scheduler", "volcano", cwd=workspace)
    assert result.code == 2, result.err + result.out
    assert "loses 2.0 h of work" in result.out
    result = muster("plan", "job.json", "--cluster", "live.json", cwd=workspace)
    assert result.code == 3
    assert "1 pod of the scheduler volcano count as used and are not evicted; --as-scheduler volcano" in result.out
    (workspace / "job.json").write_text(listed(running))
    result = muster("plan", "job.json", "--cluster", "live.json", "--as-scheduler", "volcano", cwd=workspace)
    assert (result.code, result.out.splitlines()[0]) == (0, "prod/old runs already.")


def test_what_the_command_line_says_counts_for_a_gang_in_scenario_syntax_too(workspace: Path) -> None:
    job = "{name: small, requests: {gpu: 8}}\n"
    code, out, _ = run_plan(workspace, job, "--min", "2", "-n", "prod", "--seconds", "0")
    assert code == 3
    assert out.startswith("prod/small cannot run.\n\n why      1 of at least 2 members exist")
    assert "queue nosuch does not exist" in run_plan(workspace, job, "--queue", "nosuch", "--seconds", "0")[1]
    code, _, err = run_plan(workspace, job, "--priority", "nosuch")
    assert code == 64
    assert "there is no PriorityClass 'nosuch'" in err


GROUPS = """\
apiVersion: example.com/v1
kind: Trainer
metadata: {name: own, namespace: prod}
spec:
  groups:
  - {size: 2, template: &pod {spec: {schedulerName: muster, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
  - {size: 3, template: *pod}
"""


def test_each_item_of_a_list_may_have_a_template(workspace: Path) -> None:
    _, _, err = run_plan(workspace, GROUPS)
    assert "name where its pods are: --pods 'spec.groups[].template' --replicas" in err
    _, out, _ = run_plan(workspace, GROUPS, "--pods", "spec.groups[].template", "--replicas", "spec.groups[].size")
    assert "a gang that needs all of its 5 pods (--min)" in out


def test_a_path_that_is_not_there_is_an_error_and_not_one_pod(workspace: Path) -> None:
    code, out, err = run_plan(workspace, CUSTOM, "--pods", "spec.template", "--replicas", "spec.siz")
    assert (code, out) == (64, "")
    assert "Trainer own has no spec.siz (--replicas)" in err
    _, _, err = run_plan(workspace, CUSTOM, "--pods", "spec.templat")
    assert "Trainer has no pod template at spec.templat; name where its pods are: --pods spec.template" in err
    _, _, err = run_plan(workspace, CUSTOM.replace("kind: Trainer\n", ""))
    assert "an object has no kind; write for example kind: Job" in err


def test_a_value_that_an_api_server_would_refuse_is_named_with_its_field(workspace: Path) -> None:
    code, out, err = run_plan(workspace, JOB.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: eight"))
    assert (code, out) == (64, "")
    assert "Pod sweep-b-0: spec.containers[0].resources.limits[nvidia.com/gpu]: 'eight'" in err
    code, _, err = run_plan(workspace, JOB.replace("parallelism: 2", "parallelism: two"))
    assert code == 64
    assert "job.yaml:9: job: Job sweep-b: spec.parallelism: 'two' is no number of pods" in err


PODS = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: sweep-b, namespace: prod}
spec: {minMember: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: sweep-b-0, namespace: prod, annotations: {scheduling.k8s.io/group-name: sweep-b}}
spec: {schedulerName: muster, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_pods_of_a_workload_replace_no_others_and_what_is_assumed_of_it_is_said_of_it_alone(workspace: Path) -> None:
    _, out, _ = run_plan(workspace, f"{JOB}---\n{PODS}", "--json")
    gangs = {gang["gang"]: gang for gang in json.loads(out)["gangs"]}
    assert gangs["prod/sweep-b"]["assumed"] == []
    assert (gangs["prod/sweep-b"]["members"], gangs["prod/sweep-b-job"]["members"]) == (1, 2)


def test_a_suspended_job_is_planned_as_if_it_was_resumed_and_that_is_said(workspace: Path) -> None:
    suspended = "it is suspended ({}): this is what would happen once it is resumed"
    code, out, _ = run_plan(workspace, JOB.replace("parallelism: 2", "suspend: true\n  parallelism: 1"), "--json")
    (gang,) = json.loads(out)["gangs"]
    assert (code, gang["assumed"][0]) == (0, suspended.format("spec.suspend"))
    assert "suspended" not in run_plan(workspace, JOB.replace("parallelism: 2", "suspend: false\n  parallelism: 1"))[1]
    pytorch = (Path(__file__).parent / "jobs" / "pytorchjob.yaml").read_text()
    code, out, _ = run_plan(workspace, pytorch.replace("runPolicy: {", "runPolicy: {suspend: true, "), "--json")
    (gang,) = json.loads(out)["gangs"]
    assert suspended.format("spec.runPolicy.suspend") in gang["assumed"]


def test_a_namespace_that_is_not_the_manifests_own_is_an_error(workspace: Path) -> None:
    code, out, err = run_plan(workspace, JOB, "-n", "research")
    assert (code, out) == (64, "")
    assert "job.yaml:7: job: its namespace is prod, but research was asked for (--namespace)" in err
    assert "its namespace is prod, but research" in run_plan(workspace, HARD, "-n", "research")[2]
    assert run_plan(workspace, JOB, "-n", "prod")[1].startswith("prod/sweep-b can run now")
    assert run_plan(workspace, JOB.replace(", namespace: prod", ""), "-n", "research")[1].startswith("research/sweep-b can run now")


def test_a_pod_group_that_names_no_namespace_is_in_that_of_its_pods(workspace: Path) -> None:
    nowhere = PODS.replace(", namespace: prod", "")
    _, out, _ = run_plan(workspace, nowhere, "-n", "prod", "--json")
    assert [(gang["gang"], gang["min"]) for gang in json.loads(out)["gangs"]] == [("prod/sweep-b", 1)]
    assert run_plan(workspace, nowhere, "-n", "prod")[1] == run_plan(workspace, PODS)[1]


def test_a_job_that_is_not_submitted_is_changed_by_options_and_one_that_waits_by_commands(workspace: Path) -> None:
    (workspace / "job.yaml").write_text("{name: big, pods: 3, min: 3, requests: {gpu: 8}, priority: 1}\n")
    (workspace / "waits.yaml").write_text(CLUSTER.partition("steps:")[0] + "- {name: big, pods: 3, min: 3, requests: {gpu: 8}}\n")
    planned = muster("plan", "job.yaml", "-c", "cluster.yaml", cwd=workspace).out
    assert "its minimum were 1: --min 1" in planned
    assert "kubectl" not in planned
    assert muster("plan", "job.yaml", "-c", "cluster.yaml", "--min", "1", cwd=workspace).code == 0
    waits = muster("why", "big", "-c", "waits.yaml", cwd=workspace).out
    assert "kubectl -n default patch podgroups.scheduling.volcano.sh big" in waits


@pytest.mark.parametrize("group", ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io"])
def test_a_command_names_the_pod_group_of_its_own_api_group(workspace: Path, group: str) -> None:
    label = "pod-group.scheduling.sigs.k8s.io" if group == "scheduling.sigs.k8s.io" else "scheduling.x-k8s.io/pod-group"
    objects: list[dict[str, object]] = [
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}},
        {"kind": "PodGroup", "apiVersion": f"{group}/v1alpha1", "metadata": {"name": "g", "uid": "g"}, "spec": {"minMember": 3}},
    ]
    for number in range(3):
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": f"g-{number}", "namespace": "default", "uid": f"{number}", "labels": {label: "g"}}
        spec = {"schedulerName": "muster", "containers": [container]}
        objects.append({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec})
    objects[1]["metadata"] = {"name": "g", "namespace": "default", "uid": "g"}
    (workspace / "list.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    told = muster("why", "g", "-c", "list.json", cwd=workspace).out
    assert f"its minimum were 2: kubectl -n default patch podgroups.{group} g --type merge" in told


def test_what_the_reason_says_already_is_no_alternative(workspace: Path) -> None:
    _, out, _ = run_plan(workspace, "{name: big, pods: 9, requests: {gpu: 8}, priority: 1}\n")
    reasons = [each.strip() for each in out.replace("\n          ", " ").splitlines()]
    [why] = [each.removeprefix("why").strip() for each in reasons if each.startswith("why ")]
    assert not [each for each in reasons if each.startswith("instead ") and each.partition(": ")[2] in why]


def test_times_of_yaml_count_however_they_are_quoted() -> None:
    times = []
    for quote in ("'", '"', ""):
        stamp = f"{quote}2030-03-10T14:00:00Z{quote}"
        node = (
            f"kind: Node\napiVersion: v1\nmetadata: {{name: n, creationTimestamp: {stamp}}}\nstatus: {{allocatable: {{cpu: 2}}}}\n"
        )
        times.append(newest_time(node))
    assert times == [1899381600.0] * 3


NEEDS_ONE = """\
name: one node is free, and a surplus pod runs on each other
nodes: [{name: "n[1-4]", gpu: 8}]
queues: [{name: prod, deserved: {gpu: 16}}, {name: research, deserved: {gpu: 16}}]
gangs:
- {name: sweep, queue: research, pods: 3, min: 1, requests: {gpu: 8}, runningOn: "n[1-3]", age: 4h, priority: 5}
- {name: llm, queue: research, pods: 4, requests: {gpu: 8}, age: 3h, priority: 10}
"""


def test_a_plan_evicts_what_the_scheduler_would_and_no_more(workspace: Path) -> None:
    (workspace / "one.yaml").write_text(NEEDS_ONE)
    (workspace / "job.yaml").write_text("{name: mine, queue: prod, pods: 2, requests: {gpu: 8}, priority: 5}\n")
    [gang] = muster("plan", "job.yaml", "-c", "one.yaml", "--json", cwd=workspace).document["gangs"]
    assert [(each["gang"], len(each["pods"]), each["wholeGang"]) for each in gang["evictedGangs"]] == [("default/sweep", 1, False)]


def test_kubectls_list_and_a_snapshot_of_the_same_objects_have_one_answer(workspace: Path) -> None:
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n1", "uid": "n1"},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}},
    }
    running = observed_pod("old", "muster", "n1")
    (workspace / "list.json").write_text(listed(node, running))
    newest = max(re.findall(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed(node, running)))
    snapshot = json.loads(listed(node, running)) | {"metadata": {"annotations": {"muster.dev/snapshot-at": newest}}}
    (workspace / "snapshot.json").write_text(json.dumps(snapshot))
    (workspace / "job.yaml").write_text("{name: mine, pods: 2, requests: {cpu: 1}, priority: 100}\n")
    answers = [muster("plan", "job.yaml", "-c", f"{name}.json", "--json", cwd=workspace).document for name in ("list", "snapshot")]
    assert answers[0] == answers[1]
