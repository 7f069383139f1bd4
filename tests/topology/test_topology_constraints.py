"""What a gang may write where a tier is asked for, and how gangs come by their constraints and subgroups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.topology.rack_cluster import FixtureCluster, hypernode, member, node, nodes_of, parts, policy

from muster.engine.members_to_place import split_members
from muster.model.gang import PodGroup, SubgroupPolicy
from muster.model.pod import PLACED, ApiFlavour, Declared, Membership, Pod
from muster.model.pod_constraints import LabelSelector, Operator, Requirement
from muster.model.topology_spec import TopologyConstraint
from muster.plugins.topology import Topology
from muster.state.gangs.subgroups import all_subgroups


def two_blocks() -> FixtureCluster:
    cluster = FixtureCluster(policy(Topology(tiers={"shelf": "example.com/shelf"})))
    for rack in ("a1", "a2", "b1"):
        names = [f"{rack}n{i}" for i in range(2)]
        cluster.upsert(*(replace(node(name), labels={"example.com/room": rack[0]}) for name in names))
        cluster.upsert(hypernode(rack, nodes_of(names), tier_name="rack"))
    cluster.upsert(
        hypernode("a", parts("a1", "a2"), tier=2, tier_name="block"), hypernode("b", parts("b1"), tier=2, tier_name="block")
    )
    cluster.upsert(*(replace(node(f"s{i}"), labels={"example.com/shelf": "s"}) for i in range(3)))
    return cluster


@pytest.mark.parametrize(
    ("name", "fits", "fits_not"),
    [
        ("rack", 3, 4),  # Shelves are of the same tier as racks.
        ("shelf", 3, 4),
        ("example.com/shelf", 3, 4),
        ("block", 4, 5),
        ("example.com/room", 4, 5),
        ("node", 1, 2),
        ("NodeTopologyLayer", 1, 2),
        ("ClusterTopologyLayer", 9, 10),
    ],
)
def test_a_tier_has_many_names(name: str, fits: int, fits_not: int) -> None:
    for members in (fits, fits_not):
        cluster = two_blocks()
        cluster.submit("g", members, constraint=TopologyConstraint(hard=True, highest_tier_name=name))
        cluster.cycle()
        assert len(cluster.where("g")) == (members if members == fits else 0), cluster.why("g")


def test_a_hard_constraint_without_a_tier_means_any_domain() -> None:
    cluster = two_blocks()
    cluster.submit("four", 4, constraint=TopologyConstraint(hard=True))
    cluster.submit("five", 5, constraint=TopologyConstraint(hard=True))
    cluster.cycle()
    assert cluster.where("four") == {"a1n0", "a1n1", "a2n0", "a2n1"}
    assert cluster.where("five") == set()


def test_a_tier_below_all_others_is_refused_with_the_lowest() -> None:
    cluster = FixtureCluster(policy())
    cluster.upsert(node("a"), hypernode("r", nodes_of(["a"]), tier=3, tier_name="hall"))
    cluster.submit("g", 1, constraint=TopologyConstraint(hard=True, highest_tier=2))
    cluster.cycle()
    assert cluster.why("g") == "there is no domain of such a tier (highest tier allowed: 2): the lowest is 3 (hall)"


def test_a_soft_constraint_for_an_unknown_tier_keeps_nobody_waiting() -> None:
    cluster = two_blocks()
    cluster.submit("g", 9, constraint=TopologyConstraint(hard=False, highest_tier_name="nonsense"))
    cluster.cycle()
    assert len(cluster.where("g")) == 9


def test_annotations_of_pods_go_before_the_podgroup() -> None:
    cluster = two_blocks()
    said = Declared(must_gather="block")
    cluster.upsert(PodGroup(ApiFlavour.KOORDINATOR, "d", "g", min_member=4, topology=TopologyConstraint(hard=True, highest_tier=1)))
    for i in range(4):
        pod = member("g", str(i), gpu=8)
        cluster.upsert(replace(pod, membership=Membership(ApiFlavour.KOORDINATOR, "g", declared=said)))
    cluster.cycle()
    assert cluster.where("g") == {"a1n0", "a1n1", "a2n0", "a2n1"}


def test_a_subgroup_of_two_signatures_is_placed_by_eviction_too() -> None:
    cluster = FixtureCluster(policy(actions=("expire", "enqueue", "allocate", "gang-preempt")))
    for rack in ("a", "b"):
        cluster.upsert(*(node(f"{rack}{i}") for i in range(2)), hypernode(rack, nodes_of([f"{rack}0", f"{rack}1"])))
    cluster.submit("low", 4, priority=1, at=["a0", "a1", "b0", "b1"])
    subgroup = SubgroupPolicy("all", size=2, topology=TopologyConstraint(hard=True, highest_tier=1))
    cluster.submit("hi", 0, roles={"m": (1, 8), "w": (1, 4)}, least=2, priority=9, sub_groups=(subgroup,))
    cluster.cycle()
    assert len({name[0] for name in cluster.where("hi")}) == 1
    assert len(cluster.where("hi")) == 2


# -- subgroups ---------------------------------------------------------------------------------------------------------------------


def with_labels(pod: Pod, **labels: str) -> Pod:
    return replace(pod, labels=labels)


def test_members_are_in_the_first_sub_group_that_selects_them() -> None:
    cluster = FixtureCluster(policy())
    gpu = LabelSelector((Requirement("kind", Operator.IN, ("gpu",)),))
    subs = (
        SubgroupPolicy("fast", selector=gpu, label_keys=("part",), size=2, min_subgroups=1),
        SubgroupPolicy("rest", label_keys=("part",)),
    )
    cluster.upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", min_member=1, sub_groups=subs))
    fast_x, fast_y = {"kind": "gpu", "part": "x"}, {"kind": "gpu", "part": "y"}
    for i, some in enumerate([fast_x, fast_x, {"part": "x"}, {"kind": "gpu"}, fast_y]):
        cluster.upsert(with_labels(member("g", str(i), gpu=1), **some))
    gang = cluster.gang("g")
    fast, other = gang.subgroups
    assert {subgroup.title: sorted(subgroup.members) for subgroup in all_subgroups(gang)} == {
        "fast": ["g-0", "g-1", "g-4"],
        "fast-x": ["g-0", "g-1"],
        "fast-y": ["g-4"],
        "rest": ["g-2"],
        "rest-x": ["g-2"],
    }
    assert (gang.min_subgroups, fast.min_subgroups, other.min_subgroups) == (2, 1, 0)
    needed, others = split_members(cluster.world, gang, PLACED)
    assert ([pod.uid for pod in needed], [pod.uid for pod in others]) == (["g-0", "g-1"], ["g-2", "g-3", "g-4"])


def test_whom_the_minimum_asks_for_beyond_its_subgroups_is_in_none_that_would_stay_incomplete() -> None:
    cluster = FixtureCluster(policy())
    subs = (SubgroupPolicy("pair", label_keys=("part",), size=2), SubgroupPolicy("three", label_keys=("three",), size=3))
    cluster.upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", min_member=3, sub_groups=subs))
    for i, labels in enumerate([{"part": "x"}, {"three": "a"}, {"three": "a"}, {}, {"part": "x"}, {"three": "a"}]):
        cluster.upsert(with_labels(member("g", str(i), gpu=1), **labels))
    needed, _ = split_members(cluster.world, cluster.gang("g"), PLACED)
    assert [pod.uid for pod in needed] == ["g-0", "g-3", "g-4"], "the one that is in no subgroup, and the smaller subgroup"


def test_a_gang_waits_until_enough_subgroups_exist() -> None:
    cluster = FixtureCluster(policy())
    cluster.upsert(*(node(f"n{i}") for i in range(4)))
    subs = (SubgroupPolicy("part", label_keys=("part",), size=2, min_subgroups=2),)
    cluster.upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", min_member=1, sub_groups=subs))
    for i, part in enumerate("xxy"):
        cluster.upsert(with_labels(member("g", str(i), gpu=8), part=part))
    cluster.cycle()
    assert cluster.why("g") == "sub-group part: 1 of at least 2 parts have their members (part-y: 1 of at least 2 members exist)"
    cluster.upsert(with_labels(member("g", "3", gpu=8), part="y"))
    cluster.cycle()
    assert len(cluster.where("g")) == 4


def test_a_subgroup_that_would_be_too_small_is_not_placed_and_the_others_start() -> None:
    cluster = FixtureCluster(policy())
    cluster.upsert(*(node(f"n{i}") for i in range(3)))
    subs = (SubgroupPolicy("part", label_keys=("part",), size=2),)
    cluster.upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", min_member=2, sub_groups=subs))
    for i, part in enumerate("xxyy"):
        cluster.upsert(with_labels(member("g", str(i), gpu=8), part=part))
    cluster.cycle()
    assert len(cluster.where("g")) == 2
    assert "part-y: 1 of at least 2 members fit in the whole cluster" in cluster.why("g")
