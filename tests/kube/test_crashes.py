"""Killing the real scheduler loses nothing: a process is killed before and after each of its writes to a real API server, in turn.

The next one finds what is there, and in the end all is as if nobody had died: nobody bound or evicted twice, no claim lost and none
left behind. `make crashes` does it at every write of every story; otherwise a sample is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kube.ground import install_kinds
from tests.kube.mortal import alike, end_of
from tests.kube.nursery import Nursery
from tests.kube.real_time import Doom, cleaner
from tests.test_crash_matrix import differences

from muster.lab.servers import Servers
from muster.scenario import Scenario, load
from muster.scenario import crashes as embedded
from muster.scenario.crashes import End

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

HOME = Path(__file__).parents[2] / "scenarios" / "live"
MOST_POINTS = int(os.environ.get("MUSTER_CRASH_POINTS", "4"))
SAMPLE = (
    "live, a Volcano gang is bound",
    "live, a NonStrict gang completes when the rest of the room is free",
    "live, a gang takes the surplus of another",
    "live, victims go through the Eviction API where budgets are hard",
    "live, a job asks pods to go, and an operator removes them",
    "live, a promised gang moves to other room that is free before",
)
ALL = {scenario.name: scenario for file in sorted(HOME.glob("*.yaml")) for scenario in load(file)}
CHOSEN = [ALL[name] for name in (ALL if "MUSTER_CRASH_POINTS" in os.environ else SAMPLE)]


@pytest.fixture(scope="module")
def kinds(servers: Servers) -> None:
    """The custom objects that the stories are made of."""
    install_kinds(servers)


@pytest.fixture
def operator(servers: Servers) -> Iterator[None]:
    with cleaner(servers.kubeconfig()):
        yield


def moments(writes: int) -> list[Doom]:
    every = [Doom(number, is_done) for number in range(1, writes + 1) for is_done in (False, True)]
    if len(every) <= MOST_POINTS:
        return every
    return [every[round(i * (len(every) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


@pytest.mark.usefixtures("kinds", "operator")
@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in CHOSEN])
def test_it_ends_the_same_wherever_the_process_dies(scenario: Scenario, servers: Servers, nursery: Nursery, tmp_path: Path) -> None:
    undisturbed, _ = end_of(scenario, servers=servers, nursery=nursery, folder=tmp_path)
    assert differences(alike(embedded.end_of(scenario)), alike(_without_marks(undisturbed))) == [], "unlike the embedded cluster"
    found = []
    for doom in moments(undisturbed.writes):
        servers.reset()
        disturbed, where = end_of(scenario, servers=servers, nursery=nursery, folder=tmp_path, doom=doom)
        found += [f"{doom} of {undisturbed.writes}, {where}: {said}" for said in differences(alike(undisturbed), alike(disturbed))]
    assert found == []


def _without_marks(end: End) -> End:
    """The embedded cluster counts a mark among its patches."""
    return replace(end, deeds=tuple(deed for deed in end.deeds if not deed[0].startswith("mark ")))


def test_there_are_enough_stories() -> None:
    assert len(ALL) >= 30
    assert set(SAMPLE) <= ALL.keys()
