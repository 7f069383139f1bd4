"""Whatever quotas and jobs there are: usage stays within its bounds after every cycle, and no pod is evicted for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.config import load_policy
from muster.engine.cycle import run_cycle
from muster.model.effects import Effect, Evict
from muster.model.pod import Phase
from muster.model.resource_amounts import GPU
from muster.sim.cluster import SimCluster
from muster.state.store import Store
from muster.state.world import World

PREFIX = "quota.scheduling.koordinator.sh"
POLICY = """
actions: [expire, enqueue, allocate, job-preempt]
plugins: [priority, fit, binpack, nominated, elastic-quota]
"""
SOFT_EVICTION = POLICY.replace("elastic-quota]", "{elastic-quota: {podShouldBeDeletedWhenPreempted: false}}]")
GPUS = 4


@st.composite
def quotas(draw: st.DrawFn) -> dict[str, tuple[int, int]]:
    found = {}
    for number in range(draw(st.integers(1, 2))):
        # A minimum of zero is none at all.
        least = draw(st.integers(1, 6))
        found[f"team-{number}"] = (least, draw(st.integers(least, 12)))
    return found


@st.composite
def jobs(draw: st.DrawFn, teams: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"job-{number}",
            "team": draw(st.sampled_from(teams)),
            "pods": draw(st.integers(1, 4)),
            "gpus": draw(st.integers(1, 3)),
            # What comes later has a higher priority more often than not.
            "priority": draw(st.integers(1, 4)) + number,
            "preemptible": draw(st.sampled_from(["true", "true", "false"])),
            "gone": draw(st.booleans()),
        }
        for number in range(draw(st.integers(2, 6)))
    ]


quota_cases = quotas().flatmap(lambda teams: st.tuples(st.just(teams), st.integers(1, 3), jobs(sorted(teams))))


QuotaCase = tuple[dict[str, tuple[int, int]], int, list[dict[str, Any]]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=quota_cases)
def test_quotas_hold_after_every_cycle_and_no_eviction_is_wasted(case: QuotaCase) -> None:
    teams, nodes, wanted = case
    cluster, cycle = _cluster(teams, nodes), _cycles(POLICY)
    for job in wanted:
        _submit(cluster, job)
        for _ in range(6):
            world, effects = cycle(cluster)
            _within_bounds(world, teams)
            _all_are_served(world, {effect.for_gang for effect in effects if isinstance(effect, Evict)})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=quota_cases)
def test_no_pod_is_evicted_while_none_was_nominated(case: QuotaCase) -> None:
    """Some jobs are deleted in the middle of their round, and no operator ever comes."""
    teams, nodes, wanted = case
    cluster, cycle = _cluster(teams, nodes), _cycles(SOFT_EVICTION)
    for job in wanted:
        _submit(cluster, job)
        for number in range(5):
            world, _ = cycle(cluster)
            _within_bounds(world, teams)
            asked = [
                pod.full_name
                for pod in world.facts.pods.values()
                if pod.eviction_marked_at is not None and world.phase(pod) is Phase.TERMINATING
            ]
            assert world.placements.reservations or not asked
            if number == 1 and job["gone"]:
                for index in range(job["pods"]):
                    cluster.delete("Pod", "default", f"{job['name']}-{index}")


def _cluster(teams: dict[str, tuple[int, int]], nodes: int) -> SimCluster:
    cluster = SimCluster()
    for number in range(nodes):
        allocatable = {"nvidia.com/gpu": str(GPUS), "cpu": "64", "memory": "64Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
        cluster.apply({**node, "status": {"allocatable": allocatable}})
    for team, (least, most) in teams.items():
        spec = {"min": {"nvidia.com/gpu": least}, "max": {"nvidia.com/gpu": most}}
        cluster.apply(_of("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", team, spec))
    return cluster


def _cycles(policy_text: str) -> Callable[[SimCluster], tuple[World, tuple[Effect, ...]]]:
    """One cycle after the other of one scheduler, fifteen seconds apart."""
    store, policy = Store(), load_policy(policy_text)

    def cycle(cluster: SimCluster) -> tuple[World, tuple[Effect, ...]]:
        for event in cluster.events():
            store.fold(event)
        world = store.world(cluster.now)
        outcome = run_cycle(world, policy)
        cluster.execute(outcome.effects)
        cluster.advance(15.0)
        return world, outcome.effects

    return cycle


def _within_bounds(world: World, teams: dict[str, tuple[int, int]]) -> None:
    gpu = world.columns.position[GPU]
    for team, (least, most) in teams.items():
        queue = f"quota/default/{team}"
        if queue not in world.ledger:
            continue
        firm = int(world.ledger.planned_part(queue, preemptible=False)[gpu])
        assert firm <= least, f"{team}: {firm} non-preemptible > {least} min"
        assert int(world.ledger.planned(queue)[gpu]) <= most
        assert int(world.ledger.used(queue)[gpu]) <= most


def _all_are_served(world: World, titles: set[str]) -> None:
    """A job that others were evicted for has every member that its minimum needs nominated."""
    for gang in world.facts.gangs.values():
        if gang.full_name in titles:
            placed = sum(world.phase(pod) in (Phase.NOMINATED, Phase.RESERVED, Phase.BOUND, Phase.BINDING) for pod in gang.pods())
            assert placed >= gang.min, f"{gang.full_name} evicts and has {placed} of {gang.min}"


def _submit(cluster: SimCluster, job: dict[str, Any]) -> None:
    cluster.apply(_of("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", job["name"], {"minMember": job["pods"]}))
    for index in range(job["pods"]):
        labels = {
            "pod-group.scheduling.sigs.k8s.io": job["name"],
            f"{PREFIX}/name": job["team"],
            f"{PREFIX}/preemptible": job["preemptible"],
        }
        request = {"nvidia.com/gpu": str(job["gpus"])}
        container = {"name": "main", "resources": {"requests": request, "limits": request}}
        spec = {"schedulerName": "muster", "priority": job["priority"], "containers": [container]}
        pod = _of("v1", "Pod", f"{job['name']}-{index}", spec)
        pod["metadata"]["labels"] = labels
        cluster.apply(pod)


def _of(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
