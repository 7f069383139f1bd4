"""Every scenario file is a test: its expectations hold, no law is broken, and a second scheduler decides the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.scenario import Scenario, load, run

HOME = Path(__file__).parents[1] / "scenarios"


def every_scenario() -> Iterator[object]:
    for file in sorted(HOME.rglob("*.yaml")):
        for scenario in load(file):
            yield pytest.param(scenario, id=f"{file.relative_to(HOME)}: {scenario.name}")


@pytest.mark.parametrize("scenario", every_scenario())
def test_it_comes_out_as_the_file_says(scenario: Scenario) -> None:
    report = run(scenario, twin=True)
    assert report.ok, "\n" + report.explain()


def test_every_file_expects_something() -> None:
    for file in sorted(HOME.rglob("*.yaml")):
        for scenario in load(file):
            assert any(type(step).__name__ == "Expect" for step in scenario.steps), f"{file}: {scenario.name}"
