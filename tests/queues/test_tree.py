"""The tree of queues, and which queue a pod finds itself in."""

from __future__ import annotations

from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.model.effects import Condition
from muster.model.pod import Problem
from muster.model.queue import Queue, QueueState
from muster.state.queue_tree import QueueTree


def tree_of(*queues: Queue) -> QueueTree:
    return QueueTree({each.key: each for each in queues})


def settle(*queues: Queue, named: str = "", namespace: str = "team") -> str:
    return tree_of(*queues).settle(named, namespace=namespace)


# -- which queue is it? ------------------------------------------------------------------------------------------------------------


def test_who_names_no_queue_is_in_the_default_queue_which_always_exists() -> None:
    assert settle() == "queue/default"
    assert "queue/default" in QueueTree({}).nodes


def test_a_quota_named_like_the_namespace_in_that_namespace_comes_before_one_that_lists_it() -> None:
    listing = queue("ops/all", namespaces=("team", "other"))
    own = queue("team/team")
    assert settle(listing) == "quota/ops/all"
    assert settle(listing, own) == "quota/team/team"
    assert settle(queue("ops/team")) == "queue/default"


def test_a_quota_is_found_by_its_name_alone_the_one_in_the_same_namespace_first_then_the_oldest() -> None:
    old, new = queue("b/gold", created=1.0), queue("a/gold", created=2.0)
    assert settle(old, new, named="quota/?/gold") == "quota/b/gold"
    assert settle(old, new, named="quota/?/gold", namespace="a") == "quota/a/gold"


def test_a_queue_and_a_quota_of_one_name_are_two_nodes() -> None:
    tree = tree_of(queue("x"), queue("team/x"))
    assert tree.settle("queue/x", namespace="team") == "queue/x"
    assert tree.settle("quota/?/x", namespace="team") == "quota/team/x"


def test_a_name_that_means_nothing_is_never_the_default_queue() -> None:
    assert settle(named="queue/reserch") == "queue/reserch"
    assert settle(named="quota/?/gold") == "quota/?/gold"


def test_koordinators_own_quotas_need_no_object() -> None:
    assert settle(named="quota/?/koordinator-default-quota") == "queue/default"
    tree = tree_of(queue("koordinator-system/koordinator-root-quota"), queue("a/x", parent="koordinator-root-quota"))
    assert tree.parents == {"quota/a/x": "", "queue/default": ""}


def test_volcanos_root_is_the_root_whatever_it_configures() -> None:
    tree = tree_of(queue("root", limit=res(gpu=1)), queue("a", parent="root"))
    assert tree.parents == {"queue/a": "", "queue/default": ""}


# -- the tree ----------------------------------------------------------------------------------------------------------------------


def test_a_quotas_parent_is_found_in_another_namespace() -> None:
    tree = tree_of(queue("ops/company"), queue("team/x", parent="company"))
    assert tree.path("quota/team/x") == ("quota/team/x", "quota/ops/company")
    assert tree.children[""] == ("queue/default", "quota/ops/company")


def test_a_cycle_is_cut_and_reported_on_each_of_its_queues() -> None:
    tree = tree_of(queue("a", parent="b"), queue("b", parent="a"), queue("c", parent="a"), queue("d"))
    assert tree.parents == {"queue/a": "", "queue/b": "", "queue/c": "queue/a", "queue/d": "", "queue/default": ""}
    assert tree.faults["queue/a"].why == "queue a: its parents lead back to itself (a -> b -> a)"
    assert tree.faults["queue/b"].why == "queue b: its parents lead back to itself (b -> a -> b)"
    assert tree.fault("queue/c") == tree.faults["queue/a"]
    assert tree.fault("queue/d") is None


def test_a_queue_that_is_its_own_parent_is_a_cycle() -> None:
    tree = QueueTree({"queue/a": queue("a", parent="a")})
    assert tree.faults["queue/a"].why == "queue a: its parents lead back to itself (a -> a)"


def test_an_unknown_parent_is_named_with_the_nearest_queue() -> None:
    tree = tree_of(queue("company"), queue("team", parent="comapny"))
    assert tree.faults["queue/team"].why == "queue team: its parent queue comapny does not exist; did you mean queue company?"


def test_a_chain_of_ten_thousand_queues_is_cut_where_nobody_means_it_any_more() -> None:
    tree = QueueTree({f"queue/q{i}": queue(f"q{i}", parent=f"q{i - 1}" if i else "") for i in range(10_000)})
    assert len(tree.path("queue/q63")) == 64
    assert tree.fault("queue/q63") is None
    assert tree.parents["queue/q64"] == ""
    assert tree.faults["queue/q64"].why == "queue q64: it lies more than 64 levels deep"
    assert max(len(tree.path(key)) for key in tree.nodes) == 64
    ring = QueueTree({f"queue/q{i}": queue(f"q{i}", parent=f"q{(i + 1) % 3000}") for i in range(3000)})
    assert len(ring.faults) == 3000


# -- faults as people meet them ----------------------------------------------------------------------------------------------------


def test_a_gang_in_an_unknown_queue_waits_with_the_nearest_name_and_nobody_else_waits() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("research"))
    cluster.gang("typo", queue="reserch").gang("fine", queue="research").cycle()
    assert cluster.bound == ["fine-0"]
    verdict = cluster.verdict("typo")
    assert (verdict.code, verdict.why) == ("UnknownQueue", "queue reserch does not exist; did you mean queue research?")
    cluster.cycle(3)
    assert cluster.runs("typo") == 0


def test_a_gang_starts_when_the_queue_that_it_names_appears() -> None:
    cluster = FixtureCluster().nodes().gang("early", queue="late").pod("quoted", queue="quota/?/gold").cycle()
    assert cluster.bound == []
    cluster.upsert(queue("late"), queue("ops/gold")).cycle()
    assert sorted(cluster.bound) == ["early-0", "quoted"]
    assert cluster.world.ledger.used("quota/ops/gold")[cluster.world.columns.position["nvidia.com/gpu"]] == 1


def test_a_deleted_queue_keeps_what_runs_and_admits_nobody_new() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a")).gang("old", 2, queue="a").cycle()
    cluster.delete_object("Queue", "queue/a").gang("new", queue="a").cycle()
    assert cluster.runs("old") == 2
    assert cluster.verdict("new").code == "UnknownQueue"
    assert cluster.world.ledger.used("queue/a")[cluster.world.columns.position["nvidia.com/gpu"]] == 2
    cluster.upsert(queue("a")).cycle()
    assert cluster.bound == ["new-0"]


def test_pods_move_to_a_quota_that_appears_for_their_namespace_and_back_when_it_goes() -> None:
    cluster = FixtureCluster().nodes().pod("p", namespace="team").cycle()
    gpu = cluster.world.columns.position["nvidia.com/gpu"]
    assert cluster.world.ledger.used("queue/default")[gpu] == 1
    cluster.upsert(queue("team/team")).cycle()
    assert cluster.world.ledger.used("queue/default")[gpu] == 0
    assert cluster.world.ledger.used("quota/team/team")[gpu] == 1
    cluster.delete_object("Queue", "quota/team/team").cycle()
    assert cluster.world.ledger.used("queue/default")[gpu] == 1


def test_a_queue_that_moves_takes_its_usage_along() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("p"), queue("q"), queue("a", parent="p")).gang("g", 2, queue="a").cycle()
    gpu = cluster.world.columns.position["nvidia.com/gpu"]
    assert cluster.world.ledger.used("queue/p")[gpu] == 2
    cluster.upsert(queue("a", parent="q")).cycle()
    assert (cluster.world.ledger.used("queue/p")[gpu], cluster.world.ledger.used("queue/q")[gpu]) == (0, 2)


def test_a_closed_queue_admits_no_new_gangs_but_its_running_ones_may_grow() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a")).gang("old", 1, queue="a", least=1).cycle()
    cluster.upsert(queue("a", state=QueueState.CLOSING)).gang("new", queue="a").gang("old", 2, queue="a", least=1).change(
        "default/old-0", node="n1"
    )
    cluster.cycle()
    assert cluster.bound == ["old-1"]
    verdict = cluster.verdict("new")
    assert (verdict.code, verdict.why) == ("QueueClosed", "queue a is closing and takes no new gangs")
    cluster.upsert(queue("a")).cycle()
    assert cluster.bound == ["new-0"]


def test_a_closed_parent_closes_its_children() -> None:
    cluster = (
        FixtureCluster().nodes().upsert(queue("p", state=QueueState.CLOSED), queue("a", parent="p")).gang("g", queue="a").cycle()
    )
    assert cluster.verdict("g").why == "queue p is closed and takes no new gangs"


def test_a_broken_place_in_the_tree_is_a_condition_on_the_queue_and_blocks_that_branch_only() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", parent="b"), queue("b", parent="a"), queue("c"))
    cluster.gang("stuck", queue="a").gang("free", queue="c").cycle()
    assert cluster.bound == ["free-0"]
    assert cluster.verdict("stuck").code == "CyclicParents"
    assert [(c.key, c.ok, c.code) for c in cluster.conditions()] == [
        ("queue/a", False, "CyclicParents"),
        ("queue/b", False, "CyclicParents"),
    ]
    cluster.cycle()
    assert cluster.conditions() == []
    cluster.upsert(queue("b")).cycle()
    assert cluster.bound == ["stuck-0"]
    assert [(c.key, c.ok) for c in cluster.conditions()] == [("queue/a", True), ("queue/b", True)]


def test_bad_values_of_a_queue_are_reported_on_it() -> None:
    bad = queue("ops/gold", problems=(Problem("spec.min[cpu]", "9 is more than spec.max[cpu]; write at most 4"),))
    cluster = FixtureCluster().nodes().upsert(bad).cycle()
    why = "spec.min[cpu]: 9 is more than spec.max[cpu]; write at most 4"
    assert cluster.conditions() == [Condition("queue", "quota/ops/gold", ok=False, code="Invalid", why=why)]
