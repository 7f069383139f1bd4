"""What a PodGroup is told while it waits: Volcano's controllers make its pods only once it was let in."""

from __future__ import annotations

from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.model.effects import PodGroupStatus
from muster.model.pod import ApiFlavour


def phases(t: FixtureCluster) -> dict[str, str]:
    """By PodGroup, of those whose status changed in the last cycle."""
    said = [effect for effect in t.outcome.effects if isinstance(effect, PodGroupStatus)]
    return {status.group.rsplit("/", 1)[-1]: status.phase for status in said}


def test_a_podgroup_of_volcano_is_inqueue_before_it_has_pods() -> None:
    t = FixtureCluster().nodes(1, gpu=8).upsert(queue("q", limit=res(gpu=4)))
    t.gang("fits", 0, queue="q", least=2, min_resources=res(gpu=2))
    t.gang("big", 0, queue="q", least=8, min_resources=res(gpu=8)).cycle()
    assert phases(t) == {"fits": "PreScheduling", "big": "Pending"}


def test_a_podgroup_that_was_pending_becomes_inqueue_when_it_is_enqueued() -> None:
    t = FixtureCluster().nodes(1, gpu=8).upsert(queue("q", limit=res(gpu=4)))
    t.gang("old", 3, queue="q", at="n1").gang("new", 0, queue="q", least=2, min_resources=res(gpu=2)).cycle()
    assert phases(t)["new"] == "Pending"
    t.delete("default/old-0", "default/old-1", "default/old-2").cycle()
    assert phases(t)["new"] == "PreScheduling"


def test_a_podgroup_without_min_resources_is_inqueue() -> None:
    t = FixtureCluster().nodes(1, gpu=1).upsert(queue("q")).gang("x", 0, queue="q", least=4).cycle()
    assert phases(t) == {"x": "PreScheduling"}


def test_a_podgroup_of_koordinators_waits_for_its_pods() -> None:
    t = FixtureCluster().nodes(1, gpu=1).gang("x", 1, least=2, flavour=ApiFlavour.KOORDINATOR).cycle()
    assert phases(t) == {"x": "Pending"}
