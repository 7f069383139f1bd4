"""The twin that throws derived values away notices a scheduler that keeps one too long."""

from __future__ import annotations

import pytest
from tests.checks.scheduler_twin import SAME_DECISION
from tests.scenario.running_scenarios import run_steps, violated_invariants

from muster.model.topics import Topic
from muster.state.changes import Changes

LABEL_COMES_LATER = """
nodes: [{name: n1, gpu: 1}]
gangs: [{name: g, requests: {gpu: 1}, nodeSelector: {disk: fast}}]
steps:
- cycle: 2
- node: {label: {n1: {disk: fast}}}
"""


def test_the_twin_decides_the_same() -> None:
    found = run_steps(LABEL_COMES_LATER, twin=True)
    assert violated_invariants(found) == set()
    assert found.decided_effects


def test_a_stale_derived_value_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derived values do not depend on labels any more: the scheduler still finds no node with the label, its twin does."""
    stamp = Changes.stamp

    def without_labels(self: Changes, topics: tuple[Topic, ...]) -> tuple[int, ...]:
        return stamp(self, tuple(topic for topic in topics if topic is not Topic.NODE_LABELS))

    monkeypatch.setattr(Changes, "stamp", without_labels)
    assert SAME_DECISION in violated_invariants(run_steps(LABEL_COMES_LATER, twin=True))
