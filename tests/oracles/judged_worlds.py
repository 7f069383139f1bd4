"""Worlds written as scenarios, and plans written by hand, for tests of the oracles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import dedent

from tests.oracles.legality import judge
from tests.oracles.needless import needless_findings
from tests.oracles.snapshot import Finding, History, JudgedPlan, Snapshot, rules_of, snapshot_of

from muster.scenario import parse
from muster.scenario.scenario_runner import ScenarioRunner

POLICY = """
policy:
  plugins: [{plugins}]
  actions: [expire, enqueue, allocate]
"""
PLUGINS = "priority, capacity, elastic-quota, selectors, unschedulable, taints, fit, devices, binpack, pdb, lost-work"


def world(text: str, *, plugins: str = PLUGINS, history: History | None = None) -> Snapshot:
    """The world after one cycle that evicts nobody."""
    (scenario,) = parse(f"name: a world\n{POLICY.format(plugins=plugins).lstrip()}{dedent(text).lstrip()}", file="world.yaml")
    runner = ScenarioRunner(scenario)
    runner.set_up()
    for step in scenario.steps:
        runner.run_step(step)
    runner.cycle()
    placements = dict(runner.world.placements.by_uid)
    found = snapshot_of(runner.world.facts, placements, now=runner.world.now, rules=rules_of(runner.policy))
    return found if history is None else replace(found, history=history)


def plan(s: Snapshot, asker: str, action: str, placed: Mapping[str, str], victims: Sequence[str]) -> JudgedPlan:
    """Pods and gangs by their names in the default namespace."""
    uids = {pod.name: uid for uid, pod in s.pods.items()}
    key = next(gang.key for gang in s.gangs.values() if gang.full_name.rsplit("/", 1)[-1] == asker)
    return JudgedPlan(key, action, {uids[name]: node for name, node in placed.items()}, tuple(uids[name] for name in victims))


def findings(s: Snapshot, judged: JudgedPlan) -> list[Finding]:
    found = judge(s, judged)
    return [*found.findings, *needless_findings(s, judged, found.units)]


def broken_rules(s: Snapshot, judged: JudgedPlan) -> set[str]:
    return {finding.rule for finding in findings(s, judged)}
