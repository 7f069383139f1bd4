"""Every scenario of the manual about domains holds, and violates no invariant on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.scenario import Scenario, parse, run

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "topology.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(encoding="utf-8"), flags=re.DOTALL)
SCENARIOS = [scenario for example in EXAMPLES for scenario in parse(example, file=str(MANUAL))]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_scenario_holds(scenario: Scenario) -> None:
    report = run(scenario)
    assert report.ok, (report.failures, report.violations)
