"""Controllers that make lost pods anew."""

from __future__ import annotations

import pytest
from tests.sim.sim_manifests import bind, evict, found, node, phase, pod, uid_of

from muster.model.effects import Nominate
from muster.sim.cluster import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node())
    return cluster


def test_an_evicted_pod_is_made_anew_when_it_is_gone(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1", controller="recreate"))
    cluster.advance(5)
    old = uid_of(cluster, "a")
    cluster.execute([evict(cluster, "a")])
    cluster.advance(29)
    assert uid_of(cluster, "a") == old
    cluster.advance(1)
    new = found(cluster, "Pod", "a")
    assert new["metadata"]["uid"] != old
    assert new["metadata"]["creationTimestamp"] == "2026-01-01T00:00:35Z"
    assert "nodeName" not in new["spec"]
    assert new["status"] == {"phase": "Pending"}


def test_the_new_pod_has_nothing_that_the_scheduler_wrote_onto_the_old_one(cluster: SimCluster) -> None:
    cluster.apply(pod(controller="recreate", annotations={"team": "x"}, labels={"app": "y"}))
    uid = uid_of(cluster, "a")
    cluster.execute([Nominate(uid, "default/a", "n1", "default/a", "fits", "Preempted", 1.0, "p1", evicts=True)])
    cluster.execute([evict(cluster, "a", manner="soft")])
    cluster.delete("Pod", "default", "a")
    new = found(cluster, "Pod", "a")["metadata"]
    assert new["labels"] == {"app": "y"}
    assert new["annotations"] == {"team": "x", "sim.muster.dev/controller": "recreate", "sim.muster.dev/recreations": "1"}
    assert "nominatedNodeName" not in found(cluster, "Pod", "a")["status"]


def test_a_controller_may_take_its_time(cluster: SimCluster) -> None:
    cluster.apply(pod(controller="recreate", recreate_after_seconds=7))
    cluster.delete("Pod", "default", "a")
    cluster.advance(6)
    assert phase(cluster, "a") == "gone"
    cluster.advance(1)
    assert phase(cluster, "a") == "Pending"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_controller_gives_up_at_its_limit(cluster: SimCluster, limit: int) -> None:
    cluster.apply(pod(controller="recreate", recreate_limit=limit))
    for _ in range(limit):
        cluster.delete("Pod", "default", "a")
        assert phase(cluster, "a") == "Pending"
    cluster.delete("Pod", "default", "a")
    assert phase(cluster, "a") == "gone"


def test_a_failed_pod_is_replaced_until_the_limit_and_then_stays_failed(cluster: SimCluster) -> None:
    cluster.apply(pod(controller="recreate", run_seconds=1, exit="failed", recreate_limit=1))
    first = uid_of(cluster, "a")
    cluster.execute([bind(cluster, "a")])
    cluster.advance(5)
    assert phase(cluster, "a") == "Pending"
    assert uid_of(cluster, "a") != first
    cluster.execute([bind(cluster, "a")])
    cluster.advance(5)
    assert phase(cluster, "a") == "Failed"


def test_a_pod_that_a_kubelet_refused_is_replaced(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1", cpu=100, controller="recreate"))
    assert phase(cluster, "a") == "Pending"
    assert "nodeName" not in found(cluster, "Pod", "a")["spec"]


def test_a_pod_that_succeeded_is_not_made_anew(cluster: SimCluster) -> None:
    cluster.apply(pod(at="n1", controller="recreate", run_seconds=1))
    cluster.advance(5)
    assert phase(cluster, "a") == "Succeeded"
    cluster.delete("Pod", "default", "a")
    assert phase(cluster, "a") == "gone"


@pytest.mark.parametrize("gone", [False, True])
def test_pods_lost_with_their_node_are_made_anew(cluster: SimCluster, gone: bool) -> None:
    cluster.apply(pod(at="n1", controller="recreate"))
    cluster.advance(2)
    cluster.fail_node("n1", gone=gone)
    cluster.advance(60)
    assert phase(cluster, "a") == "Pending"


def test_a_pod_deleted_for_good_is_not_made_anew(cluster: SimCluster) -> None:
    cluster.apply(pod(controller="recreate"))
    cluster.delete("Pod", "default", "a", permanently=True)
    cluster.advance(60)
    assert phase(cluster, "a") == "gone"


def test_somebody_else_may_be_faster_than_the_controller(cluster: SimCluster) -> None:
    cluster.apply(pod(controller="recreate", recreate_after_seconds=10))
    cluster.delete("Pod", "default", "a")
    mine = cluster.apply(pod())
    cluster.advance(60)
    assert uid_of(cluster, "a") == mine["metadata"]["uid"]
