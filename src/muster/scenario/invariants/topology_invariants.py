"""The invariant of topology domains: a gang with a hard constraint is in one domain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from muster.model.pod import Phase, Pod
from muster.model.topology_spec import DomainMember, TopologyConstraint
from muster.plugins.topology import Topology
from muster.scenario.invariants.checked_cycle import PLACED, CheckedCycle
from muster.state.gangs.subgroups import all_subgroups
from muster.state.world import World


def hard_topology_holds(case: CheckedCycle) -> Iterator[str]:
    """A gang with a hard constraint and a pod placed in this cycle is in one domain at or below its highest tier."""
    for key in {case.gang_key(effect.uid): None for effect in case.placed()}:
        gang = case.world.facts.gangs.get(key)
        if gang is None:
            continue
        yield from _outside_one_domain(case, gang.full_name, gang.topology, gang.pods())
        for subgroup in all_subgroups(gang):
            members = tuple(pod for pod in gang.pods() if pod.uid in subgroup.members)
            yield from _outside_one_domain(case, f"subgroup {subgroup.title} of {gang.full_name}", subgroup.topology, members)


def _outside_one_domain(case: CheckedCycle, title: str, ask: TopologyConstraint | None, pods: tuple[Pod, ...]) -> Iterator[str]:
    nodes_used = {
        case.world.placements.by_uid[pod.uid].node or "" for pod in pods if case.phase(pod.uid) in PLACED | {Phase.NOMINATED}
    }
    # Members on a node that was deleted are lost. A node is a domain below all others.
    nodes_used &= set(case.world.facts.nodes)
    if ask is None or not ask.hard or len(nodes_used) < 2:
        return
    domains = list(_domains(case))
    highest = _highest_tier(ask, domains)
    if highest is None or highest > max((tier for tier, _, _ in domains), default=1):
        return
    if not any(tier <= highest and nodes_used <= nodes for tier, _, nodes in domains):
        yield f"{title} must be in one domain of tier {highest} or below, and is on {', '.join(sorted(nodes_used))}"


def _highest_tier(ask: TopologyConstraint, domains: list[tuple[int, str, set[str]]]) -> int | None:
    if ask.highest_tier_name:
        return next((tier for tier, name, _ in domains if name == ask.highest_tier_name), None)
    return ask.highest_tier


def _domains(case: CheckedCycle) -> Iterator[tuple[int, str, set[str]]]:
    """Tier, tier name and nodes of every domain: HyperNodes, and the policy's label tiers for all other nodes."""
    world = case.world
    unassigned = set(world.facts.nodes)
    for domain in world.facts.domains.values():
        nodes = _nodes_in(world, domain.name)
        unassigned -= nodes
        yield domain.tier, domain.tier_name, nodes
    tiers = next((plugin.tiers for plugin in case.policy.plugins if isinstance(plugin, Topology)), {})
    labels = list(tiers.values())
    for tier, name in enumerate(tiers, start=1):
        by_values: dict[tuple[str | None, ...], set[str]] = {}
        for node in sorted(unassigned):
            values = tuple(world.facts.nodes[node].labels.get(label) for label in labels[tier - 1 :])
            if values[0] is not None:
                by_values.setdefault(values, set()).add(node)
        for nodes in by_values.values():
            yield tier, name, nodes


def _nodes_in(world: World, domain: str, seen: frozenset[str] = frozenset()) -> set[str]:
    if domain not in world.facts.domains or domain in seen:
        return set()
    nodes: set[str] = set()
    for member in world.facts.domains[domain].members:
        if member.is_node:
            nodes.update(name for name, node in world.facts.nodes.items() if _selects(member, name, node.labels))
        else:
            for name in world.facts.domains:
                if _selects(member, name, {}):
                    nodes |= _nodes_in(world, name, seen | {domain})
    return nodes


def _selects(member: DomainMember, name: str, labels: Mapping[str, str]) -> bool:
    if member.exact:
        return member.exact == name
    if member.regex:
        return re.search(member.regex, name) is not None
    return member.labels is not None and member.labels.selects(labels)
