"""A scenario run up to its end, to look at what stands on the objects then."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from tests.checks import run_checks

from muster.model.effects import Outcome
from muster.scenario.loader import parse
from muster.scenario.scenario_runner import ScenarioRunner

EVICTING = "policy: {plugins: [priority, fit, binpack, nominated], actions: [expire, enqueue, allocate, gang-preempt]}"


class _RecordingPlay(ScenarioRunner):
    """A play that remembers what each cycle decided."""

    outcomes: list[Outcome]

    def cycle(self, *, max_writes: int | None = None) -> Outcome:
        outcome = super().cycle(max_writes=max_writes)
        self.__dict__.setdefault("outcomes", []).append(outcome)
        return outcome


def run_scenario(text: str) -> _RecordingPlay:
    """The run after all its steps, whose expectations held and in which no invariant was violated."""
    (scenario,) = parse("name: a scenario\n" + dedent(text), file="<test>")
    play = _RecordingPlay(scenario, checks=run_checks(twin=False))
    play.set_up()
    for step in scenario.steps:
        mismatches = play.run_step(step)
        assert not mismatches, mismatches
    assert not play.violations, play.violations
    return play


def pod(play: ScenarioRunner, name: str) -> dict[str, Any]:
    found = play.cluster.get("Pod", "default", name)
    assert found is not None
    return found


def annotations_of(play: ScenarioRunner, name: str) -> dict[str, str]:
    """The annotations of a pod, without those that are for the simulated cluster."""
    found = pod(play, name)["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if not key.startswith("sim.")}


def nominated(play: ScenarioRunner, name: str) -> str | None:
    found: str | None = (pod(play, name).get("status") or {}).get("nominatedNodeName")
    return found


def status(play: ScenarioRunner, name: str) -> dict[str, Any]:
    for group in play.cluster.listed("PodGroup"):
        if group["metadata"]["name"] == name:
            found: dict[str, Any] = group.get("status") or {}
            return found
    raise AssertionError(f"there is no PodGroup {name}")


def total_of(play: _RecordingPlay, what: str) -> int:
    """A figure of all cycles together."""
    return sum(dict(outcome.stats).get(what, 0) for outcome in play.outcomes)
