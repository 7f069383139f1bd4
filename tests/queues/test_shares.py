"""What a queue deserves, who is over its share and by how much, and what each plugin refuses."""

from __future__ import annotations

import pytest
from tests.queues.over_share import over_share
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.engine.hooks import Plugin
from muster.engine.shares import dominant_share
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.plugins.capacity import Capacity
from muster.plugins.drf import Drf
from muster.plugins.elastic_quota import ElasticQuotas
from muster.plugins.proportion import Proportion


def gpus(amounts: Resources) -> int | None:
    return amounts.get(GPU)


# -- drf ---------------------------------------------------------------------------------------------------------------------------


def test_the_dominant_share_is_the_largest_part_of_any_resource_and_pods_are_none() -> None:
    cluster = FixtureCluster([Drf()]).nodes(1, cpu=64, gpu=8).upsert(queue("a"), queue("b"))
    cluster.gang("g", 2, res(gpu=1, cpu=1), queue="a", at="n1").gang("many", 32, res(cpu=1), queue="b", at="n1")
    s = cluster.session()
    assert dominant_share(s, "queue/a") == 0.25
    assert dominant_share(s, "queue/b") == 0.5
    assert dominant_share(s, "queue/a", plus=s.world.columns.vector(res(gpu=4))) == 0.75


def test_drf_gives_each_queue_that_asks_its_part_by_weight() -> None:
    cluster = FixtureCluster([Drf()]).nodes(1, gpu=8).upsert(queue("a", weight=3), queue("b"), queue("idle", weight=9))
    cluster.gang("x", 4, queue="a", at="n1").gang("y", 4, queue="b", at="n1")
    s = cluster.session()
    assert [gpus(s.deserved(key)) for key in ("queue/a", "queue/b", "queue/idle")] == [6, 2, None]
    assert gpus(over_share(s, "queue/a")) is None
    assert gpus(over_share(s, "queue/b")) == 2


# -- proportion --------------------------------------------------------------------------------------------------------------------


def deserved(cluster: FixtureCluster, *names: str) -> list[int | None]:
    s = cluster.session()
    return [gpus(s.deserved(f"queue/{name}")) for name in names]


def test_a_share_is_by_weight_and_what_one_does_not_ask_for_goes_to_the_others() -> None:
    cluster = FixtureCluster([Proportion()]).nodes(1, gpu=12).upsert(queue("a", weight=2), queue("b"), queue("c"))
    cluster.gang("x", 12, queue="a").gang("y", 12, queue="b").gang("z", 1, queue="c")
    assert deserved(cluster, "a", "b", "c") == [7, 4, 1]


def test_a_share_is_no_more_than_the_limit_and_no_less_than_the_guarantee_that_is_asked_for() -> None:
    cluster = (
        FixtureCluster([Proportion()])
        .nodes(1, gpu=12)
        .upsert(queue("a", weight=9, limit=res(gpu=4)), queue("b", guarantee=res(gpu=6)), queue("c"))
    )
    cluster.gang("x", 12, queue="a").gang("y", 7, queue="b").gang("z", 12, queue="c")
    assert deserved(cluster, "a", "b", "c") == [4, 7, 1]


def test_a_branch_shares_out_what_it_got() -> None:
    cluster = (
        FixtureCluster([Proportion()])
        .nodes(1, gpu=12)
        .upsert(queue("p"), queue("q"), queue("p1", parent="p", weight=2), queue("p2", parent="p"))
    )
    cluster.gang("x", 12, queue="p1").gang("y", 12, queue="p2").gang("z", 12, queue="q")
    assert deserved(cluster, "p", "q", "p1", "p2") == [6, 6, 4, 2]


def test_what_other_schedulers_pods_take_is_not_shared_out() -> None:
    cluster = (
        FixtureCluster([Proportion()])
        .nodes(1, gpu=12)
        .upsert(queue("a"), queue("b"))
        .gang("x", 12, queue="a")
        .gang("y", 12, queue="b")
    )
    cluster.pod("foreign", res(gpu=4), at="n1").change("default/foreign", ours=False)
    assert deserved(cluster, "a", "b") == [4, 4]


def test_over_share_says_in_which_dimension_and_by_how_much() -> None:
    cluster = FixtureCluster([Proportion()]).nodes(1, gpu=8, cpu=64).upsert(queue("a"), queue("b"))
    cluster.gang("x", 6, res(gpu=1, cpu=1), queue="a", at="n1").gang("y", 8, res(gpu=1, cpu=1), queue="b")
    s = cluster.session()
    assert over_share(s, "queue/a") == Resources.of({GPU: 2})
    assert over_share(s, "queue/b") == Resources()


def test_idle_capacity_may_be_borrowed_unless_shares_are_strict() -> None:
    for strict, expected in ((False, 6), (True, 0)):
        cluster = FixtureCluster([Proportion(strict=strict)]).nodes(1, gpu=8).upsert(queue("a"), queue("b"))
        cluster.gang("big", 16, queue="b").gang("six", 6, queue="a").cycle()
        assert cluster.runs("six") == expected
    assert cluster.verdict("six").code == "QueueShare"
    assert cluster.verdict("six").why == "queue a: gpu 0 used + 6 requested > 4 deserved"


def test_a_strict_share_grows_when_the_others_stop_asking() -> None:
    cluster = FixtureCluster([Proportion(strict=True)]).nodes(1, gpu=8).upsert(queue("a"), queue("b"))
    cluster.gang("big", 16, queue="b").gang("six", 6, queue="a").cycle()
    cluster.delete(*(f"default/big-{i}" for i in range(16))).cycle()
    assert cluster.runs("six") == 6


# -- capacity ----------------------------------------------------------------------------------------------------------------------


def test_the_queue_with_the_smallest_part_of_its_deserved_goes_first_and_one_without_last() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(2)
        .upsert(queue("a", deserved=res(gpu=8)), queue("b", deserved=res(gpu=4)), queue("none"))
    )
    cluster.gang("olda", 3, queue="a", at="n1").gang("oldb", 2, queue="b", at="n1")
    cluster.gang("x", 6, queue="a").gang("y", 1, queue="b").gang("z", 1, queue="none").cycle()
    assert cluster.bound[0] == "x-0"
    assert [name for name in cluster.bound if name.endswith("-0")] == ["x-0", "y-0", "z-0"]


def test_a_queue_of_higher_priority_goes_first_whatever_it_uses() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=3)
        .upsert(queue("a", priority=5, deserved=res(gpu=1)), queue("b", deserved=res(gpu=8)))
    )
    cluster.gang("old", 1, queue="a", at="n1").gang("x", 2, queue="a").gang("y", 1, queue="b").cycle()
    assert cluster.bound == ["x-0", "x-1"]


def test_a_guarantee_is_kept_free_even_while_it_is_idle() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=8)
        .upsert(queue("a"), queue("b", guarantee=res(gpu=3)))
        .gang("g", 6, queue="a")
        .cycle()
    )
    assert cluster.runs("g") == 0
    assert cluster.verdict("g").why == "queue a: gpu 0 used + 6 requested > 5 left by the guarantees of others"
    cluster.gang("five", 5, queue="a").gang("three", 3, queue="b").cycle()
    assert (cluster.runs("five"), cluster.runs("three")) == (5, 3)


def test_a_queue_may_use_its_own_guarantee_and_all_that_is_left() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=8)
        .upsert(queue("a"), queue("b", guarantee=res(gpu=3)))
        .gang("g", 8, queue="b")
        .cycle()
    )
    assert cluster.runs("g") == 8


def test_a_guarantee_binds_siblings_below_one_parent_by_what_the_parent_may_have() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(4)
        .upsert(queue("p", limit=res(gpu=8)), queue("p1", parent="p"), queue("p2", parent="p", guarantee=res(gpu=3)), queue("q"))
    )
    cluster.gang("g", 6, queue="p1").gang("free", 16, queue="q").cycle()
    assert cluster.verdict("g").why == "queue p1: gpu 0 used + 6 requested > 5 left by the guarantees of others"
    assert cluster.runs("free") == 16


def test_zero_in_deserved_and_guarantee_is_not_configured() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=8)
        .upsert(queue("a", deserved=res(gpu=0, cpu=4), guarantee=res(gpu=0)), queue("b"))
    )
    cluster.gang("g", 8, queue="a").cycle()
    assert cluster.runs("g") == 8
    s = cluster.session()
    assert s.deserved("queue/a") == Resources.of({CPU: 4000})
    assert over_share(s, "queue/a") == Resources()


def test_deserved_is_no_more_than_the_queue_may_have_and_no_less_than_its_guarantee() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=8)
        .upsert(
            queue("a", deserved=res(gpu=6), limit=res(gpu=4)),
            queue("b", deserved=res(gpu=1), guarantee=res(gpu=2)),
            queue("c", deserved=res(gpu=9)),
        )
    )
    assert deserved(cluster, "a", "b", "c") == [4, 2, 6]


def test_a_parent_without_a_deserved_of_its_own_deserves_what_its_children_do() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(4)
        .upsert(
            queue("p"),
            queue("p1", parent="p", deserved=res(gpu=3)),
            queue("p2", parent="p", deserved=res(gpu=4, cpu=1)),
            queue("o", deserved=res(gpu=2)),
            queue("o1", parent="o", deserved=res(gpu=9)),
        )
    )
    assert deserved(cluster, "p", "o") == [7, 2]


def test_a_queue_for_which_nothing_is_deserved_is_over_its_share_with_all_it_uses() -> None:
    cluster = FixtureCluster([Capacity()]).nodes().upsert(queue("a")).gang("g", 2, res(gpu=1, cpu=1), queue="a", at="n1")
    assert over_share(cluster.session(), "queue/a") == Resources.of({GPU: 2, CPU: 2000})


def test_gangs_wait_in_leaves() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes()
        .upsert(queue("p"), queue("c1", parent="p"), queue("c2", parent="p"))
        .gang("g", queue="p")
        .cycle()
    )
    verdict = cluster.verdict("g")
    assert (verdict.code, verdict.why) == ("NotALeaf", "queue p has children, and gangs wait in leaves only: name one of c1, c2")
    cluster.delete_object("Queue", "queue/c1").delete_object("Queue", "queue/c2").cycle()
    assert cluster.runs("g") == 1


def test_a_surplus_stops_at_the_guarantees_of_others() -> None:
    cluster = (
        FixtureCluster([Capacity()])
        .nodes(1, gpu=8)
        .upsert(queue("a"), queue("b", guarantee=res(gpu=3)))
        .gang("g", 8, queue="a", least=2)
        .cycle()
    )
    assert cluster.runs("g") == 5


# -- several -----------------------------------------------------------------------------------------------------------------------


def test_a_queue_is_over_its_share_only_as_far_as_all_plugins_agree() -> None:
    cluster = FixtureCluster([Capacity(), Drf()]).nodes(1, gpu=8).upsert(queue("a", deserved=res(gpu=2)), queue("b"))
    cluster.gang("x", 5, queue="a", at="n1").gang("y", 3, queue="b", at="n1")
    s = cluster.session()
    assert gpus(s.deserved("queue/a")) == 2
    assert gpus(over_share(s, "queue/a")) == 1
    assert gpus(over_share(s, "queue/b")) is None


@pytest.mark.parametrize(
    "plugin", [Drf(), Proportion(), Proportion(strict=True), Capacity(), ElasticQuotas()], ids=lambda p: p.name
)
def test_a_cluster_without_nodes_or_gangs_has_no_shares_and_no_faults(plugin: Plugin) -> None:
    cluster = (
        FixtureCluster([plugin])
        .upsert(queue("a"), queue("t/q", deserved=res(gpu=1)))
        .gang("g", queue="a")
        .pod("p", queue="quota/?/q")
        .cycle()
    )
    assert cluster.runs("g") == 0
    s = cluster.session()
    assert [over_share(s, key) for key in ("queue/a", "quota/t/q")] == [Resources(), Resources()]


def test_memory_counts_like_any_other_resource() -> None:
    cluster = FixtureCluster([Proportion()]).nodes(1).upsert(queue("a"), queue("b"))
    cluster.gang("x", 2, res(memory=2**39), queue="a", at="n1").gang("y", 2, res(memory=2**39), queue="b")
    s = cluster.session()
    assert over_share(s, "queue/a") == Resources.of({MEMORY: 2**39})
    assert PODS not in list(s.deserved("queue/a"))
