"""Killing the real scheduler loses nothing: a process is killed before and after each of its writes to a real API server, in turn.

The next one finds what is there, and in the end all is as if nobody had died: nobody bound or evicted twice, no reservation
lost and none left behind. `make crashes` does it at every write of every scenario; otherwise a sample is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checks import crash_matrix as embedded
from tests.checks.crash_matrix import EndState
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.crash_run import run_to_end, without_member_names
from tests.kube.fork_server import ForkServer
from tests.kube.live_backend import install_kinds
from tests.kube.real_time_backend import CrashPoint, cleaner
from tests.test_crash_matrix import differences

from muster.scenario import Scenario, load

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

SCENARIO_DIR = Path(__file__).parents[2] / "scenarios" / "live"
MAX_POINTS = int(os.environ.get("MUSTER_CRASH_POINTS", "4"))
SAMPLE = (
    "live, a Volcano gang is bound",
    "live, a NonStrict gang completes when the other nodes are free",
    "live, a gang takes the surplus of another",
    "live, victims are evicted through the Eviction API where budgets are hard",
    "live, a job marks pods for eviction, and an operator removes them",
    "live, a nominated gang moves to other nodes that are free before",
)
ALL = {scenario.name: scenario for file in sorted(SCENARIO_DIR.glob("*.yaml")) for scenario in load(file)}
CHOSEN = [ALL[name] for name in (ALL if "MUSTER_CRASH_POINTS" in os.environ else SAMPLE)]


@pytest.fixture(scope="module")
def kinds(servers: Servers) -> None:
    """The custom objects that the scenarios are made of."""
    install_kinds(servers)


@pytest.fixture
def operator(servers: Servers) -> Iterator[None]:
    with cleaner(servers.kubeconfig()):
        yield


def crash_points(writes: int) -> list[CrashPoint]:
    every = [CrashPoint(number, is_done) for number in range(1, writes + 1) for is_done in (False, True)]
    if len(every) <= MAX_POINTS:
        return every
    return [every[round(i * (len(every) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]


@pytest.mark.usefixtures("kinds", "operator")
@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in CHOSEN])
def test_it_ends_the_same_wherever_the_process_dies(
    scenario: Scenario, servers: Servers, fork_server: ForkServer, tmp_path: Path
) -> None:
    undisturbed, _ = run_to_end(scenario, servers=servers, fork_server=fork_server, folder=tmp_path)
    assert (
        differences(without_member_names(embedded.run_to_end(scenario)), without_member_names(_without_soft_evictions(undisturbed)))
        == []
    ), "unlike the embedded cluster"
    found = []
    for crash_point in crash_points(undisturbed.writes):
        servers.reset()
        disturbed, where = run_to_end(scenario, servers=servers, fork_server=fork_server, folder=tmp_path, crash_point=crash_point)
        found += [
            f"{crash_point} of {undisturbed.writes}, {where}: {said}"
            for said in differences(without_member_names(undisturbed), without_member_names(disturbed))
        ]
    assert found == []


def _without_soft_evictions(end: EndState) -> EndState:
    """The embedded cluster counts a mark among its patches."""
    return replace(end, write_counts=tuple(decided for decided in end.write_counts if not decided[0].startswith("mark ")))


def test_there_are_enough_scenarios() -> None:
    assert len(ALL) >= 30
    assert set(SAMPLE) <= ALL.keys()
