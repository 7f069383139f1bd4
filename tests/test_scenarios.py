"""Every scenario file is a test: its expectations hold, no invariant is violated, every eviction follows the rules, and a second
scheduler decides the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.checks import run_checks

from muster.scenario import Scenario, load, run
from muster.scenario.syntax_tree import ExpectStep

SCENARIO_DIR = Path(__file__).parents[1] / "scenarios"


SCENARIOS = [(file, scenario) for file in sorted(SCENARIO_DIR.rglob("*.yaml")) for scenario in load(file)]


@pytest.mark.parametrize(
    "scenario", [pytest.param(scenario, id=f"{file.relative_to(SCENARIO_DIR)}: {scenario.name}") for file, scenario in SCENARIOS]
)
def test_it_comes_out_as_the_file_says(scenario: Scenario) -> None:
    report = run(scenario, checks=run_checks())
    assert report.ok, "\n" + report.explain()


def test_every_scenario_expects_something() -> None:
    for file, scenario in SCENARIOS:
        assert any(isinstance(step, ExpectStep) for step in scenario.steps), f"{file}: {scenario.name}"


def test_no_two_scenarios_have_one_name() -> None:
    names = [scenario.name for _, scenario in SCENARIOS]
    assert len(names) == len(set(names))
