"""Making room: which domains are entered first, and that whoever is promised a node still lies together."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.fixture_cluster import FixtureCluster, hypernode, node, nodes_of, policy
from tests.topology.worlds import Case, cases, cluster_of, submit, violating_gangs

from muster.engine.hooks import Ask, Purpose
from muster.model.topology_spec import TopologyConstraint
from muster.plugins.topology import Topology

RACK = TopologyConstraint(hard=True, highest_tier=1)
EVICTING = ("expire", "enqueue", "allocate", "gang-preempt")


@dataclass(frozen=True)
class FullRacks:
    """Racks of nodes of 8 GPUs, who stands on each node (GPUs, priority), and a gang that wants in."""

    racks: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    members: int
    gpu: int
    most: int


placed_pods = st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(0, 7)), max_size=2).map(tuple)
full_racks = st.lists(st.lists(placed_pods, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)
full_racks_cases = st.builds(FullRacks, full_racks, st.integers(1, 4), st.sampled_from([2, 4, 8]), st.integers(1, 3))

ASKER = 5


def full_cluster(full: FullRacks) -> FixtureCluster:
    cluster = FixtureCluster(policy(Topology(evict_domains=full.most), actions=EVICTING))
    for r, rack in enumerate(full.racks):
        names = [f"r{r}n{n}" for n in range(len(rack))]
        cluster.upsert(*(node(name) for name in names), hypernode(f"r{r}", nodes_of(names)))
        for name, pods in zip(names, rack, strict=True):
            for i, (gpu, priority) in enumerate(pods):
                cluster.submit(f"{name}-{i}", 1, gpu=gpu, priority=priority, at=[name])
    cluster.submit("hi", full.members, gpu=full.gpu, priority=ASKER, constraint=RACK)
    return cluster


def order_by_hand(full: FullRacks) -> list[str]:
    """Racks that could be entered: fewest seats lacking, then the lowest priorities that must go, then the name."""
    levels = sorted({priority for rack in full.racks for pods in rack for _, priority in pods if priority < ASKER})
    found: list[tuple[int, int, str]] = []
    for r, rack in enumerate(full.racks):
        seats = [fit_count_without(rack, full.gpu, gone=level) for level in (-1, *levels)]
        enough = [at for at, count in enumerate(seats) if count >= full.members]
        if enough:
            found.append((full.members - min(seats[0], full.members), enough[0], f"r{r}"))
    return [name for _, _, name in sorted(found)][: full.most]


def fit_count_without(rack: tuple[tuple[tuple[int, int], ...], ...], gpu: int, *, gone: int) -> int:
    return sum((8 - sum(taken for taken, priority in pods if priority > gone)) // gpu for pods in rack)


@settings(max_examples=150, deadline=None)
@given(full=full_racks_cases)
def test_the_racks_that_are_cheapest_to_evict_in_come_first(full: FullRacks) -> None:
    cluster = full_cluster(full)
    gang = cluster.gang("hi")
    where = cluster.session().where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-preempt"))
    assert [domain.name for domain in where.domains] == order_by_hand(full)
    assert where.domains or "even" in where.verdict.why


@settings(max_examples=60, deadline=None)
@given(full=full_racks_cases)
def test_a_gang_that_could_be_placed_by_eviction_is_nominated(full: FullRacks) -> None:
    """Everybody who stands there is alone: whatever must go may go, so the first rack that could be entered is entered."""
    cluster = full_cluster(full)
    wanted = order_by_hand(full)
    cluster.cycle()
    assert racks_violated(cluster) <= 1
    assert bool(cluster.where("hi")) == bool(wanted)


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
