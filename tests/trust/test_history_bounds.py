"""What is remembered of one namespace stays small, whatever its tenant makes: a History that cannot be written protects nobody."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenario.inline_scenarios import parse_one

from muster.kube.read.saved_objects import history_spec
from muster.model.events import Upsert
from muster.model.saved_state import SavedHistory
from muster.scenario.scenario_runner import ScenarioRunner
from muster.state.gangs import succeeded_members

MOST_BYTES = 1_000_000


def history(scenario: ScenarioRunner) -> SavedHistory:
    found = [event.obj for event in scenario.cluster.relist() if isinstance(event, Upsert) and isinstance(event.obj, SavedHistory)]
    return found[0]


def test_thousands_of_succeeded_members_with_long_names_are_saved_for_as_many_gangs_as_there_is_space_for() -> None:
    runner = ScenarioRunner(parse_one("nodes: [{name: n1, gpu: 8}]\nsteps: [cycle]"))
    runner.set_up()
    for gang, members in enumerate((5, 6000, 7)):
        runner.cluster.apply(_pod_group(f"g{gang}"))
        for number in range(members):
            runner.cluster.apply(_succeeded(f"g{gang}", f"{number:0240}"))
    runner.cycle()
    found = history(runner)
    assert len(msgspec.json.encode(history_spec(found))) < MOST_BYTES
    assert {key: success.count for key, success in found.succeeded.items()} == {"volcano:default/g0": 5, "volcano:default/g2": 7}


def test_the_oldest_succeeded_members_of_a_gang_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(succeeded_members, "MAX_SUCCEEDED", 3)
    runner = ScenarioRunner(parse_one("nodes: [{name: n1, gpu: 8}]\nsteps: [cycle]"))
    runner.set_up()
    runner.cluster.apply(_pod_group("g"))
    for number in range(5):
        runner.cluster.apply(_succeeded("g", f"p{number}"))
        runner.cluster.advance(100.0)
        runner.cycle()
    (members,) = history(runner).succeeded["volcano:default/g"].members
    assert members.names == ("p2", "p3", "p4")


def _pod_group(name: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 9000}}


def _succeeded(group: str, name: str) -> dict[str, object]:
    annotations = {"scheduling.k8s.io/group-name": group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, "uid": f"{group}-{name}"},
        "spec": {"schedulerName": "muster", "containers": [{"name": "main"}]},
        "status": {"phase": "Succeeded"},
    }
