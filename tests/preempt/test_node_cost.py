"""A plugin decides which node costs least, and the vetoes stand all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.preempt.random_clusters import session
from tests.preempt.single_pod_twin import TwinCluster, TwinGang, TwinPod
from tests.preempt.test_twin import plan_of

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.pod import Pod


@dataclass(frozen=True)
class PrefersLastNode:
    """The last node by name costs least."""

    name: str = "prefers-last-node"

    def node_cost(self, s: Session, pod: Pod, node: str, victims: Sequence[Pod]) -> int:  # noqa: ARG002
        return -s.world.table.row[node]


def cluster(*, budgets: dict[str, int]) -> TwinCluster:
    pods = [TwinPod(f"g{i}", f"g{i}", f"n{i}", 8, 1 + i, "abc"[i]) for i in range(3)]
    gangs = tuple(TwinGang(pod.name, "single pod", (pod,), 1, 0) for pod in pods)
    nodes = {f"n{i}": (8, "x") for i in range(3)}
    return TwinCluster(nodes, gangs, budgets, hard=True, limit=None, asking_pod=TwinPod("asks", "asks", None, 8, 9, "a"), now=48)


def chosen_node(*, budgets: dict[str, int], plugins: Sequence[Plugin] = ()) -> str:
    s = session(cluster(budgets=budgets))
    s.policy = Policy((*s.policy.plugins, *plugins), s.policy.actions, settings=s.policy.settings)
    plan = plan_of(s)
    assert plan is not None
    return plan.domain


def test_without_a_plugin_the_lowest_priority_decides() -> None:
    assert chosen_node(budgets={}) == "n0"


def test_with_a_plugin_its_cost_decides_alone() -> None:
    assert chosen_node(budgets={}, plugins=[PrefersLastNode()]) == "n2"


def test_a_node_whose_victim_is_protected_is_no_candidate_however_cheap() -> None:
    assert chosen_node(budgets={"c": 0}, plugins=[PrefersLastNode()]) == "n1"
