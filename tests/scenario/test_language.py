"""What a scenario file may say, and what is said about one that is wrong: file, line, field, value and the nearest right one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenario.inline_scenarios import FILE, load_error, parse_one

from muster.kube.read.object_references import Manifest
from muster.scenario import load, parse
from muster.scenario.manifest_builder import gang_manifests, group
from muster.scenario.syntax_tree import AdvanceStep, CycleStep, ExpectStep, GangSpec, RestartStep, RunStep, SubmitStep
from muster.yaml_positions import InputError

# -- what is right -----------------------------------------------------------------------------------------------------------------


def test_a_file_holds_one_scenario_for_each_document(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("name: one\n---\nname: two\nnodes: [{name: n1}]\n", encoding="utf-8")
    assert [scenario.name for scenario in load(file)] == ["one", "two"]


def test_a_node_has_defaults_and_any_resource_by_its_full_name() -> None:
    found = parse_one("nodes: [{name: 'n[1-2]', gpu: 8, example.com/fpga: 2}]")
    assert [node["metadata"]["name"] for node in found.nodes] == ["n1", "n2"]
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8", "example.com/fpga": "2"}
    assert found.nodes[0]["status"]["allocatable"] == allocatable
    assert found.nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"


def pods(gang: GangSpec) -> list[Manifest]:
    return [manifest for manifest in gang_manifests(gang, now=0.0) if manifest["kind"] == "Pod"]


def test_a_gang_becomes_a_pod_group_and_numbered_pods() -> None:
    (gang,) = parse_one("gangs: [{name: low, pods: 3, min: 2, requests: {gpu: 4}, priority: 1, namespace: a}]").gangs
    declared = group(gang, now=0.0)
    assert declared is not None
    assert declared["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert declared["spec"] == {"minMember": 2, "priorityClassName": "priority-1"}
    made = pods(gang)
    assert [pod["metadata"]["name"] for pod in made] == ["low-0", "low-1", "low-2"]
    assert made[0]["spec"]["schedulerName"] == "muster"
    assert made[0]["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "4"}


def test_roles_inherit_what_the_gang_says_and_add_their_own() -> None:
    (gang,) = parse_one(
        """
        gangs:
        - name: job
          requests: {cpu: 1}
          roles: [{name: boss, pods: 1}, {name: worker, pods: 3, min: 2, requests: {gpu: 1}}]
        """
    ).gangs
    assert gang.min == 3
    assert [(role.name, role.min) for role in gang.roles] == [("boss", 1), ("worker", 2)]
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods(gang)]
    assert requests == [{"cpu": "1"}, *[{"nvidia.com/gpu": "1"}] * 3]
    declared = group(gang, now=0.0)
    assert declared is not None
    assert declared["spec"]["minTaskMember"] == {"boss": 1, "worker": 2}
    names = [pod["metadata"]["name"] for pod in pods(gang)]
    assert names == ["job-boss-0", "job-worker-0", "job-worker-1", "job-worker-2"]


def test_one_node_takes_all_members_and_a_list_gives_each_its_own() -> None:
    found = parse_one(
        """
        nodes: [{name: "n[1-3]"}]
        gangs:
        - {name: here, pods: 2, runningOn: n2}
        - {name: there, pods: 3, runningOn: "n[1-2]"}
        """
    )
    assert [gang.roles[0].running_on for gang in found.gangs] == [("n2", "n2"), ("n1", "n2")]


@pytest.mark.parametrize("flavour", ["volcano", "koordinator", "sigs", "native", "annotation", "single-pod"])
def test_a_gang_can_be_declared_in_every_flavour(flavour: str) -> None:
    (gang,) = parse_one(f"gangs: [{{name: g, pods: 2, apiFlavour: {flavour}}}]").gangs
    assert (group(gang, now=0.0) is None) == (flavour in ("annotation", "single-pod"))


def test_steps_are_read_in_order_and_some_may_be_a_single_word() -> None:
    steps = parse_one("steps: [cycle, {cycle: 3}, {advance: 5m}, restart, {run: 2h}, {run: {for: 1h, every: 30s}}]").steps
    assert [type(step) for step in steps] == [CycleStep, CycleStep, AdvanceStep, RestartStep, RunStep, RunStep]
    assert steps[4] == RunStep(2, 7200.0, 10.0)
    assert steps[5] == RunStep(2, 3600.0, 30.0)


def test_an_annotation_that_is_no_text_becomes_its_json_text() -> None:
    found = parse_one(
        """
        objects:
        - apiVersion: v1
          kind: Pod
          metadata:
            name: p
            annotations: {a: 5, b: ["x/y", "z"], c: true, d: 1.10, e: {f: 1}, g: 3600s}
        """
    )
    expected = {"a": "5", "b": '["x/y", "z"]', "c": "true", "d": "1.10", "e": '{"f": 1}', "g": "3600s"}
    assert found.objects[0].manifest["metadata"]["annotations"] == expected


def test_what_is_true_now_is_checked_before_time_goes_on() -> None:
    (step,) = parse_one("steps: [{expect: {stable: 5, evicted: []}}]").steps
    assert isinstance(step, ExpectStep)
    assert [check.key for check in step.checks] == ["evicted", "stable"]


def test_a_range_of_gangs_is_as_many_gangs() -> None:
    (step,) = parse_one("steps: [{submit: {name: 'job[1-3]', pods: 2}}]").steps
    assert isinstance(step, SubmitStep)
    assert [gang.name for gang in step.gangs] == ["job1", "job2", "job3"]


def test_a_policy_may_be_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("plugins: [fit, priority]\nactions: [allocate]\n", encoding="utf-8")
    file = tmp_path / "scenario.yaml"
    file.write_text("name: a\npolicy: policy.yaml\n", encoding="utf-8")
    assert load(file)[0].policy == tmp_path / "policy.yaml"


# -- what is wrong -----------------------------------------------------------------------------------------------------------------

WRONG = (
    # text, line, part of the message, suggestion
    ("name: a\nnodez: []\n", 2, "unknown key 'nodez'", "nodes"),
    ("name: a\nnodes: [{name: n1, gpus: 4}]\n", 2, "unknown key 'gpus'", "gpu"),
    ("name: a\ngangs:\n- name: g\n  piority: 5\n", 4, "unknown key 'piority'", "priority"),
    ("name: a\nsteps:\n- cicle: 1\n", 3, "unknown step 'cicle'", "cycle"),
    ("name: a\ngangs: [{name: g}]\nsteps:\n- expect: {boundd: {g: 1}}\n", 4, "unknown key 'boundd'", "bound"),
    ("name: a\ngangs: [{name: g, pods: -1}]\n", 2, "gangs[0].pods: -1 is below 1", "1"),
    ("name: a\ngangs: [{name: g, pods: two}]\n", 2, "takes a whole number, not the text 'two'", ""),
    ("name: a\ngangs: [{name: g, pods: 2, min: 3}]\n", 2, "3 is more than the 2 members that can exist", "2"),
    ("name: a\ngangs: [{name: g, pods: 2, initialPods: 3}]\n", 2, "3 is more than the 2 members that can exist", "2"),
    ("name: a\nnodes: [{name: node1}]\ngangs: [{name: g, runningOn: nod1}]\n", 3, "there is no node 'nod1'", "node1"),
    ("name: a\nnodes: [{name: 'n[1-3]'}, {name: n2}]\n", 2, "nodes: duplicate name 'n2'", ""),
    ("name: a\ngangs: [{name: g}, {name: g}]\n", 2, "gangs: duplicate name 'default/g'", ""),
    ("name: a\nqueues: [{name: prod}]\ngangs: [{name: g, queue: prd}]\n", 3, "there is no queue 'prd'", "prod"),
    ("name: a\nqueues: [{name: q, parent: p}]\n", 2, "there is no queue 'p'", ""),
    (
        "name: a\npriorityClasses: [{name: high, value: 9}]\ngangs: [{name: g, priorityClassName: hihg}]\n",
        3,
        "there is no priority class 'hihg'",
        "high",
    ),
    ("name: a\nsteps: [{advance: 300}]\n", 2, "'300' is no duration", "300s"),
    ("name: a\nsteps: [{run: {every: 5s}}]\n", 2, "has no for", ""),
    ("name: a\nsteps: [{run: {for: 5s, every: 0s}}]\n", 2, "must be above zero", "10s"),
    ("name: a\nsteps: [{cycle: 1, advance: 5s}]\n", 2, "a step has one key", ""),
    ("name: a\ngangs: [{name: gang-a}]\nsteps:\n- expect: {bound: {gang-b: 2}}\n", 4, "there is no gang 'gang-b'", "gang-a"),
    ("name: a\nsteps: [{delete: Quueue/q}]\n", 2, "Quueue", ""),
    ("name: a\nsteps: [{node: {fail: n1}}]\n", 2, "there is no node 'n1'", ""),
    ("name: a\nnodes: [{name: n1}]\nsteps: [{node: {fail: n1, cordon: n1}}]\n", 3, "takes one of fail, recover", ""),
    ("name: a\nnodes: [{name: n1, taints: 'a=b:NoSchedul'}]\n", 2, "'NoSchedul' is no effect of a taint", "NoSchedule"),
    ("name: a\nnodes: [{name: n1, cpu: 4x}]\n", 2, "'4x' is not a quantity", ""),
    ("name: a\nnodes: [{name: N_1}]\n", 2, "'N_1' is no name", "n-1"),
    ("name: a\ngangs: [{name: g, mode: strict}]\n", 2, "unknown mode 'strict'", "Strict"),
    ("name: a\ngangs: [{name: g, apiFlavour: koord, roles: [{name: a}]}]\n", 2, "unknown apiFlavour 'koord'", "koordinator"),
    (
        "name: a\ngangs: [{name: g, apiFlavour: single-pod, roles: [{name: a}]}]\n",
        2,
        "only a gang of the API flavour volcano has roles",
        "",
    ),
    ("name: a\ngangs: [{name: g, roles: [{name: a}, {name: a}]}]\n", 2, "there are two roles 'a'", ""),
    ("name: a\nfaults: {delayed: 2}\n", 2, "takes a fraction from 0 to 1", ""),
    ("name: a\nobjects: [{kind: Pod, apiVersion: v1, metadata: {}}]\n", 2, "metadata.name", ""),
    ("name: a\nobjects: [{kind: Pood, apiVersion: v1, metadata: {name: a}}]\n", 2, "'Pood'", ""),
    ("name: a\nsteps: [{patch: {object: Queue/q}}]\n", 2, "has no merge", ""),
    ("name: a\ngangs: [{name: g}]\nsteps: [{expect: {stage: {g: wating}}}]\n", 3, "unknown stage 'wating'", "waiting"),
    ("name: a\npolicy: {plugins: [fitt]}\n", 2, "unknown plugin 'fitt'", "fit"),
    ("steps: []\n", 1, "scenario has no name", ""),
    ("", 1, "there is no scenario in this file", ""),
    ("name: a\n---\nname: a\n", 3, "scenarios: duplicate name 'a'", ""),
)


@pytest.mark.parametrize(("text", "line", "message", "suggestion"), WRONG)
def test_a_mistake_is_reported_with_its_line_and_what_was_probably_meant(
    text: str, line: int, message: str, suggestion: str
) -> None:
    found = load_error(text).faults[0]
    assert (found.file, found.line) == (FILE, line)
    assert message in found.message
    assert found.suggestion == suggestion


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    found = load_error(
        """
        name: a
        nodes: [{name: n1, gpus: 4}]
        gangs: [{name: g, pods: 0}]
        steps:
        - advance: soon
        """
    )
    assert [fault.line for fault in found.faults] == [2, 3, 5]


def test_a_key_that_yaml_reads_as_a_boolean_is_refused_with_advice() -> None:
    found = load_error("name: a\nnodes: [{name: n1, labels: {on: 1}}]\n")
    assert "as a boolean" in found.faults[0].message


def test_a_mistake_in_the_policy_is_reported_with_its_line_in_the_scenario() -> None:
    found = load_error(
        """
        name: a
        policy:
          plugins:
          - fit
          - proportions
        """
    )
    assert (found.faults[0].file, found.faults[0].line) == (FILE, 5)


def test_a_policy_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("name: a\npolicy: nowhere.yaml\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load(file)


def test_a_name_that_is_in_two_namespaces_must_say_which() -> None:
    text = "name: a\ngangs: [{name: g}, {name: g, namespace: b}]\nsteps: [{expect: {bound: {%s: 1}}}]\n"
    assert "is in several namespaces: write default/g or b/g" in load_error(text % "g").faults[0].message
    (found,) = parse(text % "b/g", file=FILE)
    assert found.steps


def test_a_member_of_a_gang_with_roles_is_named_with_its_role() -> None:
    text = "name: a\ngangs: [{name: job, roles: [{name: worker, pods: 2}]}]\nsteps: [{expect: {bound: [%s]}}]\n"
    assert load_error(text % "job/1").faults[0].suggestion == "job/worker/1"
    (found,) = parse(text % "job/worker/1", file=FILE)
    assert found.steps


def test_bad_cluster_input_is_no_mistake_of_the_scenario() -> None:
    found = parse_one(
        """
        objects:
        - {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {minMember: -3, queue: nowhere}}
        - {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{resources: {requests: {cpu: lots}}}]}}
        """
    )
    assert len(found.objects) == 2
