"""Every scenario about placement holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.scenario import Scenario, load, run

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "placement").glob("*.yaml"))
ALL = [scenario for file in FILES for scenario in load(file)]


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_the_scenario_holds(scenario: Scenario) -> None:
    report = run(scenario)
    assert report.ok, report.explain()
