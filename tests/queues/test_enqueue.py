"""Which PodGroups are let in, and that nobody is kept out who could be served by making room."""

from __future__ import annotations

from collections.abc import Sequence

from tests.queues.town import ACTIONS, Town, queue, res

from muster.plugins.overcommit import Overcommit

EVICTS = (*ACTIONS, "gang-preempt")


def town(*, gpu: int = 8, actions: Sequence[str] = ACTIONS, factor: float = 1.5) -> Town:
    return Town([Overcommit(factor=factor)], actions=actions).nodes(1, gpu=gpu).see(queue("a"), queue("b", limit=res(gpu=4)))


def let_in(t: Town, name: str) -> bool:
    return t.world.memory.attempts[f"volcano:default/{name}"].enqueued


def test_a_podgroup_is_let_in_while_all_that_wait_fit_the_cluster_times_the_factor() -> None:
    t = town()
    for name, need in (("x", 6), ("y", 5), ("z", 2)):
        t.gang(name, 0, queue="a", least=need, min_resources=res(gpu=need))
    t.cycle()
    assert [let_in(t, name) for name in "xyz"] == [True, True, False]
    verdict = t.verdict("z")
    assert (verdict.code, verdict.why) == ("Overcommit", "the cluster: gpu 11 ahead + 2 asked > 12 (1.5 times 8)")


def test_what_is_used_counts_where_nobody_could_be_evicted() -> None:
    t = town().gang("old", 8, queue="a", at="n1").gang("x", 0, queue="a", least=5, min_resources=res(gpu=5)).cycle()
    assert t.verdict("x").why == "the cluster: gpu 8 used + 5 asked > 12 (1.5 times 8)"
    t.delete("default/old-0").cycle()
    assert let_in(t, "x")


def test_a_full_cluster_keeps_nobody_out_for_whom_others_could_be_evicted() -> None:
    t = town(actions=EVICTS).gang("old", 8, queue="a", at="n1").gang("x", 0, queue="a", least=5, min_resources=res(gpu=5)).cycle()
    assert let_in(t, "x")


def test_what_can_never_fit_is_kept_out_whoever_could_be_evicted() -> None:
    t = town(actions=EVICTS).gang("x", 0, queue="a", least=13, min_resources=res(gpu=13))
    t.gang("y", 0, queue="b", least=5, min_resources=res(gpu=5)).cycle()
    assert t.verdict("x").why == "the cluster: gpu 13 asked > 12 (1.5 times 8)"
    assert t.verdict("y").why == "queue b: gpu 0 used + 5 asked > 4 limit"


def test_a_queue_lets_in_no_more_than_its_limit_takes() -> None:
    t = (
        town()
        .gang("x", 0, queue="b", least=3, min_resources=res(gpu=3))
        .gang("y", 0, queue="b", least=2, min_resources=res(gpu=2))
        .cycle()
    )
    assert [let_in(t, name) for name in "xy"] == [True, False]
    assert t.verdict("y").why == "queue b: gpu 0 used + 3 ahead + 2 asked > 4 limit"
    t.lose("Group", "volcano:default/x").cycle()
    t.see(queue("b", limit=res(gpu=4), weight=2)).cycle()
    assert let_in(t, "y")


def test_the_more_important_is_ahead_even_if_the_other_was_let_in_before() -> None:
    t = town(actions=EVICTS, factor=1.0).gang("low", 8, queue="a", min_resources=res(gpu=8)).cycle()
    t.gang("high", 8, queue="a", priority=9, min_resources=res(gpu=8)).cycle()
    assert let_in(t, "high")


def test_a_gang_that_was_not_let_in_is_not_attempted() -> None:
    t = town(factor=1.0).gang("old", 6, queue="a", at="n1").gang("x", 2, queue="a", least=2, min_resources=res(gpu=4)).cycle()
    assert t.verdict("x").code == "Overcommit"
    assert t.world.memory.attempts["volcano:default/x"].count == 0
    t.delete("default/old-0", "default/old-1").cycle()
    assert t.runs("x") == 2


def test_without_the_action_nobody_is_asked_at_the_door() -> None:
    t = town(actions=("allocate",), factor=1.0).gang("old", 6, queue="a", at="n1")
    t.gang("x", 2, queue="a", least=2, min_resources=res(gpu=4)).cycle()
    assert t.runs("x") == 2


def test_who_says_nothing_of_its_needs_is_always_let_in_and_stands_in_nobodys_way() -> None:
    t = town(factor=1.0).gang("silent", 20, queue="a").gang("x", 0, queue="a", least=8, min_resources=res(gpu=8)).cycle()
    assert let_in(t, "x")


def test_a_closed_or_unknown_queue_lets_nobody_in() -> None:
    t = town().gang("x", 0, queue="nowhere", least=1, min_resources=res(gpu=1)).cycle()
    assert t.verdict("x").code == "UnknownQueue"
