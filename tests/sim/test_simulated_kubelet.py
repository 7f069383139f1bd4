"""The lives of pods on their nodes: they start, run, end, take their time to go, or are refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.sim_manifests import bind, evict, found, node, phase, pod, pods_in

from muster.model.events import Upsert
from muster.model.pod import Pod
from muster.sim.cluster import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node(cpu=4, gpu=2))
    return cluster


def test_a_bound_pod_starts_after_a_moment(cluster: SimCluster) -> None:
    cluster.apply(pod())
    cluster.execute([bind(cluster, "a")])
    assert phase(cluster, "a") == "Pending"
    cluster.advance(1)
    status = found(cluster, "Pod", "a")["status"]
    assert (status["phase"], status["startTime"]) == ("Running", "2026-01-01T00:00:01Z")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


def test_a_pod_that_nobody_bound_never_starts(cluster: SimCluster) -> None:
    cluster.apply(pod(run_seconds=1))
    cluster.advance(1000)
    assert phase(cluster, "a") == "Pending"
    assert pods_in(cluster.events()) == ["a"]
    cluster.advance(1000)
    assert cluster.events() == []


@pytest.mark.parametrize(("said", "ends"), [({}, "Succeeded"), ({"exit": "failed"}, "Failed")])
def test_a_pod_runs_for_its_time_and_ends(cluster: SimCluster, said: dict[str, Any], ends: str) -> None:
    cluster.apply(pod(at="n1", run_seconds=60, startup_seconds=5, **said))
    cluster.advance(64)
    assert phase(cluster, "a") == "Running"
    cluster.advance(1)
    assert phase(cluster, "a") == ends


def test_a_pod_that_runs_from_the_beginning_ends_in_time(cluster: SimCluster) -> None:
    running = pod(at="n1", run_seconds=60) | {"status": {"phase": "Running", "startTime": "2025-12-31T23:59:30Z"}}
    # No pod starts before it was created.
    running["metadata"]["creationTimestamp"] = "2025-12-31T23:59:00Z"
    cluster.apply(running)
    cluster.advance(29)
    assert phase(cluster, "a") == "Running"
    cluster.advance(1)
    assert phase(cluster, "a") == "Succeeded"


def test_a_deleted_pod_stays_until_its_grace_period_is_over(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1"))
    cluster.advance(10)
    cluster.execute([evict(cluster, "a")])
    cluster.advance(29)
    assert phase(cluster, "a") == "leaving"
    assert found(cluster, "Pod", "a")["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:40Z"
    cluster.advance(1)
    assert phase(cluster, "a") == "gone"


def test_the_scheduler_reads_when_a_terminating_pod_should_be_gone(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1"))
    cluster.advance(10)
    cluster.events()
    cluster.delete("Pod", "default", "a")
    (event,) = cluster.events()
    assert isinstance(event, Upsert)
    assert isinstance(event.obj, Pod)
    assert event.obj.deleted_at == cluster.now + 30


@pytest.mark.parametrize(("takes", "at"), [("300", 300), ("2", 2), ("0", 0)])
def test_how_long_a_pod_really_takes_to_terminate_is_its_own_behaviour(cluster: SimCluster, takes: str, at: int) -> None:
    cluster.apply(pod(at="n1", termination_seconds=takes))
    cluster.advance(10)
    cluster.delete("Pod", "default", "a")
    if at:
        cluster.advance(at - 1)
        assert phase(cluster, "a") == "leaving"
        cluster.advance(1)
    assert phase(cluster, "a") == "gone"


def test_a_pod_may_never_terminate(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1", termination_seconds="never"))
    cluster.advance(10)
    cluster.delete("Pod", "default", "a")
    cluster.advance(1_000_000)
    assert phase(cluster, "a") == "leaving"


def test_a_finalizer_keeps_a_pod_beyond_its_grace_period(cluster: SimCluster) -> None:
    kept = pod(at="n1")
    kept["metadata"]["finalizers"] = ["example.com/wait"]
    cluster.apply(kept)
    cluster.delete("Pod", "default", "a")
    cluster.advance(1000)
    assert phase(cluster, "a") == "leaving"
    cluster.patch("Pod", "default", "a", {"metadata": {"finalizers": None}})
    assert phase(cluster, "a") == "gone"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"cpu": 3}, {"cpu": 2}, "OutOfcpu"),
        ({}, {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 3}}}]}}, "OutOfnvidia.com/gpu"),
        ({}, {"spec": {"containers": [{"resources": {"requests": {"memory": "65Gi"}}}]}}, "OutOfmemory"),
    ],
)
def test_a_kubelet_refuses_what_does_not_fit(
    cluster: SimCluster, first: dict[str, Any], second: dict[str, Any], reason: str
) -> None:
    cluster.apply(pod("a", at="n1", **first))
    cluster.apply(pod("b", at="n1", **second))
    assert phase(cluster, "b") == "Failed"
    assert found(cluster, "Pod", "b")["status"]["reason"] == reason
    cluster.advance(10)
    assert phase(cluster, "a") == "Running"


def test_a_node_takes_as_many_pods_as_it_says() -> None:
    cluster = SimCluster()
    small = node()
    small["status"]["capacity"]["pods"] = "1"
    cluster.apply(small)
    cluster.apply(pod("a", at="n1"))
    cluster.apply(pod("b", at="n1"))
    assert found(cluster, "Pod", "b")["status"]["reason"] == "OutOfpods"


def test_capacity_is_free_only_when_a_terminating_pod_is_gone(cluster: SimCluster) -> None:
    cluster.apply(pod("a", cpu=4, at="n1"))
    cluster.delete("Pod", "default", "a")
    cluster.apply(pod("b", cpu=4, at="n1"))
    assert phase(cluster, "b") == "Failed"
    cluster.advance(30)
    cluster.apply(pod("c", cpu=4, at="n1"))
    cluster.advance(1)
    assert phase(cluster, "c") == "Running"


def test_the_capacity_of_a_finished_pod_is_free(cluster: SimCluster) -> None:
    cluster.apply(pod("a", cpu=4, at="n1", run_seconds=1))
    cluster.advance(5)
    cluster.apply(pod("b", cpu=4, at="n1"))
    cluster.advance(1)
    assert phase(cluster, "b") == "Running"


def test_pods_may_be_there_before_their_node() -> None:
    cluster = SimCluster()
    cluster.apply(pod("a", cpu=3, at="n1"))
    cluster.apply(pod("b", cpu=3, at="n1"))
    cluster.advance(1)
    cluster.apply(node(cpu=4))
    cluster.advance(1)
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Running", "Failed")
