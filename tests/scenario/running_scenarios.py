"""A scheduler in the middle of its life, for tests that break something on purpose and look who notices."""

from __future__ import annotations

from tests.checks import run_checks
from tests.scenario.inline_scenarios import parse_one

from muster.model.effects import Outcome
from muster.scenario.invariants import InvariantChecker
from muster.scenario.scenario_runner import ScenarioRunner

BUSY = """
nodes: [{name: "n[1-4]", gpu: 4, cpu: 16}]
queues: [{name: top}, {name: below, parent: top}, {name: beside, parent: top}]
gangs:
- {name: runs, queue: below, pods: 4, min: 2, requests: {gpu: 1}, runningOn: "n[1-4]"}
- {name: theirs, apiFlavour: single-pod, schedulerName: another, requests: {cpu: 2}, runningOn: n1}
steps:
- submit:
  - {name: small, queue: beside, pods: 2, requests: {gpu: 2}}
  - {name: big, queue: below, pods: 5, requests: {gpu: 3}}
"""


def run_steps(text: str = BUSY, *, twin: bool = False) -> ScenarioRunner:
    """The scenario after its steps, with no cycle run that it does not ask for."""
    scenario = parse_one(text)
    found = ScenarioRunner(scenario, checks=run_checks(twin=twin))
    found.set_up()
    for step in scenario.steps:
        assert found.run_step(step) == []
    return found


def violated_invariants(found: ScenarioRunner) -> set[str]:
    """Which invariants the next cycles break."""
    for _ in range(3):
        found.cycle()
    return {violation.invariant for violation in found.violations}


def invariants_violated_after(found: ScenarioRunner, outcome: Outcome) -> set[str]:
    """Which invariants the world breaks as it stands, after this outcome."""
    return {violation.invariant for violation in InvariantChecker(found.policy).check_cycle(found.world, outcome)}


__all__ = ["BUSY", "invariants_violated_after", "run_steps", "violated_invariants"]
