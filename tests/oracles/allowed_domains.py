"""The sets of nodes that a gang may use: all of them, or under a hard topology constraint one domain at or below a tier."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.oracles.snapshot import SEATED_OR_NOMINATED, Snapshot

from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.topology_spec import DomainMember, DomainSpec, TopologyConstraint

NodeSet = frozenset[str]
_NODE_TIERS = ("node", "NodeTopologyLayer")


def allowed_domains(s: Snapshot, gang: Gang, missing: Sequence[Pod]) -> list[NodeSet]:
    """The largest domains that the missing members may use; smaller ones lie in these. One pod alone: each node."""
    everything = frozenset(s.nodes)
    if "topology" not in s.rules.plugins or gang.topology is None or not gang.topology.hard:
        found = [everything]
    else:
        found = _under_constraint(s, gang.topology)
        here = {s.node_of(pod.uid) for pod in gang.pods() if s.phase(pod.uid) in SEATED_OR_NOMINATED and pod not in missing}
        found = [domain for domain in found if here <= domain]
    if len(missing) == 1:
        return [frozenset({node}) for node in sorted(frozenset().union(*found))]
    return found


def _under_constraint(s: Snapshot, constraint: TopologyConstraint) -> list[NodeSet]:
    if constraint.highest_tier == 0 or constraint.highest_tier_name in _NODE_TIERS:
        return [frozenset({name}) for name in sorted(s.nodes)]
    in_hypernodes: set[str] = set()
    found: list[NodeSet] = []
    for spec in s.domains.values():
        nodes = _hypernode(s, spec, ())
        in_hypernodes |= nodes
        if _is_allowed(s, constraint, spec.tier, spec.tier_name):
            found.append(nodes)
    by_label = [name for number, (name, _) in enumerate(s.rules.tiers, start=1) if _is_allowed(s, constraint, number, name)]
    others = sorted(set(s.nodes) - in_hypernodes)
    found += _label_domains(s, others, len(by_label)) if by_label else []
    if constraint.highest_tier_name and not found:
        values = sorted({node.labels.get(constraint.highest_tier_name, "") for node in s.nodes.values()} - {""})
        label = constraint.highest_tier_name
        found = [frozenset(n.name for n in s.nodes.values() if n.labels.get(label) == value) for value in values]
    return sorted(set(found), key=lambda domain: (len(domain), sorted(domain)))


def _is_allowed(s: Snapshot, constraint: TopologyConstraint, tier: int, name: str) -> bool:
    highest = constraint.highest_tier
    if constraint.highest_tier_name:
        named = [spec.tier for spec in s.domains.values() if spec.tier_name == constraint.highest_tier_name]
        named += [number for number, (label, _) in enumerate(s.rules.tiers, start=1) if label == constraint.highest_tier_name]
        if not named:
            return name == constraint.highest_tier_name
        highest = max(named)
    return highest is None or tier <= highest


def _label_domains(s: Snapshot, names: Sequence[str], tier: int) -> list[NodeSet]:
    """Nodes with the same values of the label of this tier and of all tiers above; a node without the label is one of its own."""
    labels = [label for _, label in s.rules.tiers[tier - 1 :]]
    found: dict[object, set[str]] = {}
    for name in names:
        values = tuple(s.nodes[name].labels.get(label, "") for label in labels)
        found.setdefault(values if values[0] else name, set()).add(name)
    return [frozenset(nodes) for nodes in found.values()]


def _hypernode(s: Snapshot, spec: DomainSpec, above: tuple[str, ...]) -> NodeSet:
    found: set[str] = set()
    for member in spec.members:
        if member.is_node:
            found |= {name for name, node in s.nodes.items() if _selects(member, name, dict(node.labels))}
        else:
            inner = [other for name, other in s.domains.items() if name not in (*above, spec.name) and _selects(member, name, {})]
            for other in inner:
                found |= _hypernode(s, other, (*above, spec.name))
    return frozenset(found)


def _selects(member: DomainMember, name: str, labels: dict[str, str]) -> bool:
    if member.exact:
        return member.exact == name
    if member.regex:
        return re.search(member.regex, name) is not None
    return member.labels is not None and member.labels.selects(labels)
