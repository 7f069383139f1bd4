"""The status of queues and quotas: said when it changes, and only then."""

from __future__ import annotations

from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.model.effects import QueueStatus
from muster.model.pod import ApiFlavour
from muster.model.queue import PREEMPTIBLE_LABEL, QueueState
from muster.plugins.elastic_quota import ElasticQuotas


def test_a_queue_reports_what_it_uses_and_how_many_wait_and_run() -> None:
    cluster = (
        FixtureCluster()
        .nodes(1, gpu=4)
        .upsert(queue("a"))
        .gang("x", 2, res(gpu=1, cpu=2), queue="a")
        .gang("y", 4, queue="a")
        .cycle()
    )
    assert cluster.status("queue/a") == {
        "allocated.cpu": "4",
        "allocated.nvidia.com/gpu": "2",
        "allocated.pods": "2",
        "inqueue": "1",
        "pending": "0",
        "running": "1",
        "state": "Open",
    }


def test_no_status_is_written_twice() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a"), queue("b")).gang("x", queue="a").cycle()
    assert {e.key for e in cluster.outcome.effects if isinstance(e, QueueStatus)} == {"queue/a", "queue/b"}
    cluster.cycle(3)
    assert cluster.effects(QueueStatus) == []
    cluster.gang("y", queue="b").cycle()
    assert [e.key for e in cluster.outcome.effects if isinstance(e, QueueStatus)] == ["queue/b"]


def test_a_status_that_is_there_already_is_not_written_again() -> None:
    said = {
        "state": "Open",
        "running": "1",
        "inqueue": "0",
        "pending": "0",
        "allocated.nvidia.com/gpu": "1",
        "allocated.pods": "1000m",
    }
    cluster = FixtureCluster().nodes().upsert(queue("a", status=said)).gang("x", queue="a", at="n1").cycle()
    assert cluster.effects(QueueStatus) == []
    stale = said | {"allocated.cpu": "500m"}
    cluster = FixtureCluster().nodes().upsert(queue("a", status=stale)).gang("x", queue="a", at="n1").cycle()
    assert len(cluster.effects(QueueStatus)) == 1


def test_a_parent_reports_what_its_branch_uses() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("p"), queue("a", parent="p")).gang("x", 2, queue="a").cycle()
    assert cluster.status("queue/p")["allocated.nvidia.com/gpu"] == "2"
    assert cluster.status("queue/p")["running"] == "0"


def test_a_queue_that_closes_is_closed_when_its_last_gang_has_gone() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", state=QueueState.CLOSING)).gang("x", queue="a", at="n1").cycle()
    assert cluster.status("queue/a")["state"] == "Closing"
    cluster.delete("default/x-0").delete_object("PodGroup", "volcano:default/x").cycle()
    assert cluster.status("queue/a")["state"] == "Closed"


def test_a_podgroup_without_pods_is_pending() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a")).gang("x", 0, queue="a", least=2).cycle()
    assert cluster.status("queue/a")["pending"] == "1"


def test_a_quota_reports_what_koordinators_scheduler_would() -> None:
    cluster = FixtureCluster([ElasticQuotas(enable_runtime_quota=True)]).nodes(1, gpu=6)
    cluster.upsert(queue("t/q", deserved=res(gpu=2), limit=res(gpu=4, cpu=8)), queue("t/r", limit=res(gpu=8)))
    cluster.gang(
        "own", 2, res(gpu=1, cpu=1), queue="quota/?/q", labels={PREEMPTIBLE_LABEL: "false"}, flavour=ApiFlavour.KOORDINATOR
    )
    cluster.gang("more", 8, queue="quota/?/r", flavour=ApiFlavour.KOORDINATOR).cycle()
    assert cluster.status("quota/t/q") == {
        "used.cpu": "2",
        "used.nvidia.com/gpu": "2",
        "runtime.cpu": "2",
        "runtime.nvidia.com/gpu": "2",
        "request.cpu": "2",
        "request.nvidia.com/gpu": "2",
        "child-request.cpu": "2",
        "child-request.nvidia.com/gpu": "2",
        "non-preemptible-request.cpu": "2",
        "non-preemptible-request.nvidia.com/gpu": "2",
        "non-preemptible-used.cpu": "2",
        "non-preemptible-used.nvidia.com/gpu": "2",
    }


def test_a_quota_whose_runtime_changes_because_of_another_is_reported_again() -> None:
    cluster = FixtureCluster([ElasticQuotas(enable_runtime_quota=True)]).nodes(1, gpu=8)
    cluster.upsert(queue("t/q", limit=res(gpu=8)), queue("t/r", limit=res(gpu=8)))
    cluster.gang("one", 8, queue="quota/?/q", flavour=ApiFlavour.KOORDINATOR).cycle()
    assert cluster.status("quota/t/q")["runtime.nvidia.com/gpu"] == "8"
    cluster.cycle(2)
    assert cluster.effects(QueueStatus) == []
    cluster.gang("two", 8, queue="quota/?/r", flavour=ApiFlavour.KOORDINATOR).cycle()
    assert cluster.status("quota/t/q")["runtime.nvidia.com/gpu"] == "4"
