"""What was reported on an object ends with the object, and a status that another client overwrote is written again."""

from __future__ import annotations

from typing import Any

from tests.lifecycle.scenario_runs import run_scenario

from muster.scenario.scenario_runner import ScenarioRunner

POD_GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {"minMember": 2, "queue": "default"},
}
QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}}


def started() -> ScenarioRunner:
    return run_scenario("nodes: [{name: n1, cpu: 8}]\nsteps: [cycle]\n")


def status_after_cycles(run: ScenarioRunner, kind: str, namespace: str, name: str) -> dict[str, Any]:
    for _ in range(3):
        run.cycle()
    found = run.cluster.get(kind, namespace, name)
    assert found is not None
    status: dict[str, Any] = found.get("status") or {}
    return status


def test_a_pod_group_created_again_under_its_name_gets_its_status() -> None:
    run = started()
    run.cluster.apply(POD_GROUP)
    first = status_after_cycles(run, "PodGroup", "default", "g")
    assert first["phase"]
    run.cluster.delete("PodGroup", "default", "g")
    run.cycle()
    run.cluster.apply(POD_GROUP)
    again = status_after_cycles(run, "PodGroup", "default", "g")
    assert again["phase"] == first["phase"]


def test_a_pod_group_deleted_and_created_between_two_cycles_gets_its_status() -> None:
    run = started()
    run.cluster.apply(POD_GROUP)
    first = status_after_cycles(run, "PodGroup", "default", "g")
    run.cluster.delete("PodGroup", "default", "g")
    run.cluster.apply(POD_GROUP)
    assert status_after_cycles(run, "PodGroup", "default", "g")["phase"] == first["phase"]


def test_a_pod_group_status_that_another_client_overwrote_is_written_again() -> None:
    run = started()
    run.cluster.apply(POD_GROUP)
    first = status_after_cycles(run, "PodGroup", "default", "g")
    run.cluster.patch("PodGroup", "default", "g", {"status": {"phase": "Running"}})
    assert status_after_cycles(run, "PodGroup", "default", "g")["phase"] == first["phase"] != "Running"


def test_a_queue_created_again_under_its_name_gets_its_status() -> None:
    run = started()
    run.cluster.apply(QUEUE)
    first = status_after_cycles(run, "Queue", "", "q")
    assert first["state"] == "Open"
    run.cluster.delete("Queue", "", "q")
    run.cycle()
    run.cluster.apply(QUEUE)
    assert status_after_cycles(run, "Queue", "", "q") == first


def test_a_queue_status_that_another_client_overwrote_is_written_again() -> None:
    run = started()
    run.cluster.apply(QUEUE)
    first = status_after_cycles(run, "Queue", "", "q")
    run.cluster.patch("Queue", "", "q", {"status": {"pending": 77}})
    assert status_after_cycles(run, "Queue", "", "q")["pending"] == first.get("pending", 0) != 77
