"""What it costs to write down a plan: one object for a gang of any size, beside one patch for each of its members."""

from __future__ import annotations

import json
from collections import Counter

from tests.scenario.inline_scenarios import parse_one

from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import SubmitStep

PREEMPTS = """
nodes: [{name: "n[1-100]", gpu: 10}]
gangs:
- {name: low, pods: 1000, requests: {gpu: 1}, terminationDuration: 20s}
steps:
- cycle
- advance: 5s
- submit: {name: high, pods: 1000, requests: {gpu: 1}, priority: 9}
- cycle
- run: 1m
"""


def test_a_gang_of_a_thousand_that_preempts_costs_one_plan_when_it_begins_and_one_deletion_when_it_ends() -> None:
    scenario = parse_one(PREEMPTS)
    runner = ScenarioRunner(scenario)
    runner.set_up()
    largest = before = 0
    for step in scenario.steps:
        if isinstance(step, SubmitStep):
            before = len(runner.cluster.writes)
        runner.run_step(step)
        largest = max([largest, *(len(json.dumps(plan)) for plan in runner.cluster.listed("Plan"))])
    writes = Counter((write.verb, write.kind) for write in runner.cluster.writes[before:])
    assert writes["save", "Plan"] == 2
    assert writes["save", "History"] <= 2
    assert writes["bind", "Pod"] == 1000
    # The API server takes 1.5 MiB.
    assert largest < 512 * 1024


DELETED = """
nodes: [{name: "n[1-2]", gpu: 8}]
gangs:
- {name: low, pods: 2, requests: {gpu: 8}, runningOn: "n[1-2]", terminationDuration: 5m}
steps:
- submit: {name: high, pods: 2, requests: {gpu: 8}, priority: 9}
- cycle: 2
- delete: high
- restart
- cycle: 2
- advance: 10m
- cycle: 2
"""


def test_a_plan_whose_gang_was_deleted_while_nobody_scheduled_is_deleted() -> None:
    scenario = parse_one(DELETED)
    runner = ScenarioRunner(scenario)
    runner.set_up()
    plans = []
    for step in scenario.steps:
        runner.run_step(step)
        plans.append(len(runner.cluster.listed("Plan")))
    assert plans[1] == 1
    assert plans[-1] == 0
