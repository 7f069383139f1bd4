"""A scheduler in the middle of its life, for tests that break something on purpose and look who notices."""

from __future__ import annotations

from tests.scenario.stories import story

from muster.model.effects import Outcome
from muster.scenario.laws import LAWS, Judge
from muster.scenario.play import Play

BUSY = """
nodes: [{name: "n[1-4]", gpu: 4, cpu: 16}]
queues: [{name: top}, {name: below, parent: top}, {name: beside, parent: top}]
gangs:
- {name: runs, queue: below, pods: 4, min: 2, each: {gpu: 1}, at: "n[1-4]"}
- {name: theirs, dialect: lone, scheduler: another, each: {cpu: 2}, at: n1}
steps:
- submit:
  - {name: small, queue: beside, pods: 2, each: {gpu: 2}}
  - {name: big, queue: below, pods: 5, each: {gpu: 3}}
"""


def play(text: str = BUSY, *, twin: bool = False) -> Play:
    """The scenario after its steps, with no cycle run that it does not ask for."""
    scenario = story(text)
    found = Play(scenario, twin=twin)
    found.set_up()
    for step in scenario.steps:
        assert found.do(step) == []
    return found


def broken_laws(found: Play) -> set[str]:
    """Which laws the next cycles break."""
    for _ in range(3):
        found.cycle()
    return {breach.law for breach in found.breaches}


def judged(found: Play, outcome: Outcome) -> set[str]:
    """Which laws the world breaks as it stands, after this outcome."""
    return {breach.law for breach in Judge(found.policy).look(found.world, outcome)}


__all__ = ["BUSY", "LAWS", "broken_laws", "judged", "play"]
