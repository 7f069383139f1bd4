"""Evicting in domains: which domains are entered first, and that whoever is promised a node still lies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.rack_cluster import FixtureCluster, hypernode, node, nodes_of, policy
from tests.topology.rack_worlds import Case, cases, cluster_of, submit, violating_gangs

from muster.engine.hooks import Ask, Policy, Purpose
from muster.model.effects import Evict
from muster.model.resource_amounts import GPU
from muster.model.topology_spec import TopologyConstraint
from muster.plugins.topology import Topology

RACK = TopologyConstraint(hard=True, highest_tier=1)
EVICTING = ("expire", "enqueue", "allocate", "gang-preempt")


@dataclass(frozen=True)
class FullRacks:
    """Racks of nodes of 8 GPUs, who stands on each node (GPUs, priority), and a gang that wants in. `most`: so many domains are
    planned at most."""

    racks: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    members: int
    gpu: int
    most: int


placed_pods = st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(0, 7)), max_size=2).map(tuple)
full_racks = st.lists(st.lists(placed_pods, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)
full_racks_cases = st.builds(FullRacks, full_racks, st.integers(1, 4), st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 8]))

ASKER = 5
ALL_RACKS = 8
LOWEST_PRIORITY = -(2**31)
PlanKey = tuple[int, ...]


def full_cluster(full: FullRacks) -> FixtureCluster:
    chosen = policy(actions=EVICTING)
    settings_of = replace(chosen.settings, max_evict_domains=full.most)
    cluster = FixtureCluster(Policy(chosen.plugins, chosen.actions, settings=settings_of))
    for r, rack in enumerate(full.racks):
        names = [f"r{r}n{n}" for n in range(len(rack))]
        cluster.upsert(*(node(name) for name in names), hypernode(f"r{r}", nodes_of(names)))
        for name, pods in zip(names, rack, strict=True):
            for i, (gpu, priority) in enumerate(pods):
                cluster.submit(f"{name}-{i}", 1, gpu=gpu, priority=priority, at=[name])
    cluster.submit("hi", full.members, gpu=full.gpu, priority=ASKER, constraint=RACK)
    return cluster


def best_by_hand(full: FullRacks) -> dict[str, PlanKey]:
    """For each rack that could be entered, the key of the best set of victims there."""
    found: dict[str, PlanKey] = {}
    for r, rack in enumerate(full.racks):
        there = [(n, gpu, priority) for n, pods in enumerate(rack) for gpu, priority in pods if priority < ASKER]
        sets = (chosen for count in range(len(there) + 1) for chosen in combinations(there, count))
        keys = [key_of([pod[1:] for pod in chosen], full.members) for chosen in sets if fits_without(rack, full, chosen)]
        if keys:
            found[f"r{r}"] = min(keys)
    return found


def key_of(victims: Sequence[tuple[int, int]], members: int) -> PlanKey:
    """The one order of plans for victims that stand alone: the highest priority, for one pod their sum, the cost, how many."""
    priorities = [priority for _, priority in victims]
    summed = sum(priority - LOWEST_PRIORITY for priority in priorities) if members == 1 else 0
    return (max(priorities, default=LOWEST_PRIORITY), summed, sum(gpu for gpu, _ in victims), len(victims))


def fits_without(rack: tuple[tuple[tuple[int, int], ...], ...], full: FullRacks, evicted: Sequence[tuple[int, int, int]]) -> bool:
    free = [8 - sum(gpu for gpu, _ in pods) for pods in rack]
    for n, gpu, _ in evicted:
        free[n] += gpu
    return sum(each // full.gpu for each in free) >= full.members


@settings(max_examples=150, deadline=None)
@given(full=full_racks_cases)
def test_every_rack_that_evictions_could_free_is_a_domain_and_no_other(full: FullRacks) -> None:
    cluster = full_cluster(full)
    gang = cluster.gang("hi")
    where = cluster.session().where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-preempt"))
    assert sorted(domain.name for domain in where.domains) == sorted(best_by_hand(full))
    assert where.domains or "even" in where.verdict.why


@settings(max_examples=150, deadline=None)
@given(full=full_racks_cases)
def test_the_best_plan_of_all_racks_is_carried_out(full: FullRacks) -> None:
    """Everybody who stands there is alone: whatever must go may go. With fewer plans than racks the lowest priority still wins,
    because the estimate by which racks are ordered knows it."""
    cluster = full_cluster(full)
    best = best_by_hand(full)
    outcome = cluster.cycle()
    assert racks_violated(cluster) <= 1
    assert bool(cluster.where("hi")) == bool(best)
    world = cluster.world
    victims = [world.facts.pods[effect.uid] for effect in outcome.effects if isinstance(effect, Evict)]
    gangs = [world.facts.gangs[world.facts.members[pod.uid].gang] for pod in victims]
    amounts = [pod.signature.request[GPU] for pod in victims]
    key = key_of([(gpu, gang.priority) for gpu, gang in zip(amounts, gangs, strict=True)], full.members)
    if full.most == ALL_RACKS and best:
        assert key == min(best.values())
    elif best:
        assert key[0] == min(best.values())[0]


def racks_violated(cluster: FixtureCluster) -> int:
    return len({name[:2] for name in cluster.where("hi")})


@settings(max_examples=80, deadline=None)
@given(case=cases(most_jobs=3), late=cases(most_jobs=3))
def test_hard_constraints_hold_for_nominated_pods_too(case: Case, late: Case) -> None:
    cluster = cluster_of(case, actions=EVICTING)
    cluster.cycle()
    for number, job in enumerate(late.jobs):
        submit(cluster, f"late{number}", job)
        cluster.cycle(5.0)
        assert violating_gangs(cluster.world) == []


def test_where_no_pod_of_other_queues_is_evictable_their_pods_count_as_placed() -> None:
    cluster = FixtureCluster(policy(Topology(), actions=EVICTING))
    cluster.upsert(node("a"), node("b"), hypernode("r", nodes_of(["a", "b"])))
    cluster.submit("other", 2, priority=0, at=["a", "b"], queue="queue/theirs")
    cluster.submit("hi", 2, priority=9, constraint=RACK)
    gang = cluster.gang("hi")
    s = cluster.session()
    assert not s.where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-preempt")).domains
    assert [d.name for d in s.where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-reclaim")).domains] == ["r"]
