"""The tree of domains: what HyperNodes and labels make of the nodes, and what is said about bad ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.rack_cluster import (
    FixtureCluster,
    hypernode,
    labelled,
    matching,
    names_in,
    node,
    nodes_of,
    parts,
    policy,
    reported_domains,
    rows_in,
    tree_of,
)

from muster.model.node import Node
from muster.model.topology_spec import DomainMember, DomainSpec
from muster.plugins.topology import Topology
from muster.state.derived.hypernode_members import NodeNames
from muster.state.derived.topology_domains import DomainTree, build_tree
from muster.state.world import World

NODES = [f"n{i}" for i in range(8)]


def problems(tree: DomainTree, name: str) -> str:
    return "; ".join(f"{problem.field}: {problem.text}" for problem in tree.problems.get(name, ()))


def domains(tree: DomainTree) -> list[tuple[int, str]]:
    return [(domain.tier or 0, domain.name) for domain in tree.domains]


# -- what is there -----------------------------------------------------------------------------------------------------------------


def test_several_trees_and_nodes_in_none_may_coexist() -> None:
    cluster = [node(f"a{i}") for i in range(2)] + [node(f"b{i}") for i in range(2)] + [node("loose")]
    tree = tree_of(
        cluster,
        [
            hypernode("ra", matching("^a"), tier_name="rack"),
            hypernode("rb", matching("^b"), tier_name="rack"),
            hypernode("block", parts("ra"), tier=3, tier_name="block"),
        ],
    )
    assert domains(tree) == [(0, "loose"), (1, "ra"), (1, "rb"), (3, "block")]
    assert tree.top_tier == 4
    assert tree.problems == {}
    assert tree.tier_numbers == {"rack": 1, "block": 3}
    assert [d.name for d in tree.containing([0])] == ["ra", "block", "the whole cluster"]
    assert [d.name for d in tree.containing([4])] == ["loose", "the whole cluster"]
    assert tree.lowest_common([0, 1]).name == "ra"
    assert tree.lowest_common([0, 2]).name == "the whole cluster"
    assert tree.lowest_common([2, 3]).name == "rb"
    assert tree.lowest_common([]).name == "the whole cluster"


def test_a_hypernode_without_nodes_is_no_domain() -> None:
    tree = tree_of([node("a")], [hypernode("r", matching("^zz"))])
    assert domains(tree) == [(0, "a")]
    assert tree.problems == {}


def test_labels_make_domains_of_nodes_with_the_same_values_up_to_the_top() -> None:
    cluster = [
        node("a", rack="1", block="x"),
        node("b", rack="1", block="y"),
        node("c", rack="1", block="x"),
        node("d", block="x"),
        node("e", rack="7"),
        node("f"),
    ]
    tree = tree_of(cluster, tiers={"rack": "rack", "block": "block"})
    assert domains(tree) == [(0, "f"), (1, "7"), (1, "x/1"), (1, "y/1"), (2, "x"), (2, "y")]
    table = World().table
    table.lay_out({each.name: each for each in cluster})
    assert names_in(tree, table)["x"] == {"a", "c", "d"}
    assert tree.show_tier(1) == "1 (rack)"
    assert tree.tier_numbers == {"rack": 1, "block": 2}


def test_the_parts_of_a_domain_are_the_widest_inside_it() -> None:
    cluster = [node("a", rack="1", block="x"), node("b", rack="2", block="x"), node("c", block="y"), node("d")]
    tree = tree_of(cluster, tiers={"rack": "rack", "block": "block"})
    assert [d.name for d in tree.parts_of(tree.whole)] == ["d", "x", "y"]
    block = next(d for d in tree.domains if d.name == "x")
    assert [d.name for d in tree.parts_of(block)] == ["x/1", "x/2"]


# -- what is wrong -----------------------------------------------------------------------------------------------------------------


def test_of_two_hypernodes_of_one_tier_the_older_keeps_a_node() -> None:
    cluster = [node(name) for name in ("a", "b", "c")]
    specs = [hypernode("young", nodes_of(["a", "b"]), created=2), hypernode("old", nodes_of(["b", "c"]), created=1)]
    tree = tree_of(cluster, specs)
    table = World().table
    table.lay_out({each.name: each for each in cluster})
    assert names_in(tree, table) == {"old": {"b", "c"}, "young": {"a"}}
    assert problems(tree, "young") == "spec.members: b is in HyperNode old of the same tier 1 too and stays there"
    assert "old" not in tree.problems


def test_of_two_hypernodes_of_one_age_the_first_by_name_keeps_a_node() -> None:
    tree = tree_of([node("a")], [hypernode("y", nodes_of(["a"])), hypernode("x", nodes_of(["a"]))])
    assert domains(tree) == [(1, "x")]


def test_a_node_named_twice_on_one_path_is_no_dispute() -> None:
    cluster = [node("a"), node("b")]
    tree = tree_of(cluster, [hypernode("rack", nodes_of(["a"])), hypernode("block", parts("rack"), nodes_of(["a", "b"]), tier=2)])
    assert domains(tree) == [(1, "rack"), (2, "block")]
    assert tree.problems == {}


def test_a_node_stays_in_the_lower_tier_where_a_higher_one_beside_it_wants_it_too() -> None:
    cluster = [node("a"), node("b")]
    tree = tree_of(cluster, [hypernode("rack", nodes_of(["a"]), created=9), hypernode("other", nodes_of(["a", "b"]), tier=2)])
    table = World().table
    table.lay_out({each.name: each for each in cluster})
    assert names_in(tree, table) == {"rack": {"a"}, "other": {"b"}}
    assert problems(tree, "other") == "spec.members: a is in HyperNode rack of tier 1 too and stays there"


def test_hypernodes_in_a_cycle_are_reported_and_keep_their_nodes() -> None:
    cluster = [node("a"), node("b")]
    specs = [hypernode("x", nodes_of(["a"]), parts("y"), tier=2), hypernode("y", nodes_of(["b"]), parts("x"), tier=2)]
    tree = tree_of(cluster, specs)
    assert domains(tree) == [(2, "x"), (2, "y")]
    assert problems(tree, "x") == "spec.members[1]: HyperNode y contains x itself: it is not taken as a part of it"
    assert problems(tree, "y") == "spec.members[1]: HyperNode x contains y itself: it is not taken as a part of it"


def test_a_hypernode_that_contains_itself_is_reported() -> None:
    tree = tree_of([node("a")], [hypernode("x", nodes_of(["a"]), parts("x"))])
    assert problems(tree, "x") == "spec.members[1]: HyperNode x contains x itself: it is not taken as a part of it"


def test_a_part_of_no_lower_tier_is_not_accepted() -> None:
    tree = tree_of([node("a")], [hypernode("r", nodes_of(["a"]), tier=2), hypernode("b", parts("r"), tier=2)])
    assert domains(tree) == [(2, "r")]
    assert problems(tree, "b") == "spec.members[0]: HyperNode r has tier 2, which is not below tier 2: it is not taken as a part"


def test_a_hypernode_has_one_parent_the_older_one() -> None:
    specs = [hypernode("r", nodes_of(["a"])), hypernode("y", parts("r"), tier=2, created=2), hypernode("z", parts("r"), tier=2)]
    tree = tree_of([node("a")], specs)
    assert domains(tree) == [(1, "r"), (2, "z")]
    assert "lies in z already and stays there" in problems(tree, "y")


def test_unknown_and_unreadable_members_are_named() -> None:
    bad = DomainMember(is_node=True, regex="n[")
    specs = [
        hypernode("r", nodes_of(["a", "m1", "m2", "m3", "m4"]), (bad,), (DomainMember(is_node=True),)),
        hypernode("b", parts("rr"), (DomainMember(is_node=False, regex="r.*"),), tier=2),
    ]
    tree = tree_of([node("a")], specs)
    assert domains(tree) == [(1, "r")]
    said = problems(tree, "r")
    assert "there is no node m1, m2, m3 and 1 more" in said
    assert "spec.members[5].selector.regexMatch.pattern: 'n[' is no regular expression" in said
    assert "spec.members[6]: selects nothing; write exactMatch, regexMatch or labelMatch" in said
    assert problems(tree, "b") == (
        "spec.members[0]: there is no HyperNode 'rr'; did you mean 'r'?; "
        "spec.members[1]: HyperNodes can only be named exactly: this member is ignored; write exactMatch"
    )


def test_one_name_for_two_tiers_means_the_tier_of_the_older() -> None:
    specs = [hypernode("r", nodes_of(["a"]), tier_name="rack"), hypernode("b", parts("r"), tier=2, tier_name="rack", created=1)]
    tree = tree_of([node("a")], specs)
    assert tree.tier_numbers == {"rack": 1}
    assert problems(tree, "b") == "spec.tierName: 'rack' is the name of tier 1, not of tier 2; use another name for this tier"


# -- what is said, and when --------------------------------------------------------------------------------------------------------


def test_a_problem_is_reported_once_and_its_end_is_reported_once() -> None:
    cluster = FixtureCluster(policy())
    cluster.upsert(node("a"), hypernode("r", nodes_of(["a", "b"])))
    assert reported_domains(cluster.cycle()) == {"r": "spec.members: there is no node b"}
    assert reported_domains(cluster.cycle()) == {}
    cluster.upsert(node("b"))
    assert reported_domains(cluster.cycle()) == {"r": "all of it is used"}
    assert reported_domains(cluster.cycle()) == {}
    cluster.delete_object("Node", "a")
    assert reported_domains(cluster.cycle()) == {"r": "spec.members: there is no node a"}
    cluster.delete_object("DomainSpec", "r")
    assert reported_domains(cluster.cycle()) == {}


def test_nothing_is_reported_where_no_hypernode_exists() -> None:
    cluster = FixtureCluster(policy(Topology(tiers={"rack": "rack"})))
    cluster.upsert(node("a", rack="x"))
    assert cluster.cycle().effects == ()


# -- the twin ----------------------------------------------------------------------------------------------------------------------


class SlowTree:
    """The same rules, one node at a time."""

    def __init__(self, nodes: Sequence[Node], specs: Iterable[DomainSpec], tiers: Mapping[str, str]) -> None:
        self.nodes = {each.name: each for each in nodes}
        self.specs = {spec.name: spec for spec in specs}
        self.by_age = sorted(self.specs.values(), key=lambda spec: (spec.created, spec.name))
        self.parent: dict[str, str] = {}
        for spec in self.by_age:
            for part in spec.members:
                if not part.is_node and self._may_be_part(part.exact, spec):
                    self.parent[part.exact] = spec.name
        self.domains: dict[tuple[int, str], set[str]] = {}
        for each in self.nodes.values():
            for tier, name in self.path(each, list(tiers.values())):
                self.domains.setdefault((tier, name), set()).add(each.name)

    def _may_be_part(self, child: str, spec: DomainSpec) -> bool:
        if child not in self.specs or spec.name in self._inside(child) or self.specs[child].tier >= spec.tier:
            return False
        return self.parent.get(child, spec.name) == spec.name

    def _inside(self, name: str) -> set[str]:
        found, before = {name}, set[str]()
        while found != before:
            before = set(found)
            found |= {m.exact for each in before if each in self.specs for m in self.specs[each].members if not m.is_node}
        return found

    def path(self, each: Node, labels: Sequence[str]) -> list[tuple[int, str]]:
        """Tiers and names of all domains that a node is in."""
        naming = [spec for spec in self.by_age if any(m.is_node and selects(m, each) for m in spec.members)]
        owner: str | None = min(naming, key=lambda spec: spec.tier).name if naming else None
        found: list[tuple[int, str]] = []
        while owner is not None:
            found.append((self.specs[owner].tier, owner))
            owner = self.parent.get(owner)
        if not found:
            values = [each.labels.get(label) for label in labels]
            for tier, value in enumerate(values, start=1):
                if value is not None:
                    found.append((tier, "/".join(v for v in reversed(values[tier - 1 :]) if v is not None)))
        return found or [(0, each.name)]


def selects(part: DomainMember, each: Node) -> bool:
    if part.exact or part.regex:
        return part.exact == each.name if part.exact else re.search(part.regex, each.name) is not None
    return part.labels is not None and part.labels.selects(each.labels)


HYPERNODES = ["h0", "h1", "h2", "h3", "h4"]
node_parts = st.one_of(
    st.lists(st.sampled_from([*NODES, "gone"]), max_size=3).map(nodes_of),
    st.sampled_from(["n[0-3]", "^n1$", "7", "nothing"]).map(matching),
    st.sampled_from(["x", "y"]).map(lambda value: labelled("rack", value)),
)
hypernode_parts = st.lists(st.sampled_from([*HYPERNODES, "gone"]), max_size=3).map(lambda names: parts(*names))
some_specs = st.lists(
    st.builds(
        lambda name, created, tier, inside, below: hypernode(name, inside, below, tier=tier, created=created),
        st.sampled_from(HYPERNODES),
        st.integers(0, 2).map(float),
        st.integers(1, 3),
        node_parts,
        hypernode_parts,
    ),
    unique_by=lambda spec: spec.name,
    max_size=5,
)
some_nodes = st.lists(
    st.builds(
        lambda name, labels: node(name, **labels),
        st.sampled_from(NODES),
        st.dictionaries(st.sampled_from(["rack", "block"]), st.sampled_from(["x", "y"]), max_size=2),
    ),
    unique_by=lambda each: each.name,
    min_size=1,
    max_size=8,
)
some_tiers = st.sampled_from([{}, {"rack": "rack"}, {"rack": "rack", "block": "block"}])


def assert_trees_agree(nodes: Sequence[Node], specs: Sequence[DomainSpec], tiers: Mapping[str, str]) -> None:
    world = World()
    world.table.lay_out({each.name: each for each in nodes})
    tree = build_tree({spec.name: spec for spec in specs}, world.table, tuple(tiers.items()), NodeNames())
    twin = SlowTree(nodes, specs, tiers)
    found = {(d.tier or 0, d.name): {world.table.names[row] for row in rows_in(d.rows, world.table)} for d in tree.domains}
    assert found == twin.domains
    assert list(found) == sorted(found)
    names = world.table.names
    for first in range(len(names)):
        for second in range(first, len(names)):
            holding = [key for key, inside in twin.domains.items() if {names[first], names[second]} <= inside]
            assert [(d.tier or 0, d.name) for d in tree.containing([first, second])[:-1]] == sorted(holding)
    for tier in range(5):
        wanted = [key for key in sorted(twin.domains) if key[0] <= tier]
        assert [(d.tier or 0, d.name) for d in tree.up_to(tier) if d.rows is not None] == wanted


@settings(max_examples=300, deadline=None)
@given(nodes=some_nodes, specs=some_specs, tiers=some_tiers)
def test_the_tree_is_what_the_rules_say_node_by_node(nodes: list[Node], specs: list[DomainSpec], tiers: dict[str, str]) -> None:
    assert_trees_agree(nodes, specs, tiers)


@settings(max_examples=100, deadline=None)
@given(nodes=some_nodes, specs=some_specs, tiers=some_tiers)
def test_the_parts_of_a_domain_cover_it_without_overlap(nodes: list[Node], specs: list[DomainSpec], tiers: dict[str, str]) -> None:
    tree = tree_of(nodes, specs, tiers)
    for domain in (*tree.domains, tree.whole):
        inside = [int(row) for part in tree.parts_of(domain) for row in (part.rows if part.rows is not None else ())]
        assert len(inside) == len(set(inside))
        mine = set(range(len(nodes))) if domain.rows is None else {int(row) for row in domain.rows}
        assert set(inside) <= mine
        lower = {int(r) for d in tree.domains if d.rows is not None and (d.tier or 0) < (domain.tier or 0) for r in d.rows}
        assert set(inside) == mine & lower


@settings(max_examples=100, deadline=None)
@given(first=some_nodes, then=some_nodes, specs=some_specs, other=some_specs)
def test_cached_name_matches_change_nothing(
    first: list[Node], then: list[Node], specs: list[DomainSpec], other: list[DomainSpec]
) -> None:
    names = NodeNames()
    for nodes, some in ((first, specs), (then, specs), (then, other), (first, other)):
        world = World()
        world.table.lay_out({each.name: each for each in nodes})
        known = {spec.name: spec for spec in some}
        tree, fresh = build_tree(known, world.table, (), names), build_tree(known, world.table, (), NodeNames())
        assert names_in(tree, world.table) == names_in(fresh, world.table)
        assert tree.problems == fresh.problems
