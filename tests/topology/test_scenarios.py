"""Every scenario about domains holds, and breaks no law on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.scenario import Scenario, load, run

FOLDER = Path(__file__).parents[2] / "scenarios" / "topology"
SCENARIOS = [scenario for file in sorted(FOLDER.glob("*.yaml")) for scenario in load(file)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_scenario_holds(scenario: Scenario) -> None:
    report = run(scenario)
    assert report.ok, (report.failures, report.breaches)
