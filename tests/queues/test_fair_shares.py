"""Fair shares of queues: what they deserve as far as they ask for it, and by weight what all deserved shares leave."""

from __future__ import annotations

from random import Random

import pytest
from tests.oracles.fair_shares import configured_deserved, fair_share_table
from tests.oracles.snapshot import rules_of, snapshot_of
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.engine.fair_shares import fair_shares
from muster.engine.session import Session
from muster.model.resource_amounts import GPU, Resources
from muster.plugins.capacity import Capacity
from muster.plugins.elastic_quota import ElasticQuotas


def fair(cluster: FixtureCluster, *names: str) -> list[int]:
    s = cluster.session()
    return [fair_shares(s).rows[s.world.ledger.row[f"queue/{name}"], s.world.columns.position[GPU]] for name in names]


def test_what_deserved_shares_leave_is_divided_by_weight_among_those_who_ask_for_more() -> None:
    cluster = FixtureCluster([Capacity()]).nodes(2).upsert(queue("a", deserved=res(gpu=4)), queue("b", weight=2), queue("c"))
    cluster.gang("x", 16, queue="a").gang("y", 16, queue="b").gang("z", 16, queue="c")
    assert fair(cluster, "a", "b", "c") == [7, 6, 3]


def test_what_one_deserves_and_does_not_ask_for_goes_to_the_others() -> None:
    cluster = FixtureCluster([Capacity()]).nodes(2).upsert(queue("a", deserved=res(gpu=12)), queue("b"), queue("c"))
    cluster.gang("x", 2, queue="a").gang("y", 16, queue="b").gang("z", 16, queue="c")
    assert fair(cluster, "a", "b", "c") == [2, 7, 7]


def test_a_gang_beyond_a_limit_asks_for_nothing_and_others_up_to_the_limit() -> None:
    cluster = FixtureCluster([Capacity()]).nodes(2).upsert(queue("a", limit=res(gpu=6)), queue("b"))
    cluster.gang("never", 8, queue="a").gang("y", 16, queue="b")
    assert fair(cluster, "a", "b") == [0, 16]
    cluster.gang("x", 4, queue="a").gang("w", 4, queue="a")
    assert fair(cluster, "a", "b") == [6, 10]


def test_a_guarantee_is_kept_and_a_parent_deserves_what_its_children_do() -> None:
    cluster = FixtureCluster([Capacity()]).nodes(2).upsert(queue("p"), queue("q", guarantee=res(gpu=2)))
    cluster.upsert(queue("p1", parent="p", deserved=res(gpu=8)), queue("p2", parent="p"))
    cluster.gang("x", 16, queue="p1").gang("y", 16, queue="p2")
    assert fair(cluster, "p", "q", "p1", "p2") == [14, 2, 11, 3]


def test_the_queue_that_uses_the_smallest_part_of_its_fair_share_comes_first_beyond_deserved() -> None:
    """Weights of 3 and 1, and everybody asks for everything: of 16 GPUs 12 and 4."""
    cluster = FixtureCluster([Capacity()]).nodes(2).upsert(queue("a"), queue("b", weight=3))
    for i in range(16):
        cluster.gang(f"a{i}", 1, queue="a").gang(f"b{i}", 1, queue="b")
    cluster.cycle()
    assert sorted(name[0] for name in cluster.bound) == ["a"] * 4 + ["b"] * 12


def random_cluster(chance: Random) -> FixtureCluster:
    cluster = FixtureCluster([Capacity(), ElasticQuotas()]).nodes(chance.randint(1, 4))

    def amounts(most: int) -> Resources:
        return (
            res(gpu=chance.randint(0, most))
            if chance.random() < 0.5
            else res(gpu=chance.randint(1, most), cpu=chance.randint(1, 64))
        )

    names: list[str] = []
    for i in range(chance.randint(1, 7)):
        fields: dict[str, object] = {"weight": chance.randint(1, 5), "parent": chance.choice(["", *names])}
        fields |= {key: amounts(12) for key in ("deserved", "limit") if chance.random() < 0.4}
        fields |= {"guarantee": amounts(4)} if chance.random() < 0.2 else {}
        cluster.upsert(queue(f"q{i}", **fields))
        names.append(f"q{i}")
    for i in range(chance.randint(1, 12)):
        each = res(gpu=chance.randint(0, 3), cpu=chance.randint(1, 9))
        at = f"n{chance.randint(1, 4)}" if chance.random() < 0.4 else ""
        pods = chance.randint(1, 6)
        cluster.gang(f"g{i}", pods, each, queue=chance.choice(names), at=at, least=chance.randint(1, pods))
    for i in range(chance.randint(0, 2)):
        cluster.pod(f"foreign{i}", at="n1").change(f"default/foreign{i}", ours=False)
    return cluster


def assert_equal_to_the_slow_twin(s: Session) -> None:
    before = snapshot_of(s.world.facts, s.world.placements.by_uid, now=s.now, rules=rules_of(s.policy))
    expected = fair_share_table(before, configured_deserved(before, limited=True))
    rows, row, position = fair_shares(s).rows, s.world.ledger.row, s.world.columns.position
    found = {key: {name: int(rows[row[key], position[name]]) for name in shares} for key, shares in expected.items()}
    assert found == expected


@pytest.mark.parametrize("seed", range(60))
def test_fair_shares_of_a_tree_are_those_of_the_slow_twin(seed: int) -> None:
    chance = Random(f"fair shares {seed}")
    cluster = random_cluster(chance)
    assert_equal_to_the_slow_twin(cluster.session())
    cluster.cycle(2)
    assert_equal_to_the_slow_twin(cluster.session())
