"""The nominated are bound without a search, moved when other capacity is free first, and counted (P3)."""

from __future__ import annotations

from tests.lifecycle.scenario_runs import EVICTING, run_scenario, total_of

PREEMPTING = f"""
{EVICTING}
nodes: [{{name: "n[1-2]", gpu: 1}}]
gangs: [{{name: low, pods: 2, requests: {{gpu: 1}}, runningOn: "n[1-2]", age: 1h, priority: 1}}]
steps:
- submit: {{name: g, pods: 2, requests: {{gpu: 1}}, priority: 5}}
- cycle
"""


def test_nominations_that_are_bound_are_counted() -> None:
    play = run_scenario(PREEMPTING + "- run: 40s\n- expect: {bound: {g: 2}}\n")
    assert total_of(play, "reservations bound") == 2
    assert total_of(play, "reservations moved") == 0


def test_nominations_that_are_given_up_for_other_nodes_are_counted() -> None:
    play = run_scenario(PREEMPTING + '- node: {add: {name: "m[1-2]", gpu: 1}}\n- cycle\n- expect: {bound: {g: "m[1-2]"}}\n')
    assert total_of(play, "reservations moved") == 2
    assert total_of(play, "reservations bound") == 0


def test_nominations_that_are_lost_are_counted() -> None:
    play = run_scenario(
        PREEMPTING.replace("priority: 1}]", "priority: 1, terminationDuration: never}]") + "- node: {remove: n1}\n- cycle\n"
    )
    assert total_of(play, "reservations lost") == 1


def test_nominations_that_are_recovered_are_counted() -> None:
    play = run_scenario(PREEMPTING + "- restart\n- cycle\n- expect: {nominated: {g: 2}}\n")
    assert total_of(play, "reservations recovered") == 2


def test_a_nomination_that_is_never_bound_expires_and_is_counted() -> None:
    impatient = PREEMPTING.replace("gang-preempt]}", "gang-preempt], settings: {nominationSeconds: 20}}")
    play = run_scenario(impatient.replace("priority: 1}]", "priority: 1, terminationDuration: never}]") + "- run: 60s\n")
    assert total_of(play, "reservations expired") >= 1
