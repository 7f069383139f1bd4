"""What a gang may write where a tier is asked for, and how gangs come by their wishes and cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.topology.town import Town, hypernode, member, node, nodes_of, parts, policy

from muster.model.gang import Group, SubGroup
from muster.model.pod import Declared, Dialect, Membership, Pod
from muster.model.selectors import LabelSelector, Operator, Requirement
from muster.model.topology import TopologyAsk
from muster.plugins.topology import Topology
from muster.state.cells import with_cells


def two_blocks() -> Town:
    town = Town(policy(Topology(tiers={"shelf": "example.com/shelf"})))
    for rack in ("a1", "a2", "b1"):
        names = [f"{rack}n{i}" for i in range(2)]
        town.see(*(replace(node(name), labels={"example.com/room": rack[0]}) for name in names))
        town.see(hypernode(rack, nodes_of(names), tier_name="rack"))
    town.see(hypernode("a", parts("a1", "a2"), tier=2, tier_name="block"), hypernode("b", parts("b1"), tier=2, tier_name="block"))
    town.see(*(replace(node(f"s{i}"), labels={"example.com/shelf": "s"}) for i in range(3)))
    return town


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
        town = two_blocks()
        town.submit("g", members, wish=TopologyAsk(hard=True, highest_tier_name=name))
        town.cycle()
        assert len(town.where("g")) == (members if members == fits else 0), town.why("g")


def test_a_hard_wish_without_a_tier_means_any_domain() -> None:
    town = two_blocks()
    town.submit("four", 4, wish=TopologyAsk(hard=True))
    town.submit("five", 5, wish=TopologyAsk(hard=True))
    town.cycle()
    assert town.where("four") == {"a1n0", "a1n1", "a2n0", "a2n1"}
    assert town.where("five") == set()


def test_a_tier_below_all_others_is_refused_with_the_lowest() -> None:
    town = Town(policy())
    town.see(node("a"), hypernode("r", nodes_of(["a"]), tier=3, tier_name="hall"))
    town.submit("g", 1, wish=TopologyAsk(hard=True, highest_tier=2))
    town.cycle()
    assert town.why("g") == "there is no domain of such a tier (highest tier allowed: 2): the lowest is 3 (hall)"


def test_a_soft_wish_for_an_unknown_tier_keeps_nobody_waiting() -> None:
    town = two_blocks()
    town.submit("g", 9, wish=TopologyAsk(hard=False, highest_tier_name="nonsense"))
    town.cycle()
    assert len(town.where("g")) == 9


def test_annotations_of_pods_go_before_the_podgroup() -> None:
    town = two_blocks()
    said = Declared(must_gather="block")
    town.see(Group(Dialect.KOORDINATOR, "d", "g", min_member=4, topology=TopologyAsk(hard=True, highest_tier=1)))
    for i in range(4):
        pod = member("g", str(i), gpu=8)
        town.see(replace(pod, membership=Membership(Dialect.KOORDINATOR, "g", declared=said)))
    town.cycle()
    assert town.where("g") == {"a1n0", "a1n1", "a2n0", "a2n1"}


def test_a_cell_of_two_kinds_finds_room_by_eviction_too() -> None:
    town = Town(policy(actions=("expire", "enqueue", "allocate", "gang-preempt")))
    for rack in ("a", "b"):
        town.see(*(node(f"{rack}{i}") for i in range(2)), hypernode(rack, nodes_of([f"{rack}0", f"{rack}1"])))
    town.submit("low", 4, priority=1, at=["a0", "a1", "b0", "b1"])
    cell = SubGroup("all", size=2, topology=TopologyAsk(hard=True, highest_tier=1))
    town.submit("hi", 0, roles={"m": (1, 8), "w": (1, 4)}, least=2, priority=9, sub_groups=(cell,))
    town.cycle()
    assert len({name[0] for name in town.where("hi")}) == 1
    assert len(town.where("hi")) == 2


# -- cells -------------------------------------------------------------------------------------------------------------------------


def with_labels(pod: Pod, **labels: str) -> Pod:
    return replace(pod, labels=labels)


def test_members_are_in_the_first_sub_group_that_selects_them() -> None:
    town = Town(policy())
    gpu = LabelSelector((Requirement("kind", Operator.IN, ("gpu",)),))
    subs = (SubGroup("fast", selector=gpu, label_keys=("part",), size=2, min_cells=1), SubGroup("rest", label_keys=("part",)))
    town.see(Group(Dialect.VOLCANO, "d", "g", min_member=1, sub_groups=subs))
    fast_x, fast_y = {"kind": "gpu", "part": "x"}, {"kind": "gpu", "part": "y"}
    for i, some in enumerate([fast_x, fast_x, {"part": "x"}, {"kind": "gpu"}, fast_y]):
        town.see(with_labels(member("g", str(i), gpu=1), **some))
    gang = town.gang("g")
    assert {cell.title: sorted(cell.members) for cell in gang.cells} == {
        "fast-x": ["g-0", "g-1"],
        "fast-y": ["g-4"],
        "rest-x": ["g-2"],
    }
    assert gang.cell_mins == (("d/g/fast", 1),)
    first, *rest = gang.pods()
    needed, others = with_cells(town.world, gang, [first], rest)
    assert ([pod.uid for pod in needed], [pod.uid for pod in others]) == (["g-0", "g-1"], ["g-2", "g-3", "g-4"])
    needed, others = with_cells(town.world, replace(gang, cell_mins=()), [rest[0]], [first, *rest[1:]])
    assert ([pod.uid for pod in needed], [pod.uid for pod in others]) == (["g-1", "g-0"], ["g-2", "g-3", "g-4"])


def test_a_gang_waits_until_enough_parts_of_a_sub_group_exist() -> None:
    town = Town(policy())
    town.see(*(node(f"n{i}") for i in range(4)))
    subs = (SubGroup("part", label_keys=("part",), size=2, min_cells=2),)
    town.see(Group(Dialect.VOLCANO, "d", "g", min_member=1, sub_groups=subs))
    for i, part in enumerate("xxy"):
        town.see(with_labels(member("g", str(i), gpu=8), part=part))
    town.cycle()
    assert town.why("g") == "sub-group part: 1 of at least 2 parts have their members"
    town.see(with_labels(member("g", "3", gpu=8), part="y"))
    town.cycle()
    assert len(town.where("g")) == 4


def test_a_part_that_would_be_too_small_is_not_begun_and_the_others_start() -> None:
    town = Town(policy())
    town.see(*(node(f"n{i}") for i in range(3)))
    subs = (SubGroup("part", label_keys=("part",), size=2),)
    town.see(Group(Dialect.VOLCANO, "d", "g", min_member=2, sub_groups=subs))
    for i, part in enumerate("xxyy"):
        town.see(with_labels(member("g", str(i), gpu=8), part=part))
    town.cycle()
    assert len(town.where("g")) == 2
    assert "part-y: 1 of at least 2 members find room in the whole cluster" in town.why("g")
