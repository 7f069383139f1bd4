"""Events that go wrong on their way, and binds that fail."""

from __future__ import annotations

import pytest
from tests.sim.sim_manifests import bind, found, node, pod, pods_in

from muster.model.events import BindFailed
from muster.sim.cluster import SimCluster
from muster.sim.fault_injection import MAX_DELAY_S, FaultRates

NAMES = [f"p{i}" for i in range(20)]


def cluster_with(faults: FaultRates) -> SimCluster:
    cluster = SimCluster(faults=faults)
    for name in NAMES:
        cluster.apply(pod(name))
    return cluster


def test_without_faults_events_come_at_once_and_in_order() -> None:
    assert pods_in(cluster_with(FaultRates()).events()) == NAMES


def test_a_late_event_comes_later() -> None:
    cluster = cluster_with(FaultRates(delayed=1.0))
    assert cluster.events() == []
    cluster.advance(MAX_DELAY_S)
    arrived = pods_in(cluster.events())
    assert sorted(arrived) == sorted(NAMES)
    assert arrived != NAMES


def test_a_lost_event_comes_with_the_next_resync() -> None:
    cluster = cluster_with(FaultRates(dropped=1.0))
    cluster.advance(59)
    assert cluster.events() == []
    cluster.advance(1)
    assert pods_in(cluster.events()) == NAMES
    cluster.advance(1000)
    assert cluster.events() == []


def test_a_resync_brings_what_is_true_now() -> None:
    cluster = cluster_with(FaultRates(dropped=1.0))
    cluster.patch("Pod", "default", "p0", {"metadata": {"labels": {"x": "2"}}})
    uid = cluster.apply(pod("p1"))["metadata"]["uid"]
    cluster.delete("Pod", "default", "p1")
    cluster.resync()
    arrived = pods_in(cluster.events())
    assert arrived.count("p0") == 1
    assert "p1" not in arrived
    assert uid in arrived


def test_a_late_event_is_overtaken_by_a_resync_and_comes_outdated() -> None:
    cluster = cluster_with(FaultRates(delayed=1.0))
    cluster.resync()
    assert pods_in(cluster.events()) == NAMES
    cluster.advance(MAX_DELAY_S)
    assert sorted(pods_in(cluster.events())) == sorted(NAMES)


def test_a_doubled_event_comes_twice() -> None:
    assert pods_in(cluster_with(FaultRates(duplicated=1.0)).events()) == [name for name in NAMES for _ in range(2)]


def test_reordered_events_overtake_each_other() -> None:
    arrived = pods_in(cluster_with(FaultRates(reordered=0.5)).events())
    assert sorted(arrived) == sorted(NAMES)
    assert arrived != NAMES


def test_a_new_scheduler_does_not_get_events_that_were_under_way_to_the_old_one() -> None:
    cluster = cluster_with(FaultRates(delayed=0.5, dropped=0.5, duplicated=0.5))
    assert len(pods_in(cluster.relist())) == len(NAMES)
    cluster.advance(1000)
    assert cluster.events() == []


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_binds_fail_by_chance_and_leave_no_trace(share: float) -> None:
    cluster = cluster_with(FaultRates(bind_failures=share))
    cluster.apply(node(cpu=100))
    cluster.events()
    cluster.execute([bind(cluster, name) for name in NAMES])
    failed = [event for event in cluster.events() if isinstance(event, BindFailed)]
    bound = [name for name in NAMES if found(cluster, "Pod", name)["spec"].get("nodeName")]
    assert len(bound) + len(failed) == len(NAMES)
    assert len(cluster.writes) == len(bound)
    if share == 0.5:
        assert {event.why.split(":")[0].split(" to ")[0] for event in failed} == {"conflict", "no answer from the API server"}
        assert bound
    else:
        assert len(failed) == share * len(NAMES)


def test_the_answer_to_a_bind_is_never_lost() -> None:
    cluster = cluster_with(FaultRates(dropped=1.0, bind_failures=1.0))
    cluster.apply(node())
    cluster.execute([bind(cluster, "p0")])
    assert [type(event) for event in cluster.events()] == [BindFailed]


@pytest.mark.parametrize(("bad", "says"), [({"delayed": 2.0}, "delayed: 2.0 is no fraction")])
def test_faults_are_shares(bad: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FaultRates(**bad)  # type: ignore[arg-type]
