"""Claims are redeemed without a search, moved when other room is free first, and counted (P3)."""

from __future__ import annotations

from tests.lifecycle.telling import EVICTING, stat, told

CLEARING = f"""
{EVICTING}
nodes: [{{name: "n[1-2]", gpu: 1}}]
gangs: [{{name: low, pods: 2, each: {{gpu: 1}}, at: "n[1-2]", created: -1h, priority: 1}}]
steps:
- submit: {{name: g, pods: 2, each: {{gpu: 1}}, priority: 5}}
- cycle
"""


def test_claims_that_are_redeemed_are_counted() -> None:
    play = told(CLEARING + "- run: 40s\n- expect: {bound: {g: 2}}\n")
    assert stat(play, "claims redeemed") == 2
    assert stat(play, "claims moved") == 0


def test_claims_that_are_given_up_for_other_room_are_counted() -> None:
    play = told(CLEARING + '- node: {add: {name: "m[1-2]", gpu: 1}}\n- cycle\n- expect: {bound: {g: "m[1-2]"}}\n')
    assert stat(play, "claims moved") == 2
    assert stat(play, "claims redeemed") == 0


def test_claims_that_are_lost_are_counted() -> None:
    play = told(CLEARING.replace("priority: 1}]", "priority: 1, leaves: never}]") + "- node: {remove: n1}\n- cycle\n")
    assert stat(play, "claims lost") == 1


def test_claims_that_are_recovered_are_counted() -> None:
    play = told(CLEARING + "- restart\n- cycle\n- expect: {nominated: {g: 2}}\n")
    assert stat(play, "claims recovered") == 2


def test_a_promise_that_nobody_keeps_expires_and_is_counted() -> None:
    impatient = CLEARING.replace("gang-preempt]}", "gang-preempt], settings: {claimSeconds: 20}}")
    play = told(impatient.replace("priority: 1}]", "priority: 1, leaves: never}]") + "- run: 60s\n")
    assert stat(play, "claims expired") >= 1
