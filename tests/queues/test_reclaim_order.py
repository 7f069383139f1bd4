"""Which queue gives first when another takes back its share."""

from __future__ import annotations

import pytest
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.model.effects import Evict
from muster.plugins.capacity import Capacity
from muster.plugins.proportion import Proportion

ACTIONS = ("expire", "allocate", "gang-reclaim")


def reclaimed_pods(t: FixtureCluster) -> list[str]:
    return [effect.pod for effect in t.cycle().effects(Evict) if isinstance(effect, Evict)]


@pytest.mark.parametrize("important", ["a", "b"])
def test_of_queues_that_are_equally_over_their_shares_the_less_important_is_reclaimed_from_first(important: str) -> None:
    t = FixtureCluster([Proportion()], actions=ACTIONS).nodes(1, gpu=8)
    for name in "abc":
        t.upsert(queue(name, priority=5 if name == important else 1))
    t.gang("x", 4, queue="a", least=1, at="n1").gang("y", 4, queue="b", least=1, at="n1").gang("z", 1, res(gpu=2), queue="c")
    assert [pod.rsplit("-", 1)[0] for pod in reclaimed_pods(t)][:1] == ["default/y" if important == "a" else "default/x"]


def test_nothing_is_reclaimed_from_a_less_important_queue_within_its_share() -> None:
    t = FixtureCluster([Capacity()], actions=ACTIONS).nodes(1, gpu=8)
    t.upsert(queue("a", deserved=res(gpu=4)), queue("b", deserved=res(gpu=2), priority=5), queue("c", deserved=res(gpu=2)))
    t.gang("x", 4, queue="a", least=1, at="n1").gang("y", 4, queue="b", least=1, at="n1").gang("z", 1, queue="c")
    assert [pod.rsplit("-", 1)[0] for pod in reclaimed_pods(t)] == ["default/y"]


def test_of_the_surplus_members_of_a_gang_the_least_important_is_evicted_first() -> None:
    t = FixtureCluster(actions=("expire", "allocate", "gang-preempt")).nodes(1, gpu=3).upsert(queue("a"))
    t.gang("v", 3, queue="a", least=1, priority=50, at="n1").change("default/v-1", priority=1)
    assert reclaimed_pods(t.gang("h", 1, queue="a", priority=100)) == ["default/v-1"]
