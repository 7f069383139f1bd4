"""Gangs of three levels of groups on small clusters: a placement that exists is found, and no incomplete group gets a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.rack_cluster import FixtureCluster, hypernode, nodes_of, parts, policy

from muster.model.gang import CompositePodGroup, PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Pod, PodSignature
from muster.model.resource_amounts import PODS, Resources
from muster.model.topology_spec import TopologyConstraint
from muster.plugins.topology import Topology

GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Leaf:
    """A PodGroup: as many equal members, of which `least` are needed; `tier` is the highest that it may spread over, 3 for any."""

    count: int
    least: int
    gpu: int
    tier: int


@dataclass(frozen=True)
class Replica:
    leaves: tuple[Leaf, ...]
    least: int
    tier: int


@dataclass(frozen=True)
class World:
    """`racks`: the free GPUs of each node, by block and rack."""

    racks: tuple[tuple[tuple[int, ...], ...], ...]
    replicas: tuple[Replica, ...]
    least: int


leaves = st.builds(
    lambda count, least, gpu, tier: Leaf(count, min(least, count), gpu, tier),
    st.integers(1, 2), st.integers(1, 2), st.sampled_from([2, 3, 4, 5]), st.sampled_from([0, 1, 1, 2]),
)  # fmt: skip
replicas = st.lists(leaves, min_size=1, max_size=3).flatmap(
    lambda some: st.builds(Replica, st.just(tuple(some)), st.integers(1, len(some)), st.sampled_from([1, 2, 2, 3]))
)
racks = st.lists(st.sampled_from([2, 4, 5, 7, 8]), min_size=1, max_size=2).map(tuple)
blocks = st.lists(racks, min_size=1, max_size=2).map(tuple)
worlds = st.lists(replicas, min_size=2, max_size=2).flatmap(
    lambda some: st.builds(
        World,
        st.lists(blocks, min_size=1, max_size=2).map(tuple),
        st.just(tuple(some)),
        st.integers(1, len(some)),
    )
)  # fmt: skip


# -- the cluster -------------------------------------------------------------------------------------------------------------------


def nodes_in(world: World) -> dict[str, int]:
    """The free GPUs of every node: `b0r1n0` is in rack `b0r1` of block `b0`."""
    return {
        f"b{b}r{r}n{n}": free
        for b, block in enumerate(world.racks)
        for r, rack in enumerate(block)
        for n, free in enumerate(rack)
    }  # fmt: skip


def cluster_of(world: World) -> FixtureCluster:
    cluster = FixtureCluster(policy(Topology()))
    cluster.upsert(*(Node(name, allocatable=Resources.of({GPU: gpu, PODS: 20})) for name, gpu in nodes_in(world).items()))
    for b, block in enumerate(world.racks):
        for r, rack in enumerate(block):
            cluster.upsert(hypernode(f"b{b}r{r}", nodes_of(f"b{b}r{r}n{n}" for n in range(len(rack)))))
        cluster.upsert(hypernode(f"b{b}", parts(*(f"b{b}r{r}" for r in range(len(block)))), tier=2))
    cluster.upsert(CompositePodGroup("d", "top", min_groups=world.least))
    for i, replica in enumerate(world.replicas):
        cluster.upsert(CompositePodGroup("d", f"r{i}", parent="top", min_groups=replica.least, topology=constraint(replica.tier)))
        for j, leaf in enumerate(replica.leaves):
            name = f"r{i}l{j}"
            group = PodGroup(ApiFlavour.NATIVE, "d", name, min_member=leaf.least, topology=constraint(leaf.tier))
            cluster.upsert(replace(group, parent=f"r{i}"), *(pod(name, number, leaf.gpu) for number in range(leaf.count)))
    return cluster


def constraint(tier: int) -> TopologyConstraint | None:
    return None if tier == 3 else TopologyConstraint(hard=True, highest_tier=tier)


def pod(group: str, number: int, gpu: int) -> Pod:
    signature = PodSignature(request=Resources.of({GPU: gpu, PODS: 1}))
    return Pod(f"{group}-{number}", "d", f"{group}-{number}", signature, membership=Membership(ApiFlavour.NATIVE, group))


# -- what could be placed ----------------------------------------------------------------------------------------------------------


def domains(names: Sequence[str], tier: int) -> list[tuple[str, ...]]:
    """The nodes of every domain of this tier: a name begins with those of its block (2 letters) and of its rack (4)."""
    length = {0: 6, 1: 4, 2: 2, 3: 0}[tier]
    return [tuple(name for name in names if name[:length] == head) for head in sorted({name[:length] for name in names})]


def fits(world: World) -> bool:
    """Is there any placement that gives every level its minimum?"""
    free = nodes_in(world)
    return any(
        _fit_all([(world.replicas[at], None) for at in chosen], tuple(free), free)
        for chosen in combinations(range(len(world.replicas)), world.least)
    )


def _fit_all(todo: list[tuple[Replica | Leaf, tuple[str, ...] | None]], everywhere: tuple[str, ...], free: dict[str, int]) -> bool:
    """The groups to place, each inside these nodes, one after the other, in every way that there is."""
    if not todo:
        return True
    (group, inside), *rest = todo
    inside = everywhere if inside is None else inside
    if isinstance(group, Leaf):
        return any(_fit_all(rest, everywhere, left) for left in _leaf_placements(group, inside, free))
    for domain in domains(inside, group.tier):
        for chosen in combinations(group.leaves, group.least):
            if _fit_all([*((leaf, domain) for leaf in chosen), *rest], everywhere, free):
                return True
    return False


def _leaf_placements(leaf: Leaf, inside: tuple[str, ...], free: dict[str, int]) -> Iterator[dict[str, int]]:
    for domain in domains(inside, leaf.tier):
        for nodes in product(domain, repeat=leaf.least):
            left = dict(free)
            for node in nodes:
                left[node] -= leaf.gpu
            if all(left[node] >= 0 for node in nodes):
                yield left


# -- properties --------------------------------------------------------------------------------------------------------------------


def placed_by_leaf(cluster: FixtureCluster) -> dict[str, set[str]]:
    """The nodes of the placed members of each PodGroup, one for each member."""
    found: dict[str, set[str]] = {}
    for uid, placement in cluster.world.placements.by_uid.items():
        found.setdefault(uid.rpartition("-")[0], set()).add(f"{placement.node}/{uid}")
    return found


def is_in_one_domain(nodes: set[str], tier: int) -> bool:
    length = {0: 6, 1: 4, 2: 2, 3: 0}[tier]
    return len({name[:length] for name in nodes}) <= 1


@settings(max_examples=250, deadline=None)
@given(world=worlds)
def test_a_placement_that_exists_is_found(world: World) -> None:
    cluster = cluster_of(world)
    cluster.cycle()
    assert bool(cluster.world.placements.by_uid) == fits(world), cluster.why("top")


@settings(max_examples=150, deadline=None)
@given(world=worlds)
def test_whoever_has_a_node_is_in_complete_groups_only_each_in_its_domain(world: World) -> None:
    cluster = cluster_of(world)
    cluster.cycle()
    placed = placed_by_leaf(cluster)
    complete = 0
    for i, replica in enumerate(world.replicas):
        mine = [placed.get(f"r{i}l{j}", set()) for j in range(len(replica.leaves))]
        for leaf, nodes in zip(replica.leaves, mine, strict=True):
            assert not nodes or len(nodes) >= leaf.least
            assert is_in_one_domain(nodes, leaf.tier)
        whole = sum(len(nodes) >= leaf.least for leaf, nodes in zip(replica.leaves, mine, strict=True))
        assert not any(mine) or whole >= replica.least
        assert is_in_one_domain(set().union(*mine), replica.tier)
        complete += whole >= replica.least
    assert not placed or complete >= world.least
