"""Which PodGroups are let in, and that nobody is kept out who could be served by evictions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.queues.queue_cluster import ACTIONS, FixtureCluster, queue, res

from muster.plugins.overcommit import Overcommit

EVICTS = (*ACTIONS, "gang-preempt")


def cluster(*, gpu: int = 8, actions: Sequence[str] = ACTIONS, factor: float = 1.5) -> FixtureCluster:
    return (
        FixtureCluster([Overcommit(factor=factor)], actions=actions)
        .nodes(1, gpu=gpu)
        .upsert(queue("a"), queue("b", limit=res(gpu=4)))
    )


def is_enqueued(t: FixtureCluster, name: str) -> bool:
    return t.world.memory.attempts[f"volcano:default/{name}"].enqueued


def test_a_podgroup_is_enqueued_while_all_that_wait_fit_the_cluster_times_the_factor() -> None:
    t = cluster()
    for name, need in (("x", 6), ("y", 5), ("z", 2)):
        t.gang(name, 0, queue="a", least=need, min_resources=res(gpu=need))
    t.cycle()
    assert [is_enqueued(t, name) for name in "xyz"] == [True, True, False]
    verdict = t.verdict("z")
    assert (verdict.code, verdict.why) == ("Overcommit", "the cluster: gpu 11 inqueue + 2 requested > 12 (1.5 times 8)")


def test_what_is_used_counts_where_no_pod_is_evictable() -> None:
    t = cluster().gang("old", 8, queue="a", at="n1").gang("x", 0, queue="a", least=5, min_resources=res(gpu=5)).cycle()
    assert t.verdict("x").why == "the cluster: gpu 8 used + 5 requested > 12 (1.5 times 8)"
    t.delete("default/old-0").cycle()
    assert is_enqueued(t, "x")


def test_a_full_cluster_enqueues_a_podgroup_for_which_others_are_evictable() -> None:
    t = (
        cluster(actions=EVICTS)
        .gang("old", 8, queue="a", at="n1")
        .gang("x", 0, queue="a", least=5, min_resources=res(gpu=5))
        .cycle()
    )
    assert is_enqueued(t, "x")


def test_what_can_never_fit_is_not_enqueued_whoever_is_evictable() -> None:
    t = cluster(actions=EVICTS).gang("x", 0, queue="a", least=13, min_resources=res(gpu=13))
    t.gang("y", 0, queue="b", least=5, min_resources=res(gpu=5)).cycle()
    assert t.verdict("x").why == "the cluster: gpu 13 requested > 12 (1.5 times 8)"
    assert t.verdict("y").why == "queue b: gpu 0 used + 5 requested > 4 limit"


def test_a_queue_enqueues_no_more_than_its_limit() -> None:
    t = (
        cluster()
        .gang("x", 0, queue="b", least=3, min_resources=res(gpu=3))
        .gang("y", 0, queue="b", least=2, min_resources=res(gpu=2))
        .cycle()
    )
    assert [is_enqueued(t, name) for name in "xy"] == [True, False]
    assert t.verdict("y").why == "queue b: gpu 0 used + 3 inqueue + 2 requested > 4 limit"
    t.delete_object("PodGroup", "volcano:default/x").cycle()
    t.upsert(queue("b", limit=res(gpu=4), weight=2)).cycle()
    assert is_enqueued(t, "y")


def test_the_more_important_is_ahead_even_if_the_other_was_enqueued_before() -> None:
    t = cluster(actions=EVICTS, factor=1.0).gang("low", 8, queue="a", min_resources=res(gpu=8)).cycle()
    t.gang("high", 8, queue="a", priority=9, min_resources=res(gpu=8)).cycle()
    assert is_enqueued(t, "high")


def test_a_gang_that_was_not_enqueued_is_not_attempted() -> None:
    t = cluster(factor=1.0).gang("old", 6, queue="a", at="n1").gang("x", 2, queue="a", least=2, min_resources=res(gpu=4)).cycle()
    assert t.verdict("x").code == "Overcommit"
    assert t.world.memory.attempts["volcano:default/x"].count == 0
    t.delete("default/old-0", "default/old-1").cycle()
    assert t.runs("x") == 2


def test_without_the_action_every_podgroup_is_enqueued() -> None:
    t = cluster(actions=("allocate",), factor=1.0).gang("old", 6, queue="a", at="n1")
    t.gang("x", 2, queue="a", least=2, min_resources=res(gpu=4)).cycle()
    assert t.runs("x") == 2


def test_a_podgroup_without_min_resources_is_always_enqueued_and_delays_nobody() -> None:
    t = cluster(factor=1.0).gang("silent", 20, queue="a").gang("x", 0, queue="a", least=8, min_resources=res(gpu=8)).cycle()
    assert is_enqueued(t, "x")


def test_a_closed_or_unknown_queue_enqueues_nothing() -> None:
    t = cluster().gang("x", 0, queue="nowhere", least=1, min_resources=res(gpu=1)).cycle()
    assert t.verdict("x").code == "UnknownQueue"
