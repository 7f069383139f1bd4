"""Nodes that fail and return, and what becomes of their pods."""

from __future__ import annotations

import pytest
from tests.sim.sim_manifests import found, node, phase, pod, uid_of

from muster.model.events import Delete, Upsert
from muster.model.node import Node
from muster.model.pod_constraints import TaintEffect
from muster.sim.cluster import SimCluster
from muster.sim.object_store import NotFound

UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.fixture
def cluster() -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod(at="n1", spec={"terminationGracePeriodSeconds": 10}))
    cluster.advance(2)
    cluster.events()
    return cluster


def test_a_failed_node_is_tainted_and_not_ready(cluster: SimCluster) -> None:
    cluster.fail_node("n1")
    failed = found(cluster, "Node", "n1")
    assert [(taint["key"], taint["effect"]) for taint in failed["spec"]["taints"]] == [
        (UNREACHABLE, "NoSchedule"),
        (UNREACHABLE, "NoExecute"),
    ]
    assert failed["status"]["conditions"][0]["status"] == "False"
    (event,) = cluster.events()
    assert isinstance(event, Upsert)
    assert isinstance(event.obj, Node)
    assert {taint.effect for taint in event.obj.taints} == {TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE}


def test_its_pods_are_deleted_after_a_while_and_go(cluster: SimCluster) -> None:
    cluster.fail_node("n1")
    cluster.advance(4)
    assert phase(cluster, "a") == "Running"
    cluster.advance(1)
    assert phase(cluster, "a") == "leaving"
    cluster.advance(10)
    assert phase(cluster, "a") == "gone"


def test_a_node_that_returns_in_time_keeps_its_pods(cluster: SimCluster) -> None:
    cluster.fail_node("n1")
    cluster.advance(4)
    cluster.recover_node("n1")
    cluster.advance(100)
    assert phase(cluster, "a") == "Running"
    assert "taints" not in found(cluster, "Node", "n1")["spec"]
    assert found(cluster, "Node", "n1")["status"]["conditions"][0]["status"] == "True"


def test_other_taints_stay_when_a_node_returns() -> None:
    cluster = SimCluster()
    cluster.apply(node(taints=[{"key": "dedicated", "effect": "NoSchedule"}]))
    cluster.fail_node("n1")
    cluster.recover_node("n1")
    assert found(cluster, "Node", "n1")["spec"]["taints"] == [{"key": "dedicated", "effect": "NoSchedule"}]


def test_the_pods_of_a_node_that_is_gone_are_gone_too(cluster: SimCluster) -> None:
    uid = uid_of(cluster, "a")
    cluster.fail_node("n1", gone=True)
    cluster.advance(5)
    assert phase(cluster, "a") == "gone"
    assert [(event.kind, event.key) for event in cluster.events() if isinstance(event, Delete)] == [("Node", "n1"), ("Pod", uid)]


def test_a_node_that_was_gone_returns_as_a_new_object(cluster: SimCluster) -> None:
    before = found(cluster, "Node", "n1")
    cluster.fail_node("n1")
    cluster.fail_node("n1", gone=True)
    cluster.recover_node("n1")
    after = found(cluster, "Node", "n1")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (after["spec"], after["status"]["capacity"]) == (before["spec"], before["status"]["capacity"])
    cluster.advance(100)
    assert phase(cluster, "a") == "Running"


def test_a_node_that_is_made_anew_by_hand_answers() -> None:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.fail_node("n1", gone=True)
    cluster.apply(node())
    cluster.apply(pod(at="n1"))
    cluster.advance(1)
    assert phase(cluster, "a") == "Running"


def test_the_deleted_pods_of_a_stuck_node_stay_until_it_returns(cluster: SimCluster) -> None:
    cluster.fail_node("n1", pods_stuck=True)
    cluster.advance(1000)
    assert phase(cluster, "a") == "leaving"
    cluster.recover_node("n1")
    cluster.advance(10)
    assert phase(cluster, "a") == "gone"


def test_nothing_starts_or_ends_on_a_node_that_does_not_answer() -> None:
    cluster = SimCluster(pod_eviction_timeout_s=1000)
    cluster.apply(node())
    cluster.apply(pod("a", at="n1", run_seconds=10))
    cluster.advance(5)
    cluster.fail_node("n1")
    cluster.apply(pod("b", at="n1"))
    cluster.advance(100)
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Running", "Pending")
    cluster.recover_node("n1")
    cluster.advance(1)
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Succeeded", "Running")


@pytest.mark.parametrize(
    ("toleration", "stays_s"),
    [
        ({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, 300),
        ({"operator": "Exists", "tolerationSeconds": 40}, 40),
        ({"key": UNREACHABLE, "operator": "Exists"}, None),
        ({"key": "another", "operator": "Exists"}, 5),
        ({"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}, 5),
    ],
)
def test_a_pod_stays_for_as_long_as_it_tolerates(toleration: dict[str, object], stays_s: int | None) -> None:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod(at="n1", spec={"tolerations": [toleration]}))
    cluster.advance(2)
    cluster.fail_node("n1")
    cluster.advance((stays_s or 10_000) - 1)
    assert phase(cluster, "a") == "Running"
    cluster.advance(1)
    assert phase(cluster, "a") == ("Running" if stays_s is None else "leaving")


def test_a_taint_that_a_user_sets_drives_pods_away_at_once(cluster: SimCluster) -> None:
    cluster.patch("Node", "", "n1", {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})
    assert phase(cluster, "a") == "leaving"


def test_a_pod_bound_to_a_node_that_never_was_is_cleared_away() -> None:
    cluster = SimCluster()
    cluster.apply(pod(at="nowhere"))
    cluster.advance(5)
    assert phase(cluster, "a") == "gone"


@pytest.mark.parametrize("gone", [False, True])
def test_a_pod_that_ended_stays_to_be_counted(gone: bool) -> None:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod(at="n1", run_seconds=1))
    cluster.advance(5)
    cluster.fail_node("n1", gone=gone)
    cluster.advance(100)
    assert phase(cluster, "a") == "Succeeded"


def test_only_a_node_that_failed_returns(cluster: SimCluster) -> None:
    with pytest.raises(NotFound, match="Node n1 did not fail"):
        cluster.recover_node("n1")
    with pytest.raises(NotFound, match="Node n9 does not exist"):
        cluster.fail_node("n9")
