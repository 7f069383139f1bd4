"""Who may take from whom: shares, guarantees, trees of queues, quotas."""

from __future__ import annotations

from dataclasses import replace

from tests.oracles.judged_worlds import PLUGINS, broken_rules, plan, world
from tests.oracles.legality import takers_of
from tests.oracles.snapshot import History, JudgedPlan, Snapshot

LENT = """
nodes: [{{name: "n[1-4]", gpu: 4, cpu: 16, memory: 64Gi}}]
queues: [{{name: a, deserved: {{gpu: 8}}}}, {{name: b, deserved: {{gpu: 8}}{more}}}]
gangs:
- {{name: b0, queue: b, requests: {{gpu: 4, cpu: 1}}, runningOn: n1, age: 2h}}
- {{name: b1, queue: b, requests: {{gpu: 4, cpu: 1}}, runningOn: n2, age: 2h}}
- {{name: b2, queue: b, requests: {{gpu: 4, cpu: 1}}, runningOn: n3, age: 2h}}
- {{name: b3, queue: b, requests: {{gpu: 4, cpu: 1}}, runningOn: n4, age: 2h}}
- {{name: hi, queue: a, pods: {pods}, requests: {{gpu: 4, cpu: 1}}}}
"""
THREE = {"hi-0": "n1", "hi-1": "n2", "hi-2": "n3"}


def lent(*, pods: int, more: str = "", plugins: str = PLUGINS) -> Snapshot:
    return world(LENT.format(pods=pods, more=more), plugins=plugins)


def test_what_was_lent_comes_back() -> None:
    s = lent(pods=2)
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2"}, ["b0-0", "b1-0"])) == set()


def test_borrowing_evicts_nobody_and_a_queue_within_its_share_gives_nothing() -> None:
    s = lent(pods=3)
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", THREE, ["b0-0", "b1-0", "b2-0"])) == {"B6 taking", "B6 giving"}


def test_a_queue_that_is_not_reclaimable_gives_nothing() -> None:
    s = lent(pods=1, more=", reclaimable: false")
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1"}, ["b0-0"])) == {"B6 giving"}


def test_a_guarantee_is_never_crossed() -> None:
    s = lent(pods=2, more=", guarantee: {cpu: 3}")
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2"}, ["b0-0", "b1-0"])) == {"B6 giving"}


def test_nobody_takes_what_the_guarantees_of_others_do_not_leave() -> None:
    s = lent(pods=2, more=", guarantee: {gpu: 9}")
    assert "B6 limit" in broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2"}, ["b0-0", "b1-0"]))


CROSSING = """
nodes: [{name: "n[1-3]", gpu: 4}]
queues: [{name: a, deserved: {gpu: 8}}, {name: b, deserved: {gpu: 7}}]
gangs:
- {name: big, queue: b, pods: 3, requests: {gpu: 2}, runningOn: [n1, n2, n3], age: 2h}
- {name: own, queue: b, requests: {gpu: 2}, runningOn: n1, age: 2h}
- {name: mine, queue: a, requests: {gpu: 2}, runningOn: n2, age: 2h}
- {name: hi, queue: a, pods: 3, requests: {gpu: 2}}
"""


def test_the_last_unit_may_cross_the_line_unless_that_is_forbidden() -> None:
    s = world(CROSSING)
    crossing = plan(s, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2", "hi-2": "n3"}, ["big-0", "big-1", "big-2"])
    assert "B6 giving" not in broken_rules(s, crossing)
    strict = replace(s, rules=replace(s.rules, strict_deserved=True))
    assert "B6 giving" in broken_rules(strict, crossing)
    often = replace(s, history=History(crossings={("default/big", "default/hi"): 3}))
    assert "B6 crossing" in broken_rules(often, crossing)
    both = replace(crossing, victims=(*crossing.victims, next(uid for uid, pod in s.pods.items() if pod.name == "own-0")))
    assert "B6 giving" in broken_rules(s, both)


def test_nobody_loses_gpus_for_being_over_in_cpus() -> None:
    s = world(
        """
nodes: [{name: "n[1-2]", gpu: 4, cpu: 16}]
queues: [{name: a, deserved: {gpu: 4, cpu: 16}}, {name: b, deserved: {gpu: 8, cpu: 1}}]
gangs:
- {name: b0, queue: b, requests: {gpu: 4, cpu: 2}, runningOn: n1, age: 2h}
- {name: b1, queue: b, requests: {gpu: 4, cpu: 2}, runningOn: n2, age: 2h}
- {name: hi, queue: a, requests: {gpu: 4, cpu: 1}}
"""
    )
    judged = plan(s, "hi", "gang-reclaim", {"hi-0": "n1"}, ["b0-0"])
    gang = s.gangs[judged.asker]
    assert [taker.contested for taker in takers_of(s, gang, gang.pods())] == [frozenset({"nvidia.com/gpu"})]
    assert broken_rules(s, judged) == {"B6 giving"}


def test_a_queue_without_a_share_has_only_borrowed() -> None:
    s = world(
        """
nodes: [{name: n1, gpu: 4}]
queues: [{name: a, deserved: {gpu: 4}}, {name: b}]
gangs:
- {name: b0, queue: b, requests: {gpu: 4}, runningOn: n1, age: 2h, priority: 9}
- {name: hi, queue: a, requests: {gpu: 4}}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1"}, ["b0-0"])) == set()


NOBODY = """
nodes: [{name: "n[1-4]", gpu: 4}]
queues: [{name: a}, {name: b}]
gangs:
- {name: b0, queue: b, requests: {gpu: 4}, runningOn: n1, age: 2h}
- {name: b1, queue: b, requests: {gpu: 4}, runningOn: n2, age: 2h}
- {name: b2, queue: b, requests: {gpu: 4}, runningOn: n3, age: 2h}
- {name: b3, queue: b, requests: {gpu: 4}, runningOn: n4, age: 2h}
- {name: hi, queue: a, pods: %d, requests: {gpu: 4}}
"""


def test_where_nobody_has_a_share_the_larger_one_gives_without_crossing() -> None:
    even, more = world(NOBODY % 2), world(NOBODY % 3)
    assert broken_rules(even, plan(even, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2"}, ["b0-0", "b1-0"])) == set()
    assert broken_rules(more, plan(more, "hi", "gang-reclaim", THREE, ["b0-0", "b1-0", "b2-0"])) == {"B6 giving"}


TREE = """
nodes: [{name: "n[1-5]", gpu: 4}]
queues:
- {name: left, deserved: {gpu: 4}}
- {name: right, deserved: {gpu: %d}%s}
- {name: la, parent: left, deserved: {gpu: 4}}
- {name: ra, parent: right, deserved: {gpu: %d}}
gangs:
- {name: full, requests: {gpu: 4}, runningOn: n5, age: 2h}
- {name: r0, queue: ra, requests: {gpu: 4}, runningOn: n1, age: 2h}
- {name: r1, queue: ra, requests: {gpu: 4}, runningOn: n2, age: 2h}
- {name: r2, queue: ra, requests: {gpu: 4}, runningOn: n3, age: 2h}
- {name: r3, queue: ra, requests: {gpu: 4}, runningOn: n4, age: 2h}
- {name: hi, queue: la, requests: {gpu: 4}}
"""


def test_every_level_of_a_tree_must_be_over_its_share() -> None:
    over, parent_within, child_within = world(TREE % (8, "", 8)), world(TREE % (16, "", 8)), world(TREE % (8, "", 16))
    protected = world(TREE % (8, ", reclaimable: false", 8))
    for s, expected in ((over, set()), *((other, {"B6 giving"}) for other in (parent_within, child_within, protected))):
        assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1"}, ["r0-0"])) == expected


def test_shares_that_add_up_to_more_than_there_is_let_one_within_its_share_give() -> None:
    s = world(
        """
nodes: [{name: "n[1-4]", gpu: 4}]
queues: [{name: a, deserved: {gpu: 16}}, {name: b, deserved: {gpu: 16}}]
gangs:
- {name: b0, queue: b, requests: {gpu: 4}, runningOn: n1, age: 2h}
- {name: b1, queue: b, pods: 3, min: 1, requests: {gpu: 4}, runningOn: "n[2-4]", age: 2h}
- {name: hi, queue: a, pods: 2, requests: {gpu: 4}}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-reclaim", {"hi-0": "n1", "hi-1": "n2"}, ["b0-0", "b1-0"])) == set()


QUOTA = """
- apiVersion: scheduling.sigs.k8s.io/v1alpha1
  kind: ElasticQuota
  metadata: {name: %s, namespace: default}
  spec: {min: {cpu: %d}, max: {cpu: %d}}
"""
JOB = "- {name: %s, apiFlavour: koordinator, labels: {quota.scheduling.koordinator.sh/name: %s}, requests: {cpu: 4}, %s}\n"


def quotas(*, theirs: int = 4, priority: int = 2, most: int = 8, asker: str = "mine") -> Snapshot:
    """A quota with a job of priority 1 and one that asks, and a quota with two jobs of priority 1."""
    return world(
        'nodes: [{name: "n[1-3]", cpu: 4}]\nobjects:'
        + QUOTA % ("mine", 4, most)
        + (QUOTA % ("theirs", theirs, 12)).lstrip()
        + "gangs:\n"
        + JOB % ("own", "mine", "runningOn: n1, priority: 1")
        + JOB % ("lent", "theirs", "runningOn: n2, priority: 1")
        + JOB % ("also", "theirs", "runningOn: n3, priority: 1")
        + JOB % ("hi", asker, f"priority: {priority}")
    )


def test_a_job_takes_from_other_quotas_only_what_is_above_their_minimum() -> None:
    over, crossing, equal = quotas(), quotas(theirs=5), quotas(priority=1)
    assert broken_rules(over, plan(over, "hi", "job-preempt", {"hi-0": "n2"}, ["lent-0"])) == set()
    assert broken_rules(crossing, plan(crossing, "hi", "job-preempt", {"hi-0": "n2"}, ["lent-0"])) == {"B6 giving"}
    assert broken_rules(equal, plan(equal, "hi", "job-preempt", {"hi-0": "n2"}, ["lent-0"])) == {"D1 priority"}
    assert broken_rules(over, plan(over, "hi", "job-preempt", {"hi-0": "n1"}, ["own-0"])) == set()


def test_the_maximum_of_a_quota_holds_after_the_plan() -> None:
    s = quotas(most=4)
    assert {"F3 max", "B6 limit"} <= broken_rules(s, plan(s, "hi", "job-preempt", {"hi-0": "n2"}, ["lent-0"]))


def test_a_job_that_may_not_trigger_evicts_nobody() -> None:
    s = quotas(asker='mine, quota.scheduling.koordinator.sh/can-preempt: "false"')
    assert broken_rules(s, plan(s, "hi", "job-preempt", {"hi-0": "n1"}, ["own-0"])) == {"F3 trigger"}


def test_a_quota_keeps_its_minimum_of_what_is_not_contested_too() -> None:
    shared = "apiFlavour: koordinator, requests: {cpu: 4, memory: 8Gi}"
    s = world(
        "nodes: [{name: n1, cpu: 4, memory: 64Gi}]\nobjects:"
        + QUOTA % ("mine", 4, 8)
        + (QUOTA % ("theirs", 0, 12)).lstrip().replace("min: {cpu: 0}", "min: {memory: 8Gi}")
        + f"""gangs:
- {{name: lent, {shared}, labels: {{quota.scheduling.koordinator.sh/name: theirs}}, runningOn: n1, priority: 1}}
- {{name: hi, {shared}, labels: {{quota.scheduling.koordinator.sh/name: mine}}, priority: 2}}
"""
    )
    assert broken_rules(s, plan(s, "hi", "job-preempt", {"hi-0": "n1"}, ["lent-0"])) == {"B6 giving"}


GROUP = """
nodes: [{{name: n1, gpu: 8, cpu: 16}}, {{name: n2, cpu: 16{more}}}]
queues: [{{name: a, deserved: {{gpu: 16}}}}, {{name: b, deserved: {{gpu: 0}}}}]
gangs:
- {{name: low, queue: a, priority: 1, requests: {{gpu: 8}}, runningOn: n1, age: 2h}}
- {{name: ga, apiFlavour: koordinator, queue: a, priority: 9, requests: {asks}, gangGroup: [ga, gb]}}
- {{name: gb, apiFlavour: koordinator, queue: b, priority: 9, requests: {{gpu: 8}}, gangGroup: [ga, gb]}}
"""


def _group_plan(s: Snapshot, action: str, placed: dict[str, str]) -> JudgedPlan:
    group = next(gang.key for gang in s.gangs.values() if len(gang.roles) == 2)
    return replace(plan(s, "low", action, placed, ["low-0"]), asker=group)


def test_a_unit_is_of_the_same_queue_only_for_the_role_of_its_queue_that_lacks_something() -> None:
    s = world(GROUP.format(asks="{cpu: 1}", more=""))
    assert "D1 queue" in broken_rules(s, _group_plan(s, "gang-preempt", {"ga-0": "n2", "gb-0": "n1"}))
    assert "B6 giving" in broken_rules(s, _group_plan(s, "gang-reclaim", {"ga-0": "n2", "gb-0": "n1"}))
    both = world(GROUP.format(asks="{gpu: 8}", more=", gpu: 8"))
    assert broken_rules(both, _group_plan(both, "gang-preempt", {"ga-0": "n1", "gb-0": "n2"})) == set()


WITHIN_PARENT = """
nodes: [{name: "n[1-3]", gpu: 4}]
queues:
- {name: p, deserved: {gpu: 8}}
- {name: a, parent: p, deserved: {gpu: 4}}
- {name: b, parent: p, deserved: {gpu: 4}}
- {name: c}
gangs:
- {name: a0, queue: a, requests: {gpu: 4}, runningOn: n1, age: 2h, priority: 5}
- {name: b0, queue: b, requests: {gpu: 2}, runningOn: n2, age: 2h, priority: 1}
- {name: b1, queue: b, requests: {gpu: 2}, runningOn: n2, age: 2h, priority: 5}
- {name: b2, queue: b, requests: {gpu: 2}, runningOn: n3, age: 2h, priority: 1}
- {name: c0, queue: c, requests: {gpu: 2}, runningOn: n3, age: 2h, priority: 1}
- {name: hi, queue: a, requests: {gpu: 2}, priority: 5}
"""


def test_a_queue_that_borrows_takes_by_priority_what_its_siblings_borrow_where_that_is_switched_on() -> None:
    off = world(WITHIN_PARENT.replace("p, deserved: {gpu: 8}", "p, deserved: {gpu: 10}"))
    on = replace(off, rules=replace(off.rules, within_parent=True))
    judged = plan(off, "hi", "gang-reclaim", {"hi-0": "n2"}, ["b0-0"])
    assert "B6 taking" in broken_rules(off, judged)
    assert broken_rules(on, judged) == set()
    assert "B6 taking" in broken_rules(on, plan(on, "hi", "gang-reclaim", {"hi-0": "n2"}, ["b1-0"]))
    assert "B6 taking" in broken_rules(on, plan(on, "hi", "gang-reclaim", {"hi-0": "n3"}, ["c0-0"]))
    # b ends below its share, or p above its own.
    assert broken_rules(on, plan(on, "hi", "gang-reclaim", {"hi-0": "n2"}, ["b0-0", "b2-0"]))
    small = world(WITHIN_PARENT)
    small = replace(small, rules=replace(small.rules, within_parent=True))
    assert "B6 taking" in broken_rules(small, plan(small, "hi", "gang-reclaim", {"hi-0": "n2"}, ["b0-0"]))
