"""Every scenario file is a test: its expectations hold, no invariant is violated, every eviction follows the rules, and a second
scheduler decides the same."""

from __future__ import annotations

import pytest
from tests.checks import run_checks
from tests.scenario_files import SCENARIO_DIR, all_scenarios

from muster.scenario import Scenario, run
from muster.scenario.syntax_tree import ExpectStep


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(scenario, id=f"{file.relative_to(SCENARIO_DIR)}: {scenario.name}") for file, scenario in all_scenarios()],
)
def test_it_comes_out_as_the_file_says(scenario: Scenario) -> None:
    report = run(scenario, checks=run_checks())
    assert report.ok, "\n" + report.explain()


def test_every_scenario_expects_something() -> None:
    for file, scenario in all_scenarios():
        assert any(isinstance(step, ExpectStep) for step in scenario.steps), f"{file}: {scenario.name}"


def test_no_two_scenarios_have_one_name() -> None:
    names = [scenario.name for _, scenario in all_scenarios()]
    assert len(names) == len(set(names))
