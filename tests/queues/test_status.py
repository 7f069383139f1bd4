"""The status of queues and quotas: said when it changes, and only then."""

from __future__ import annotations

from tests.queues.town import Town, queue, res

from muster.model.effects import QueueStatus
from muster.model.pod import Dialect
from muster.model.queue import PREEMPTIBLE_LABEL, QueueState
from muster.plugins.elastic_quota import ElasticQuota


def test_a_queue_tells_what_it_uses_and_how_many_wait_and_run() -> None:
    town = Town().nodes(1, gpu=4).see(queue("a")).gang("x", 2, res(gpu=1, cpu=2), queue="a").gang("y", 4, queue="a").cycle()
    assert town.status("queue/a") == {
        "allocated.cpu": "4",
        "allocated.nvidia.com/gpu": "2",
        "allocated.pods": "2",
        "inqueue": "1",
        "pending": "0",
        "running": "1",
        "state": "Open",
    }


def test_nothing_is_said_twice() -> None:
    town = Town().nodes().see(queue("a"), queue("b")).gang("x", queue="a").cycle()
    assert {e.key for e in town.outcome.effects if isinstance(e, QueueStatus)} == {"queue/a", "queue/b"}
    town.cycle(3)
    assert town.effects(QueueStatus) == []
    town.gang("y", queue="b").cycle()
    assert [e.key for e in town.outcome.effects if isinstance(e, QueueStatus)] == ["queue/b"]


def test_what_the_object_says_already_is_not_written_again() -> None:
    said = {
        "state": "Open",
        "running": "1",
        "inqueue": "0",
        "pending": "0",
        "allocated.nvidia.com/gpu": "1",
        "allocated.pods": "1000m",
    }
    town = Town().nodes().see(queue("a", status=said)).gang("x", queue="a", at="n1").cycle()
    assert town.effects(QueueStatus) == []
    stale = said | {"allocated.cpu": "500m"}
    town = Town().nodes().see(queue("a", status=stale)).gang("x", queue="a", at="n1").cycle()
    assert len(town.effects(QueueStatus)) == 1


def test_a_parent_tells_what_its_branch_uses() -> None:
    town = Town().nodes().see(queue("p"), queue("a", parent="p")).gang("x", 2, queue="a").cycle()
    assert town.status("queue/p")["allocated.nvidia.com/gpu"] == "2"
    assert town.status("queue/p")["running"] == "0"


def test_a_queue_that_closes_is_closed_when_its_last_gang_has_gone() -> None:
    town = Town().nodes().see(queue("a", state=QueueState.CLOSING)).gang("x", queue="a", at="n1").cycle()
    assert town.status("queue/a")["state"] == "Closing"
    town.delete("default/x-0").lose("Group", "volcano:default/x").cycle()
    assert town.status("queue/a")["state"] == "Closed"


def test_a_podgroup_without_pods_is_pending() -> None:
    town = Town().nodes().see(queue("a")).gang("x", 0, queue="a", least=2).cycle()
    assert town.status("queue/a")["pending"] == "1"


def test_a_quota_tells_what_koordinators_scheduler_would() -> None:
    town = Town([ElasticQuota(enable_runtime_quota=True)]).nodes(1, gpu=6)
    town.see(queue("t/q", deserved=res(gpu=2), limit=res(gpu=4, cpu=8)), queue("t/r", limit=res(gpu=8)))
    town.gang("own", 2, res(gpu=1, cpu=1), queue="quota/?/q", labels={PREEMPTIBLE_LABEL: "false"}, dialect=Dialect.KOORDINATOR)
    town.gang("more", 8, queue="quota/?/r", dialect=Dialect.KOORDINATOR).cycle()
    assert town.status("quota/t/q") == {
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


def test_a_quota_whose_runtime_changes_because_of_another_is_told_again() -> None:
    town = Town([ElasticQuota(enable_runtime_quota=True)]).nodes(1, gpu=8)
    town.see(queue("t/q", limit=res(gpu=8)), queue("t/r", limit=res(gpu=8)))
    town.gang("one", 8, queue="quota/?/q", dialect=Dialect.KOORDINATOR).cycle()
    assert town.status("quota/t/q")["runtime.nvidia.com/gpu"] == "8"
    town.cycle(2)
    assert town.effects(QueueStatus) == []
    town.gang("two", 8, queue="quota/?/r", dialect=Dialect.KOORDINATOR).cycle()
    assert town.status("quota/t/q")["runtime.nvidia.com/gpu"] == "4"
