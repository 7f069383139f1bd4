"""What it costs to write down a plan: one object for a gang of any size, beside one patch for each of its members."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest
from tests.checks.crash_matrix import run_to_end
from tests.scenario.inline_scenarios import parse_one
from tests.test_crash_matrix import differences

from muster.kube.read import saved_objects
from muster.model.pod import Phase
from muster.model.saved_state import SavedEvictions, SavedMember, SavedPlan
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import RestartStep, SubmitStep

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


LARGE = """
nodes: [{name: "n[1-4]", gpu: 8}]
gangs:
- {name: low, pods: 4, requests: {gpu: 8}, runningOn: "n[1-4]", terminationDuration: 5m}
steps:
- submit: {name: high, pods: 4, requests: {gpu: 8}, priority: 9}
- run: 1m
- delete: high/1
- run: 10m
"""


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_objects, "MAX_PLAN_BYTES", 700)


@pytest.mark.usefixtures("small_objects")
def test_a_plan_that_is_too_large_for_one_object_survives_a_crash_at_every_write() -> None:
    scenario = parse_one(LARGE)
    undisturbed = run_to_end(scenario)
    for after in range(undisturbed.writes + 1):
        assert differences(undisturbed, run_to_end(scenario, crash_after=after)) == [], f"after {after} writes"


@pytest.mark.usefixtures("small_objects")
def test_no_object_of_a_plan_is_left_behind_wherever_the_scheduler_dies() -> None:
    for after in range(60):
        runner = ScenarioRunner(parse_one(LARGE))
        runner.set_up()
        runner.run_step(runner.scenario.steps[0])
        runner.cycle(max_writes=after)
        plans = runner.cluster.listed("Plan")
        sizes = [len(msgspec.json.encode({**plan["spec"], "parts": []})) for plan in plans]
        assert max(sizes, default=0) < 800
        for step in (RestartStep(line=0), *runner.scenario.steps[1:]):
            runner.run_step(step)
        assert runner.cluster.listed("Plan") == []
    assert len(plans) > 2


def test_a_plan_of_ten_thousand_members_with_long_names_is_in_objects_that_the_server_takes() -> None:
    uids = [f"{n:036}" for n in range(10_000)]
    members = tuple(SavedMember(uid, f"{'n' * 63}/{uid:>0253}", f"{uid:>0253}", Phase.NOMINATED, 1.5, "p" * 300) for uid in uids)
    plan = SavedPlan("volcano:a/g", members, (SavedEvictions("p", "preempt", 1.5, tuple(uids)),), name="first")
    specs = saved_objects.plan_specs(plan)
    assert max(len(msgspec.json.encode(spec)) for spec in specs.values()) < 1024 * 1024
    first, *rest = specs
    assert (first, specs[first]["parts"], len(rest)) == ("first", rest, 12)
    assert [member["uid"] for spec in specs.values() for member in spec["members"]] == uids
    assert [uid for spec in specs.values() for entry in spec["evictions"] for uid in entry["victims"]] == uids
