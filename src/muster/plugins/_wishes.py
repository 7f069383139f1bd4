"""What a gang wishes of the domains, in terms of a tree: which tree, and how high it may go."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from muster.model.effects import Verdict
from muster.model.topics import Topic
from muster.model.topology import TopologyAsk
from muster.state.domains import NODE_TIER, DomainTree, label_tree, node_tree
from muster.state.world import World

UNKNOWN_TIER = "UnknownTier"

# Tiers that every cluster has, as people and Koordinator call them.
_NODE_NAMES = (NODE_TIER, "NodeTopologyLayer")
_CLUSTER_NAMES = ("cluster", "ClusterTopologyLayer")


@dataclass(frozen=True, slots=True)
class Wish:
    """Nothing above the tier `highest`, if `hard`."""

    tree: DomainTree
    highest: int
    hard: bool

    @property
    def limit(self) -> str:
        return f"highest tier allowed: {self.tree.show_tier(self.highest)}"


def wish_of(world: World, tree: DomainTree, written: TopologyAsk) -> Wish | Verdict:
    """The wish, or why it cannot be understood. Without a tier any domain will do; tier 0 is a single node."""
    if written.highest_tier_name:
        return _named(world, tree, written)
    if written.highest_tier is None:
        return Wish(tree, tree.top_tier - 1, written.hard)
    if written.highest_tier == 0 and tree.lowest != 0:
        return Wish(node_tree(world), 0, written.hard)
    return Wish(tree, written.highest_tier, written.hard)


def _named(world: World, tree: DomainTree, written: TopologyAsk) -> Wish | Verdict:
    """A tier by its name, or by the label of nodes that makes it."""
    name = written.highest_tier_name
    if name in tree.tier_numbers:
        return Wish(tree, tree.tier_numbers[name], written.hard)
    if name in _NODE_NAMES:
        return Wish(node_tree(world), 0, written.hard)
    by_label = label_tree(world, name)
    if by_label is not None:
        return Wish(by_label, 1, written.hard)
    if name in _CLUSTER_NAMES or not written.hard:
        return Wish(tree, tree.top_tier, written.hard)
    known = [*tree.tier_numbers, NODE_TIER]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    why = f"no tier and no node label is called {name!r}; {hint}"
    return Verdict(ok=False, why=why, code=UNKNOWN_TIER, topics=(Topic.FREE_CAPACITY.any,))
