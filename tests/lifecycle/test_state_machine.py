"""The table of ARCHITECTURE.md is what the code does: each change of stage is shown by the scenario that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.scenario_files import all_scenarios

from muster.kube.read import names
from muster.kube.write.patch_bodies import RESERVATION_ANNOTATIONS
from muster.model.effects import Outcome
from muster.model.gang import Stage
from muster.scenario import Scenario
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import ExpectStep
from muster.state.gangs.gang_stage import stage

ROOT = Path(__file__).parents[2]
GONE = "deleted"


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


ROWS = table("The life of a gang")
SCENARIOS = {scenario.name: scenario for _, scenario in all_scenarios()}


class _StageRecorder(ScenarioRunner):
    """A play that notes from which stage to which each gang went from one cycle to the next."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.changes: set[tuple[str, str]] = set()
        self._stages: dict[str, str] = {}

    def cycle(self, *, max_writes: int | None = None) -> Outcome:
        outcome = super().cycle(max_writes=max_writes)
        now = {key: stage(self.world, gang).value for key, gang in self.world.facts.gangs.items()}
        for key in {*now, *self._stages}:
            self.changes.add((self._stages.get(key, GONE), now.get(key, GONE)))
        self._stages = now
        return outcome


def stage_changes_in(scenario: Scenario) -> set[tuple[str, str]]:
    play = _StageRecorder(scenario)
    play.set_up()
    for step in scenario.steps:
        if not isinstance(step, ExpectStep):
            play.run_step(step)
    return play.changes


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]} to {row[2]}: {row[4]}") for row in ROWS])
def test_the_scenario_of_each_row_shows_its_change(row: list[str]) -> None:
    before, _, after, _, name = row
    assert name in SCENARIOS
    assert (before, after) in stage_changes_in(SCENARIOS[name])


def test_the_table_knows_every_stage_and_no_other() -> None:
    named = {cell for row in ROWS for cell in (row[0], row[2])}
    assert named == {stage.value for stage in Stage} | {GONE}


def test_every_annotation_that_carries_state_is_in_the_table_of_facts() -> None:
    text = " ".join(" ".join(row) for row in table("Where each fact lives"))
    named = {word for word in re.findall(r"`([^`]+)`", text) if re.match(r"[a-z.]+/", word)}
    assert named == {*RESERVATION_ANNOTATIONS, names.GANG_TIMEOUT, names.SOFT_EVICTION}
    assert named <= names.WRITTEN_ANNOTATIONS
