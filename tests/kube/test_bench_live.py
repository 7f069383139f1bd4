"""The workloads of a live scheduler on a few nodes: they measure something, however fast this machine is."""

from __future__ import annotations

import pytest
from benchmarks import live_workloads

from muster.lab.assets import Assets


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, assets: Assets) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets.etcd.parent))
    sizes: dict[str, float] = {"_NODES": 4, "_PODS": 80, "_ROUNDS": 1, "_REACTIONS": 3, "_MANY_NODES": 10, "_MANY_PODS": 100}
    sizes |= {"_SETTLE_S": 0.5, "_IDLE_S": 1.0}
    for name, size in sizes.items():
        monkeypatch.setattr(live_workloads, name, size)
    live_workloads._bind_rates.cache_clear()
    live_workloads._footprint.cache_clear()


@pytest.mark.usefixtures("small")
def test_a_live_scheduler_is_measured_against_a_baseline_and_fed_a_recorded_watch() -> None:
    by_name = {workload.name: workload for workload in live_workloads.WORKLOADS}
    binds = next(workload for name, workload in by_name.items() if name.startswith("binds")).run()
    details = dict(binds.details)
    assert binds.value == pytest.approx(100 * details["live binds/s"] / details["baseline binds/s"])
    plain = next(workload for name, workload in by_name.items() if "without a watch" in name).run()
    details = dict(plain.details)
    assert plain.value == pytest.approx(100 * details["live binds/s"] / details["plain binds/s"])
    first = next(workload for name, workload in by_name.items() if name.startswith("first bind")).run()
    assert 0.1 < first.value < 60
    watched = by_name["a recorded watch, from bytes to events"].run()
    # Each pod was made, bound and removed; each node was listed; both lists came to an end.
    assert dict(watched.details)["events"] >= 3 * 80 + 4 + 2
    assert watched.value > 1000


@pytest.mark.usefixtures("small")
def test_the_reaction_to_one_pod_is_measured() -> None:
    reaction = next(workload for workload in live_workloads.WORKLOADS if workload.name.endswith("to its bind")).run()
    assert 1 < reaction.value <= dict(reaction.details)["longest"]


@pytest.mark.usefixtures("small")
def test_gangs_of_native_pod_groups_are_measured() -> None:
    native = next(workload for workload in live_workloads.WORKLOADS if "native" in workload.name)
    assert native.run().value > 1


@pytest.mark.usefixtures("small")
def test_a_cluster_of_some_size_is_measured() -> None:
    ready, resident, idle = live_workloads.WORKLOADS[-3:]
    assert 0 < ready.run().value < 60
    assert 20 < resident.run().value < 1000
    assert 0 <= idle.run().value < 100
