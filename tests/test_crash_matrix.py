"""Killing the scheduler at any moment loses nothing: every scenario, with a crash before and after every write in turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.scenario import Scenario, load
from muster.scenario.crashes import End, end_of
from muster.scenario.story import Crash, Fail

pytestmark = pytest.mark.crash

HOME = Path(__file__).parents[1] / "scenarios"
MOST_POINTS = int(os.environ.get("MUSTER_CRASH_POINTS", "6"))
"""Longer stories are killed at this many moments, evenly spread; `make crashes` takes 200: all, but for the longest."""


def _joins(scenario: Scenario) -> bool:
    """Faults of the network make two runs differ by themselves, and deeds that fail once do not fail again for a new scheduler."""
    return not scenario.faults and not any(isinstance(step, Fail | Crash) for step in scenario.steps)


SCENARIOS = [
    pytest.param(scenario, id=f"{file.relative_to(HOME)}: {scenario.name}")
    for file in sorted(HOME.rglob("*.yaml"))
    for scenario in load(file)
    if _joins(scenario) and file.name != "demo.yaml"
]


def moments(writes: int) -> list[int]:
    if writes <= MOST_POINTS:
        return list(range(writes + 1))
    return sorted({round(i * writes / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_ends_the_same_wherever_the_scheduler_dies(scenario: Scenario) -> None:
    undisturbed = end_of(scenario)
    for after in moments(undisturbed.writes):
        disturbed = end_of(scenario, crash_after=after)
        assert differences(undisturbed, disturbed) == [], f"when it dies after {after} of {undisturbed.writes} writes"


def differences(expected: End, found: End) -> list[str]:
    said = [f"law broken: {breach}" for breach in found.breaches]
    said += [f"leak: {leak}" for leak in found.leaks]
    before, after = dict(expected.pods), dict(found.pods)
    said += [
        f"{pod}: {before.get(pod, 'is not there')} without a crash, {after.get(pod, 'is not there')} with it"
        for pod in sorted({*before, *after})
        if before.get(pod) != after.get(pod)
    ]
    once, again = dict(expected.deeds), dict(found.deeds)
    said += [
        f"{deed}: {once.get(deed, 0)} times without a crash, {again.get(deed, 0)} times with it"
        for deed in sorted({*once, *again})
        if once.get(deed) != again.get(deed)
    ]
    return said


def test_most_scenarios_take_part() -> None:
    assert len(SCENARIOS) > 50
