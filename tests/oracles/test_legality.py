"""The oracle finds each broken rule in a plan that breaks it, and nothing in one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.oracles.judged_worlds import PLUGINS, broken_rules, plan, world
from tests.oracles.snapshot import History

from muster.model.pod import Phase, Placement

TWO_NODES = """
nodes: [{name: "n[1-2]", gpu: 4, cpu: 16}]
"""


def test_a_lower_priority_in_the_own_queue_may_go() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, pods: 2, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 1}
- {name: hi, pods: 2, requests: {gpu: 4}, priority: 2}
"""
    )
    right = plan(s, "hi", "gang-preempt", {"hi-0": "n1", "hi-1": "n2"}, ["low-0", "low-1"])
    assert broken_rules(s, right) == set()


def test_an_equal_priority_may_not_go() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 2}
- {name: other, requests: {gpu: 4}, runningOn: n2, priority: 1}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D1 priority"}
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n2"}, ["other-0"])) == set()


def test_preemption_stays_in_its_queue() -> None:
    s = world(
        TWO_NODES
        + """
queues: [{name: a}, {name: b}]
gangs:
- {name: low, queue: b, pods: 2, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 1}
- {name: hi, queue: a, requests: {gpu: 4}, priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0", "low-1"])) == {"D1 queue"}


def test_nobody_goes_for_members_above_the_minimum() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: hi, pods: 2, min: 1, requests: {gpu: 4}, runningOn: [n2], priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-1": "n1"}, ["low-0"])) == {"D2 demand"}


def test_nobody_goes_for_members_that_come_later_with_only_waiting() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: hi, apiFlavour: koordinator, matchPolicy: only-waiting, pods: 2, min: 1, requests: {gpu: 4}, runningOn: [n2], priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-1": "n1"}, ["low-0"])) == {"D2 demand"}


def test_nobody_goes_for_a_gang_that_stays_below_its_minimum() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: other, requests: {gpu: 4}, runningOn: n2, priority: 3}
- {name: hi, pods: 2, requests: {gpu: 4}, priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D9 minimum"}


def test_a_gang_is_not_torn() -> None:
    text = (
        TWO_NODES
        + """
gangs:
- {name: low, pods: 2, min: %d, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 1}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    torn, elastic = world(text % 2), world(text % 1)
    assert broken_rules(torn, plan(torn, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D3 torn"}
    assert broken_rules(elastic, plan(elastic, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == set()
    broken = replace(torn, history=History(broken=frozenset(torn.gangs)))
    assert broken_rules(broken, plan(broken, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == set()


def test_a_gang_does_not_end_where_its_surplus_would_do() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, pods: 2, min: 1, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 1}
- {name: hi, pods: 1, requests: {gpu: 4}, priority: 2}
"""
    )
    assert "D3 surplus" in broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0", "low-1"]))


def test_a_role_keeps_its_minimum() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- name: low
  priority: 1
  requests: {gpu: 2}
  min: 3
  roles: [{name: boss, pods: 1, min: 1, runningOn: n1}, {name: worker, pods: 3, min: 2, runningOn: [n1, n2, n2]}]
- {name: hi, requests: {gpu: 2}, priority: 2}
"""
    )
    assert "D3 torn" in broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-boss-0"]))
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-worker-0"])) == set()


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ("annotations: {volcano.sh/preemptable: 'false'}", "D3 protected"),
        ("labels: {quota.scheduling.koordinator.sh/preemptible: 'false'}", "F2 protected"),
        ("schedulerName: another, apiFlavour: single-pod", "G3 other scheduler"),
        ("namespace: kube-system", "G3 protected"),
    ],
)
def test_protected_pods_stay(keys: str, rule: str) -> None:
    s = world(
        f"""
nodes: [{{name: n1, gpu: 4}}]
gangs:
- {{name: low, requests: {{gpu: 4}}, runningOn: n1, priority: 1, {keys}}}
- {{name: hi, requests: {{gpu: 4}}, priority: 2}}
"""
    )
    victim = next(pod.name for pod in s.pods.values() if pod.name.startswith("low"))
    assert rule in broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, [victim]))


BUDGET = """
nodes: [{name: "n[1-2]", gpu: 4}]
gangs:
- {name: low, pods: 2, min: 1, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 1, labels: {app: web}}
- {name: hi, requests: {gpu: 4}, priority: 2}
objects:
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: web, namespace: default}
  spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"""


def test_a_hard_budget_is_kept_and_a_soft_one_is_not() -> None:
    hard, soft = world(BUDGET), world(BUDGET, plugins=PLUGINS.replace("pdb", "pdb: {mode: soft}"))
    assert broken_rules(hard, plan(hard, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D7 budget"}
    assert broken_rules(soft, plan(soft, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == set()


def test_a_pod_that_just_started_stays() -> None:
    s = world(
        """
nodes: [{name: n1, gpu: 4}]
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1, age: 30s}
- {name: hi, requests: {gpu: 4}, priority: 2}
""",
        plugins=f"{PLUGINS}, min-runtime",
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D11 run time"}


def test_who_never_preempts_evicts_nobody() -> None:
    s = world(
        """
nodes: [{name: n1, gpu: 4}]
priorityClasses: [{name: polite, value: 5, preemptionPolicy: Never}]
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: hi, requests: {gpu: 4}, priorityClassName: polite}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, ["low-0"])) == {"D1 Never"}


def test_a_unit_that_can_be_left_out_is_needless() -> None:
    s = world(
        """
nodes: [{name: "n[1-3]", gpu: 4}]
gangs:
- {name: one, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: two, requests: {gpu: 4}, runningOn: n2, priority: 1}
- {name: three, requests: {gpu: 4}, runningOn: n3, priority: 1}
- {name: hi, pods: 2, requests: {gpu: 4}, priority: 2}
"""
    )
    both = {"hi-0": "n1", "hi-1": "n2"}
    assert broken_rules(s, plan(s, "hi", "gang-preempt", both, ["one-0", "two-0"])) == set()
    assert broken_rules(s, plan(s, "hi", "gang-preempt", both, ["one-0", "two-0", "three-0"])) == {"D8 needless"}


def test_a_unit_is_needed_where_the_free_nodes_are_kept_for_others() -> None:
    s = world(
        """
nodes: [{name: "n[1-3]", gpu: 4}]
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: gone, pods: 2, requests: {gpu: 4}, runningOn: ["n2", "n3"], priority: 1}
- {name: hi, pods: 2, requests: {gpu: 4}, priority: 2}
"""
    )
    s = s.without([uid for uid, pod in s.pods.items() if pod.name.startswith("gone-")])
    judged = plan(s, "hi", "gang-preempt", {"hi-0": "n1", "hi-1": "n2"}, ["low-0"])
    assert broken_rules(s, judged) == {"D8 needless"}
    assert broken_rules(replace(s, kept_nodes={"another": frozenset({"n3"})}), judged) == set()
    assert broken_rules(replace(s, kept_nodes={judged.asker: frozenset({"n3"})}), judged) == {"D8 needless"}


def test_a_unit_that_a_limit_needs_is_not_needless() -> None:
    s = world(
        """
nodes: [{name: "n[1-3]", gpu: 4}]
queues: [{name: a, limit: {gpu: 4}}]
gangs:
- {name: low, queue: a, requests: {gpu: 4}, runningOn: n1, priority: 1}
- {name: hi, queue: a, requests: {gpu: 4}, priority: 2}
"""
    )
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n2"}, ["low-0"])) == set()
    assert broken_rules(s, plan(s, "hi", "gang-preempt", {"hi-0": "n2"}, [])) == {"B6 limit"}


def test_nominations_end_together_and_only_for_whoever_could_evict_the_gang() -> None:
    s = world(
        TWO_NODES
        + """
gangs:
- {name: low, pods: 2, min: 1, requests: {gpu: 4}, runningOn: "n[1-2]", priority: 0}
- {name: mid, pods: 2, requests: {gpu: 4}, priority: 1}
- {name: hi, requests: {gpu: 4}, priority: 2}
- {name: equal, requests: {gpu: 4}, priority: 1}
"""
    )
    uids = {pod.name: uid for uid, pod in s.pods.items()}
    nominated = {uids[f"mid-{number}"]: Placement(Phase.NOMINATED, f"n{number + 1}") for number in range(2)}
    s = replace(s.without(s.placements), placements=nominated)
    both = (uids["mid-0"], uids["mid-1"])
    right = replace(plan(s, "hi", "gang-preempt", {"hi-0": "n1"}, []), released=both)
    assert broken_rules(s, right) == set()
    assert broken_rules(s, replace(right, released=both[:1])) == {"D10 together"}
    equal = replace(plan(s, "equal", "gang-preempt", {"equal-0": "n1"}, []), released=both)
    assert broken_rules(s, equal) == {"D1 priority"}
