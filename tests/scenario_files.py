"""The scenarios of the folder `scenarios`, read once for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from muster.scenario import Scenario, load

SCENARIO_DIR = Path(__file__).parents[1] / "scenarios"


@cache
def all_scenarios() -> tuple[tuple[Path, Scenario], ...]:
    """Each with its file, in the order of the files."""
    return tuple((file, scenario) for file in sorted(SCENARIO_DIR.rglob("*.yaml")) for scenario in load(file))
