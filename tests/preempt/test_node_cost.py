"""A plugin decides which node costs least, and the vetoes stand all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.preempt.test_twin import plan_of
from tests.preempt.towns import session
from tests.preempt.twin import Body, Company, Town

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.pod import Pod


@dataclass(frozen=True)
class PrefersLate:
    """The last node by name costs least."""

    name: str = "prefers_late"

    def node_cost(self, s: Session, pod: Pod, node: str, victims: Sequence[Pod]) -> int:  # noqa: ARG002
        return -s.world.table.row[node]


def town(*, budgets: dict[str, int]) -> Town:
    bodies = [Body(f"g{i}", f"g{i}", f"n{i}", 8, 1 + i, "abc"[i]) for i in range(3)]
    companies = tuple(Company(body.name, "lone", (body,), 1, 0) for body in bodies)
    nodes = {f"n{i}": (8, "x") for i in range(3)}
    return Town(nodes, companies, budgets, hard=True, limit=None, asker=Body("asks", "asks", None, 8, 9, "a"), now=48)


def chosen_node(*, budgets: dict[str, int], plugins: Sequence[Plugin] = ()) -> str:
    s = session(town(budgets=budgets))
    s.policy = Policy((*s.policy.plugins, *plugins), s.policy.actions, settings=s.policy.settings)
    plan = plan_of(s)
    assert plan is not None
    return plan.domain


def test_without_a_plugin_the_least_important_victim_decides() -> None:
    assert chosen_node(budgets={}) == "n0"


def test_with_one_its_figure_decides_alone() -> None:
    assert chosen_node(budgets={}, plugins=[PrefersLate()]) == "n2"


def test_a_node_whose_victim_is_protected_is_no_candidate_however_cheap() -> None:
    assert chosen_node(budgets={"c": 0}, plugins=[PrefersLate()]) == "n1"
