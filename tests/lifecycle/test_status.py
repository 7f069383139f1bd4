"""What PodGroups say of their gangs: phase, counts, since when, and a condition (A11)."""

from __future__ import annotations

import pytest
from tests.lifecycle.scenario_runs import run_scenario, status

from muster.model.effects import PodGroupStatus

GANG = "{name: g, apiFlavour: FLAVOUR, pods: 2, requests: {gpu: 1}"
HEAD = "nodes: [{name: n1, gpu: 2}]\n"


@pytest.mark.parametrize(
    ("steps", "koordinator", "volcano"),
    [
        (
            "- submit: {name: g, apiFlavour: FLAVOUR, pods: 2, initialPods: 1, requests: {gpu: 1}}\n- cycle: 2\n",
            "Pending",
            "Inqueue",
        ),
        ("- submit: {name: g, apiFlavour: FLAVOUR, pods: 2, requests: {gpu: 2}}\n- cycle: 2\n", "PreScheduling", "Inqueue"),
        ("- submit: GANG, runningOn: [n1]}\n- fail: {bind: g/1, times: 9}\n- cycle: 2\n", "Scheduling", "Inqueue"),
        ("- submit: GANG, startupDuration: 1h}\n- cycle: 3\n", "Scheduled", "Running"),
        ("- submit: GANG}\n- run: 10s\n- cycle\n", "Running", "Running"),
        ("- submit: GANG, runDuration: 10s}\n- run: 30s\n", "Finished", "Completed"),
        ("- submit: GANG, runDuration: 10s, exitPhase: Failed}\n- run: 30s\n", "Failed", "Completed"),
    ],
)
def test_every_phase_as_its_flavour_writes_it(steps: str, koordinator: str, volcano: str) -> None:
    for flavour, phase in (("koordinator", koordinator), ("sigs", koordinator), ("volcano", volcano)):
        play = run_scenario(HEAD + "steps:\n" + steps.replace("GANG", GANG).replace("FLAVOUR", flavour))
        assert status(play, "g")["phase"] == phase, flavour


def test_the_counts_and_the_start_are_written() -> None:
    play = run_scenario(
        HEAD + "steps:\n- submit: {name: g, apiFlavour: koordinator, pods: 2, requests: {gpu: 1}}\n- run: 10s\n- cycle\n"
    )
    found = status(play, "g")
    assert (found["scheduled"], found["running"], found["succeeded"], found["failed"]) == (2, 2, 0, 0)
    assert found["scheduleStartTime"]


def test_the_start_survives_a_restart() -> None:
    steps = HEAD + "steps:\n- submit: {name: g, apiFlavour: koordinator, pods: 3, requests: {gpu: 1}}\n- cycle: 2\n"
    before = status(run_scenario(steps), "g")["scheduleStartTime"]
    after = status(run_scenario(steps + "- advance: 1h\n- restart\n- cycle: 3\n"), "g")["scheduleStartTime"]
    assert after == before


@pytest.mark.parametrize("flavour", ["koordinator", "sigs", "volcano"])
def test_what_a_pod_group_says_already_is_not_written_again_after_a_restart(flavour: str) -> None:
    steps = "steps:\n- submit: GANG}\n- run: 10s\n- cycle\n- restart\n- cycle: 2\n"
    play = run_scenario(HEAD + steps.replace("GANG", GANG).replace("FLAVOUR", flavour))
    assert not [effect for outcome in play.outcomes[-2:] for effect in outcome.effects if isinstance(effect, PodGroupStatus)]


def test_what_happened_meanwhile_is_written_after_a_restart() -> None:
    steps = "steps:\n- submit: GANG, startupDuration: 10s}\n- cycle: 2\n- advance: 1m\n- restart\n- cycle: 2\n"
    assert status(run_scenario(HEAD + steps.replace("GANG", GANG).replace("FLAVOUR", "koordinator")), "g")["phase"] == "Running"


def test_a_gang_of_one_runs_with_one() -> None:
    play = run_scenario(
        HEAD + "steps:\n- submit: {name: g, apiFlavour: koordinator, pods: 1, requests: {gpu: 1}}\n- run: 10s\n- cycle\n"
    )
    assert status(play, "g")["phase"] == "Running"


def test_one_failed_member_does_not_fail_a_gang_whose_minimum_runs() -> None:
    play = run_scenario(
        """
        nodes: [{name: n1, gpu: 4}]
        objects:
        - {apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}
        gangs:
        - {name: good, apiFlavour: single-pod, pods: 2, requests: {gpu: 1}, labels: {pod-group.scheduling.sigs.k8s.io: g}}
        - name: bad
          apiFlavour: single-pod
          requests: {gpu: 1}
          runDuration: 10s
          exitPhase: Failed
          labels: {pod-group.scheduling.sigs.k8s.io: g}
        steps:
        - run: 1m
        """
    )
    found = status(play, "g")
    assert (found["phase"], found["running"], found["failed"]) == ("Running", 2, 1)


def test_a_member_that_succeeded_counts_while_the_others_run() -> None:
    play = run_scenario(
        """
        nodes: [{name: n1, gpu: 4}]
        objects:
        - {apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}
        gangs:
        - {name: long, apiFlavour: single-pod, requests: {gpu: 1}, labels: {pod-group.scheduling.sigs.k8s.io: g}}
        - {name: short, apiFlavour: single-pod, requests: {gpu: 1}, runDuration: 10s, labels: {pod-group.scheduling.sigs.k8s.io: g}}
        - name: bad
          apiFlavour: single-pod
          requests: {gpu: 1}
          runDuration: 10s
          exitPhase: Failed
          labels: {pod-group.scheduling.sigs.k8s.io: g}
        steps:
        - run: 1m
        """
    )
    found = status(play, "g")
    assert (found["phase"], found["running"], found["succeeded"], found["failed"]) == ("Running", 1, 1, 1)


def test_the_condition_says_why_and_then_that_all_is_well() -> None:
    waits = HEAD + "steps:\n- submit: {name: g, apiFlavour: koordinator, pods: 3, requests: {gpu: 1}}\n- cycle: 2\n"
    (said,) = status(run_scenario(waits), "g")["conditions"]
    assert (said["type"], said["status"], said["reason"]) == ("Scheduled", "False", "InsufficientCapacity")
    assert "2/3 members placed" in said["message"]
    (said,) = status(run_scenario(waits + "- node: {resize: {n1: {gpu: 3}}}\n- cycle: 2\n"), "g")["conditions"]
    assert (said["type"], said["status"]) == ("Scheduled", "True")
