"""Any history at all: events in an order that nobody thought of, found by search and cut down to the shortest that fails.

What fails is written to a file in the scenario language, ready to be kept: its name is in the failure.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.checks import run_checks

from muster.scenario import parse
from muster.scenario.field_reader import Field
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.step_parser import parse_step
from muster.scenario.symbol_table import SymbolTable
from muster.yaml_positions import InputFaults, yaml_value

Document = dict[str, Any]

NODES = ("n1", "n2", "n3", "n4")
SHAPES = st.fixed_dictionaries(
    {
        "pods": st.integers(1, 5),
        "requests": st.fixed_dictionaries({"gpu": st.integers(0, 3), "cpu": st.integers(1, 4)}),
        "priority": st.sampled_from((0, 5, 9)),
        "queue": st.sampled_from(("red", "blue", "default")),
        "apiFlavour": st.sampled_from(("volcano", "koordinator", "native", "annotation", "single-pod")),
        "runDuration": st.sampled_from(("5s", "40s", "10m")),
        "terminationDuration": st.sampled_from(("0s", "20s", "100s")),
        "mode": st.sampled_from(("Strict", "Strict", "NonStrict")),
    },
    optional={"controller": st.just("recreate"), "recreateLimit": st.integers(1, 3), "schedulerName": st.just("another")},
)


class Histories(RuleBasedStateMachine):
    """A cluster of four nodes. Every rule is a step of the language: it is written down, then done."""

    gangs = Bundle("gangs")
    up = Bundle("up")
    down = Bundle("down")

    @initialize(target=up, gpu=st.integers(1, 4), seed=st.integers(0, 9), node_problems=st.booleans())
    def begin(self, gpu: int, seed: int, *, node_problems: bool) -> object:
        self.document: Document = {
            "name": "a history that was found by search",
            "seed": seed,
            "nodes": [{"name": name, "gpu": gpu, "cpu": 8} for name in NODES],
            "queues": [{"name": "red"}, {"name": "blue", "weight": 3}],
            "steps": [],
        }
        if node_problems:
            self.document["faults"] = {"delayed": 0.2, "dropped": 0.1, "duplicated": 0.2, "reordered": 0.2, "bindFailures": 0.2}
        self.made = 0
        self.play = ScenarioRunner(from_document(self.document), checks=run_checks())
        self.play.set_up()
        return multiple(*NODES)

    def step(self, written: Document) -> None:
        """Append a step to the history, and do it."""
        steps = self.document["steps"]
        steps.append(written)
        faults = InputFaults("history")
        at = Field(yaml_value(written), f"steps[{len(steps) - 1}]", faults)
        found = parse_step(at, SymbolTable(yaml_value(self.document)))
        faults.raise_any()
        assert found is not None
        self.play.run_step(found)

    @rule(target=gangs, shape=SHAPES, least=st.integers(1, 5))
    def submit(self, shape: Document, least: int) -> str:
        self.made += 1
        name = f"g{self.made}"
        self.step({"submit": {"name": name, **shape, "min": min(least, shape["pods"])}})
        return name

    @rule(gang=consumes(gangs))
    def delete(self, gang: str) -> None:
        self.step({"delete": gang})

    @rule(gang=gangs, number=st.integers(0, 4))
    def lose_member(self, gang: str, number: int) -> None:
        self.step({"delete": f"{gang}/{number}"})

    @rule(gang=gangs, to=st.integers(0, 6))
    def scale(self, gang: str, to: int) -> None:
        self.step({"scale": {gang: to}})

    @rule(gang=gangs, times=st.integers(1, 3))
    def fail_binds(self, gang: str, times: int) -> None:
        self.step({"fail": {"bind": gang, "times": times}})

    @rule(target=down, node=consumes(up), verb=st.sampled_from(("fail", "remove")))
    def lose_node(self, node: str, verb: str) -> str:
        self.step({"node": {verb: node}})
        return node

    @rule(target=up, node=consumes(down))
    def recover_node(self, node: str) -> str:
        self.step({"node": {"recover": node}})
        return node

    @rule(node=up, verb=st.sampled_from(("cordon", "uncordon")))
    def cordon(self, node: str, verb: str) -> None:
        self.step({"node": {verb: node}})

    @rule(node=up, gpu=st.integers(0, 6))
    def resize(self, node: str, gpu: int) -> None:
        self.step({"node": {"resize": {node: {"gpu": gpu}}}})

    @rule()
    def restart(self) -> None:
        self.step({"restart": {}})

    @rule(writes=st.integers(0, 6))
    def crash(self, writes: int) -> None:
        self.step({"crash": writes})

    @rule(seconds=st.sampled_from((1, 10, 61, 400)))
    def wait(self, seconds: int) -> None:
        self.step({"advance": f"{seconds}s"})

    @rule(count=st.integers(1, 3))
    def cycles(self, count: int) -> None:
        self.step({"cycle": count})

    @invariant()
    def no_invariant_is_violated(self) -> None:
        if hasattr(self, "play"):
            assert not self.play.violations, self.as_scenario_file()

    def as_scenario_file(self) -> str:
        """The history so far as a scenario file, and what is wrong with it."""
        text = yaml.safe_dump(self.document, sort_keys=False, default_flow_style=None, width=130)
        assert parse(text, file="history")
        file = Path(tempfile.gettempdir()) / "muster-history.yaml"
        file.write_text(text, encoding="utf-8")
        violations = "\n".join(str(violation) for violation in self.play.violations[:5])
        return f"\n{violations}\nwritten to {file}:\n{text}"


Histories.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False
)
TestHistories = pytest.mark.timeout(600)(Histories.TestCase)


def test_a_history_that_fails_is_kept_as_a_scenario_file() -> None:
    history = Histories()
    history.begin(2, 0, node_problems=False)
    name = history.submit({"pods": 2, "requests": {"gpu": 1}}, 2)
    history.cycles(2)
    history.delete(name)
    assert "written to" in history.as_scenario_file()
    (found,) = parse((Path(tempfile.gettempdir()) / "muster-history.yaml").read_text(encoding="utf-8"), file="history")
    assert len(found.steps) == 3
