"""The topology constraint of a gang resolved against the domains: which tree, and the highest tier allowed."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from muster.model.effects import Verdict
from muster.model.topics import Topic
from muster.model.topology_spec import TopologyConstraint
from muster.state.derived.topology_domains import NODE_TIER, DomainTree, label_tree, node_tree
from muster.state.world import World

UNKNOWN_TIER = "UnknownTier"

# Tiers that every cluster has, as people and Koordinator call them.
_NODE_TIER_NAMES = (NODE_TIER, "NodeTopologyLayer")
_CLUSTER_TIER_NAMES = ("cluster", "ClusterTopologyLayer")


@dataclass(frozen=True, slots=True)
class TierConstraint:
    """Nothing above the tier `highest_tier_allowed`, if `hard`."""

    tree: DomainTree
    highest_tier_allowed: int
    hard: bool

    @property
    def limit_text(self) -> str:
        return f"highest tier allowed: {self.tree.show_tier(self.highest_tier_allowed)}"


def resolve_constraint(world: World, tree: DomainTree, spec: TopologyConstraint) -> TierConstraint | Verdict:
    """The constraint, or why it cannot be resolved. Without a tier any domain will do; tier 0 is a single node."""
    if spec.highest_tier_name:
        return _by_tier_name(world, tree, spec)
    if spec.highest_tier is None:
        return TierConstraint(tree, tree.top_tier - 1, spec.hard)
    if spec.highest_tier == 0 and tree.lowest != 0:
        return TierConstraint(node_tree(world), 0, spec.hard)
    return TierConstraint(tree, spec.highest_tier, spec.hard)


def _by_tier_name(world: World, tree: DomainTree, spec: TopologyConstraint) -> TierConstraint | Verdict:
    """A tier by its name, or by the label of nodes that makes it."""
    name = spec.highest_tier_name
    if name in tree.tier_numbers:
        return TierConstraint(tree, tree.tier_numbers[name], spec.hard)
    if name in _NODE_TIER_NAMES:
        return TierConstraint(node_tree(world), 0, spec.hard)
    by_label = label_tree(world, name)
    if by_label is not None:
        return TierConstraint(by_label, 1, spec.hard)
    if name in _CLUSTER_TIER_NAMES or not spec.hard:
        return TierConstraint(tree, tree.top_tier, spec.hard)
    known = [*tree.tier_numbers, NODE_TIER]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    why = f"no tier and no node label is called {name!r}; {hint}"
    return Verdict(ok=False, why=why, code=UNKNOWN_TIER, topics=(Topic.FREE_CAPACITY.any,))
