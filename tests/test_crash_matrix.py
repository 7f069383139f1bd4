"""Killing the scheduler at any moment loses nothing: every scenario, with a crash before and after every write in turn."""

from __future__ import annotations

import os

import pytest
from tests.checks.crash_matrix import EndState, run_to_end
from tests.scenario_files import SCENARIO_DIR, all_scenarios

from muster.scenario import Scenario
from muster.scenario.syntax_tree import CrashStep, FailStep
from muster.sim.fault_injection import FaultRates

pytestmark = pytest.mark.crash

MAX_POINTS = int(os.environ.get("MUSTER_CRASH_POINTS", "6"))
"""Longer scenarios are killed at this many moments, evenly spread; `make crashes` takes 200: all, but for the longest."""

FORGOTTEN = frozenset({"running pods count against the limit of their queue when their PodGroup is deleted"})
"""Nothing that the API server has says which queue a deleted PodGroup named: a scheduler that starts afterwards cannot know."""


def _takes_part(scenario: Scenario) -> bool:
    """Faults of the network make two runs differ by themselves, and effects that fail once do not fail for the next scheduler."""
    if scenario.name in FORGOTTEN:
        return False
    has_faults = scenario.faults != FaultRates(seed=scenario.faults.seed)
    return not has_faults and not any(isinstance(step, FailStep | CrashStep) for step in scenario.steps)


SCENARIOS = [
    pytest.param(scenario, id=f"{file.relative_to(SCENARIO_DIR)}: {scenario.name}")
    for file, scenario in all_scenarios()
    if _takes_part(scenario) and file.name != "demo.yaml"
]


def crash_points(writes: int) -> list[int]:
    if writes <= MAX_POINTS:
        return list(range(writes + 1))
    return sorted({round(i * writes / (MAX_POINTS - 1)) for i in range(MAX_POINTS)})


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_ends_the_same_wherever_the_scheduler_dies(scenario: Scenario) -> None:
    undisturbed = run_to_end(scenario)
    for after in crash_points(undisturbed.writes):
        disturbed = run_to_end(scenario, crash_after=after)
        assert differences(undisturbed, disturbed) == [], f"when it dies after {after} of {undisturbed.writes} writes"


def differences(expected: EndState, found: EndState) -> list[str]:
    said = [f"invariant broken: {violation}" for violation in found.violations]
    said += [f"leak: {leak}" for leak in found.leaked_reservations]
    before, after = dict(expected.pods), dict(found.pods)
    said += [
        f"{pod}: {before.get(pod, 'is not there')} without a crash, {after.get(pod, 'is not there')} with it"
        for pod in sorted({*before, *after})
        if before.get(pod) != after.get(pod)
    ]
    once, again = dict(expected.write_counts), dict(found.write_counts)
    said += [
        f"{decided}: {once.get(decided, 0)} times without a crash, {again.get(decided, 0)} times with it"
        for decided in sorted({*once, *again})
        if once.get(decided) != again.get(decided)
    ]
    return said


def test_most_scenarios_take_part() -> None:
    assert len(SCENARIOS) > 50
    names = {scenario.name for _, scenario in all_scenarios()}
    assert names >= FORGOTTEN
