"""Who is next: queue by queue, level by level, found anew after every gang."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.engine.gang_order import WaitingGangs, gangs_to_attempt, order_gangs
from muster.engine.hooks import Plugin
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.plugins.capacity import Capacity
from muster.plugins.drf import Drf
from muster.plugins.proportion import Proportion


def order(cluster: FixtureCluster) -> list[str]:
    s = cluster.session()
    return [gang.full_name.split("/")[1] for gang in order_gangs(s, gangs_to_attempt(s))]


def test_without_a_plugin_that_orders_queues_gangs_go_by_priority_whatever_their_queue() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a"), queue("b"))
    cluster.gang("a1", queue="a", priority=1).gang("a2", queue="a", priority=3).gang("b1", queue="b", priority=2)
    assert order(cluster) == ["a2", "b1", "a1"]


def test_queues_take_turns_as_their_shares_grow() -> None:
    cluster = FixtureCluster([Drf()]).nodes().upsert(queue("a"), queue("b"))
    cluster.gang("a1", 2, queue="a").gang("a2", 2, queue="a").gang("b1", 3, queue="b").gang("b2", queue="b").cycle()
    assert cluster.bound == ["a1-0", "a1-1", "b1-0", "b1-1", "b1-2", "a2-0", "a2-1", "b2-0"]


def test_a_heavier_queue_gets_more_turns() -> None:
    cluster = FixtureCluster([Drf()]).nodes(1, gpu=4).upsert(queue("a", weight=3), queue("b"))
    for i in range(4):
        cluster.gang(f"a{i}", queue="a").gang(f"b{i}", queue="b")
    cluster.cycle()
    assert cluster.bound == ["a0-0", "b0-0", "a1-0", "a2-0"]


def test_queues_that_are_equal_go_by_the_gang_at_their_head() -> None:
    cluster = FixtureCluster([Drf()]).nodes().upsert(queue("a"), queue("b"))
    cluster.gang("low", queue="a", priority=1).gang("high", queue="b", priority=9)
    assert order(cluster) == ["high", "low"]


def test_siblings_are_compared_at_each_level() -> None:
    """p1 uses little, but its branch uses much: q's gang goes first; inside p the sibling that uses nothing goes first."""
    cluster = FixtureCluster([Drf()]).nodes(2).upsert(queue("p"), queue("q"), queue("p1", parent="p"), queue("p2", parent="p"))
    cluster.gang("old", 4, queue="p2", at="n1").gang("oldq", 2, queue="q", at="n1")
    cluster.gang("x", queue="p1").gang("y", queue="p2").gang("z", queue="q")
    assert order(cluster) == ["z", "x", "y"]


def test_a_queues_own_gangs_go_before_its_childrens() -> None:
    cluster = (
        FixtureCluster([Drf()])
        .nodes()
        .upsert(queue("p"), queue("c", parent="p"))
        .gang("child", queue="c", priority=9)
        .gang("own", queue="p")
    )
    assert order(cluster) == ["own", "child"]


def test_a_half_bound_gang_goes_first_whatever_its_queue_has() -> None:
    cluster = FixtureCluster([Drf()]).nodes(2).upsert(queue("a"), queue("b")).gang("half", 3, queue="a").gang("other", queue="b")
    cluster.gang("much", 6, queue="a", at="n2").change("default/half-0", node="n1")
    assert order(cluster)[0] == "half"


def test_gangs_for_which_nothing_changed_are_not_tried_again() -> None:
    cluster = FixtureCluster([Drf()]).nodes(1, gpu=2).upsert(queue("a")).gang("big", 4, queue="a").cycle()
    assert order(cluster) == []
    cluster.gang("small", queue="a")
    assert order(cluster) == ["small"]


# -- the same by brute force -------------------------------------------------------------------------------------------------------


def next_gang_by_hand(s: Session, waiting: Mapping[str, list[Gang]]) -> Gang:
    """Look at everything each time: at each level the branch with the least key, of equal ones the one with the better head."""
    tree = s.world.facts.tree

    def head(key: str) -> tuple[object, Gang] | None:
        if waiting.get(key):
            first = min(waiting[key], key=s.gang_key)
            return (s.gang_key(first), first)
        below = [(s.queue_key(child), found, child) for child in tree.children.get(key, ()) if (found := head(child)) is not None]
        return min(below, key=lambda b: (b[0], b[1][0], b[2]))[1] if below else None

    found = head("")
    assert found is not None
    return found[1]


@st.composite
def random_clusters(draw: st.DrawFn, plugins: list[Plugin]) -> FixtureCluster:
    cluster = FixtureCluster(plugins).nodes(3)
    names: list[str] = []
    for i in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from(["", *names]))
        share = draw(st.integers(0, 6))
        cluster.upsert(
            queue(
                f"q{i}",
                parent=parent,
                weight=draw(st.integers(1, 3)),
                priority=draw(st.sampled_from([0, 0, 1])),
                deserved=res(gpu=share),
                limit=res(gpu=8) if draw(st.booleans()) else res(),
            )
        )
        names.append(f"q{i}")
    for i in range(draw(st.integers(1, 10))):
        where = draw(st.sampled_from(names))
        at = "n1" if draw(st.integers(0, 3)) == 0 else ""
        cluster.gang(f"g{i}", draw(st.integers(1, 2)), queue=where, priority=draw(st.integers(0, 2)), at=at)
    return cluster


POLICIES: list[list[Plugin]] = [[Drf()], [Proportion()], [Capacity()], [Capacity(), Drf()]]


@given(st.sampled_from(POLICIES).flatmap(random_clusters), st.data())
@settings(max_examples=60, deadline=None)
def test_the_next_gang_is_the_one_that_looking_at_everybody_finds(cluster: FixtureCluster, data: st.DataObject) -> None:
    s = cluster.session()
    gangs = [s.world.facts.gangs[key] for key in s.world.placements.unplaced_members]
    waiting: dict[str, list[Gang]] = {}
    for gang in gangs:
        waiting.setdefault(gang.queue, []).append(gang)
    line = WaitingGangs(s, gangs)
    for _ in gangs:
        expected = next_gang_by_hand(s, waiting)
        found = line.pop()
        assert found is expected
        waiting[found.queue].remove(found)
        with s.trial("", cause="") as trial:
            for pod in found.pods():
                trial.place(pod, "n2", phase=Phase.BINDING)
            # Others may be evicted for it, and then their queues stand otherwise, too.
            for uid in data.draw(st.lists(st.sampled_from(sorted(s.world.placements.by_uid)), max_size=2, unique=True)):
                trial.release(s.world.facts.pods[uid])
            if data.draw(st.booleans()):
                trial.commit()
    assert line.pop() is None
