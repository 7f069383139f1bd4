"""Disruption budgets: how many disruptions they allow, and evictions that they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.sim_manifests import budget, evict, found, node, phase, pod

from muster.model.events import Event, EvictFailed
from muster.sim.api_kinds import BadManifest
from muster.sim.cluster import SimCluster

APP = {"matchLabels": {"app": "x"}}


def running(count: int, **spec: Any) -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(budget(selector=APP, **spec))
    for i in range(count):
        cluster.apply(pod(f"p{i}", at="n1", labels={"app": "x"}))
    cluster.apply(pod("other", at="n1", labels={"app": "y"}))
    cluster.advance(2)
    cluster.events()
    return cluster


def failures(events: list[Event]) -> list[EvictFailed]:
    return [event for event in events if isinstance(event, EvictFailed)]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "51%"}, 1),
        ({"maxUnavailable": 3}, 3),
        ({"maxUnavailable": "30%"}, 2),
        ({"maxUnavailable": 0}, 0),
        ({"minAvailable": 9}, 0),
    ],
)
def test_the_status_says_how_many_disruptions_are_allowed(spec: dict[str, object], allowed: int) -> None:
    cluster = running(4, **spec)
    status = found(cluster, "PodDisruptionBudget", "b")["status"]
    assert (status["expectedPods"], status["currentHealthy"], status["disruptionsAllowed"]) == (4, 4, allowed)
    assert status["disruptionsAllowed"] == max(0, status["currentHealthy"] - status["desiredHealthy"])


def test_an_eviction_beyond_the_budget_is_refused_by_name() -> None:
    cluster = running(3, minAvailable=2)
    cluster.execute([evict(cluster, name, manner="evict") for name in ("p0", "p1")])
    (refused,) = failures(cluster.events())
    assert refused.refused_by == "default/b"
    assert "needs 2 healthy pods and has 2" in refused.why
    assert [phase(cluster, name) for name in ("p0", "p1", "p2")] == ["leaving", "Running", "Running"]


def test_a_plain_deletion_asks_no_budget() -> None:
    cluster = running(1, minAvailable=1)
    cluster.execute([evict(cluster, "p0", manner="delete")])
    assert phase(cluster, "p0") == "leaving"
    assert failures(cluster.events()) == []


def test_a_budget_does_not_protect_the_pods_of_others() -> None:
    cluster = running(1, minAvailable=1)
    cluster.execute([evict(cluster, "other", manner="evict")])
    assert phase(cluster, "other") == "leaving"


def test_a_budget_allows_more_when_more_pods_are_healthy() -> None:
    cluster = running(1, minAvailable=1)
    cluster.execute([evict(cluster, "p0", manner="evict")])
    assert phase(cluster, "p0") == "Running"
    cluster.apply(pod("p1", at="n1", labels={"app": "x"}))
    cluster.advance(2)
    cluster.execute([evict(cluster, "p0", manner="evict")])
    assert phase(cluster, "p0") == "leaving"


def test_a_pod_that_does_not_run_may_always_be_evicted() -> None:
    cluster = running(1, minAvailable=1)
    cluster.apply(pod("waiting", labels={"app": "x"}))
    cluster.execute([evict(cluster, "waiting", manner="evict")])
    assert phase(cluster, "waiting") == "gone"


def test_two_budgets_on_one_pod_refuse_it_altogether() -> None:
    cluster = running(4, minAvailable=1)
    cluster.apply(budget("c", selector={}, maxUnavailable=1))
    cluster.execute([evict(cluster, "p0", manner="evict")])
    (refused,) = failures(cluster.events())
    assert "2 budgets cover it (default/b and default/c)" in refused.why


def test_expressions_select_pods_too() -> None:
    cluster = running(0)
    cluster.apply(budget("c", minAvailable=1, selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}))
    assert found(cluster, "PodDisruptionBudget", "c")["status"]["currentHealthy"] == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": "many"}, "spec.minAvailable: 'many'"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "spec.selector.matchExpressions[0].operator: 'Is'"),
        ({"selector": ["a"]}, "spec.selector: ['a']"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_by_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(BadManifest) as refused:
        SimCluster().apply(budget(**spec))
    assert field in str(refused.value)
