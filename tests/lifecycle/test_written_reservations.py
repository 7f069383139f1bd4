"""What is written of a reservation: in its Plan, and on the pod for others to read; gone when it is over (P1)."""

from __future__ import annotations

from tests.lifecycle.scenario_runs import EVICTING, annotations_of, nominated, pod, run_scenario

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.kube.write.patch_bodies import RESERVATION_ANNOTATIONS
from muster.scenario.scenario_runner import ScenarioRunner

PREEMPTING = f"""
{EVICTING}
nodes: [{{name: "n[1-2]", gpu: 1}}]
gangs: [{{name: low, pods: 2, requests: {{gpu: 1}}, runningOn: "n[1-2]", age: 1h, priority: 1}}]
steps:
- submit: {{name: g, pods: 2, requests: {{gpu: 1}}, priority: 5, annotations: {{example.com/mine: kept}}}}
- cycle
"""

WAITING_ON_PERMIT = """
policy: {plugins: [priority, fit, binpack], actions: [expire, enqueue, allocate]}
nodes: [{name: "n[1-2]", gpu: 1}]
gangs: [{name: block, apiFlavour: single-pod, requests: {gpu: 1}, runningOn: n2, runDuration: 1m}]
steps:
- submit:
    {name: g, apiFlavour: koordinator, mode: NonStrict, pods: 2, requests: {gpu: 1}, waitingTime: 5m,
     annotations: {example.com/mine: kept}}
- cycle
"""


def plan_of(play: ScenarioRunner) -> Manifest:
    (plan,) = play.cluster.listed("Plan")
    spec: Manifest = plan["spec"]
    return spec


def test_a_nomination_is_written_in_a_plan_and_on_the_pod_in_volcanos_annotations() -> None:
    play = run_scenario(PREEMPTING)
    written = annotations_of(play, "g-0")
    assert written[names.PIPELINED_STATUS] == "true"
    assert written[names.PIPELINED_NODE] == nominated(play, "g-0") == "n1"
    assert written[names.EVICTION_OCCURRED] == "true"
    plan = plan_of(play)
    member, (entry,) = plan["members"][0], plan["evictions"]
    assert (plan["gang"], len(plan["members"])) == ("volcano:default/g", 2)
    assert member["uid"] == pod(play, "g-0")["metadata"]["uid"]
    assert (member["phase"], member["node"], member["plan"]) == ("NOMINATED", "n1", entry["plan"])
    assert member["since"] == entry["since"] == play.cluster.now
    assert sorted(entry["victims"]) == sorted(pod(play, name)["metadata"]["uid"] for name in ("low-0", "low-1"))


def test_a_nomination_for_which_nobody_is_evicted_does_not_say_so() -> None:
    play = run_scenario(
        f"""
        {EVICTING}
        nodes: [{{name: n1, gpu: 1}}]
        gangs: [{{name: old, requests: {{gpu: 1}}, runningOn: n1}}]
        steps:
        - delete: old
        - submit: {{name: g, requests: {{gpu: 1}}}}
        - cycle
        - expect: {{nominated: [g], evicted: []}}
        """
    )
    written = annotations_of(play, "g-0")
    assert written[names.PIPELINED_STATUS] == "true"
    assert names.EVICTION_OCCURRED not in written


def test_a_reservation_is_written_too_but_not_as_a_nomination() -> None:
    play = run_scenario(WAITING_ON_PERMIT)
    written = annotations_of(play, "g-0")
    assert names.PIPELINED_STATUS not in written
    (member,) = plan_of(play)["members"]
    assert (member["phase"], member["node"]) == ("RESERVED", "n1")
    assert nominated(play, "g-0") == "n1"


def test_all_of_a_reservation_is_removed_when_it_is_bound() -> None:
    for text in (
        PREEMPTING + "- run: 40s\n- expect: {bound: {g: 2}}\n",
        WAITING_ON_PERMIT + "- run: 70s\n- expect: {bound: {g: 2}}\n",
    ):
        play = run_scenario(text)
        assert not set(RESERVATION_ANNOTATIONS) & set(annotations_of(play, "g-0"))
        assert nominated(play, "g-0") is None
        assert play.cluster.listed("Plan") == []


def test_all_of_a_reservation_is_removed_when_it_is_released() -> None:
    play = run_scenario(
        WAITING_ON_PERMIT.replace(", runDuration: 1m", "") + "- run: 6m\n- expect: {reserved: [], released: [g/0]}\n"
    )
    written = annotations_of(play, "g-0")
    assert not set(RESERVATION_ANNOTATIONS) & set(written)
    assert play.cluster.listed("Plan") == []
    assert written[names.GANG_TIMEOUT] == annotations_of(play, "g-1")[names.GANG_TIMEOUT] == "true"
    assert nominated(play, "g-0") is None


def test_a_reservation_that_is_found_on_a_bound_pod_is_removed() -> None:
    play = run_scenario(
        """
        nodes: [{name: n1, gpu: 1}]
        objects:
        - apiVersion: v1
          kind: Pod
          metadata:
            name: p
            uid: u-1
            annotations:
              volcano.sh/pipelined-status: "true"
              volcano.sh/pipelined-node: n1
              example.com/mine: kept
          spec: {schedulerName: muster, nodeName: n1, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 1}}}]}
          status: {phase: Running}
        steps:
        - cycle
        """
    )
    assert annotations_of(play, "p") == {"example.com/mine": "kept"}


def test_annotations_of_others_are_left_alone() -> None:
    for text in (PREEMPTING, PREEMPTING + "- run: 40s\n", WAITING_ON_PERMIT, WAITING_ON_PERMIT + "- run: 70s\n"):
        assert annotations_of(run_scenario(text), "g-0")["example.com/mine"] == "kept"


def test_the_start_of_a_reservation_is_written_anew_after_its_wait_was_paused() -> None:
    play = run_scenario(
        f"""
        {EVICTING}
        nodes: [{{name: "n[1-2]", gpu: 1}}]
        gangs:
        - {{name: low, requests: {{gpu: 1}}, runningOn: n2, age: 1h, priority: 1, terminationDuration: never}}
        - {{name: g, apiFlavour: koordinator, mode: NonStrict, waitingTime: 1h, pods: 2, requests: {{gpu: 1}}, priority: 5}}
        steps:
        - cycle
        - expect: {{reserved: [g/0], nominated: [g/1]}}
        - run: 100s
        - expect: {{reserved: [g/0], nominated: []}}
        """
    )
    began = play.cluster.now - play.at_s
    # The victim should have been gone after 30 s; 60 s later nobody counted on it any more.
    (member,) = plan_of(play)["members"]
    assert member["since"] == began + 90
