"""The placement checks as Kubernetes documents them, in plain loops over pods and nodes.

Slow and obvious, and sharing nothing with the code under test: values of the model are read, none of their methods is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.placement.placement_worlds import Case

from muster.model.node import Node
from muster.model.pod import Phase, Pod
from muster.model.pod_constraints import (
    LabelSelector,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
)

Labels = Mapping[str, str]

PLACED_OR_RESERVED = (Phase.RESERVED, Phase.BINDING, Phase.BOUND)
MATCHES_NOW = PLACED_OR_RESERVED
MATCHES_LATER = (*PLACED_OR_RESERVED, Phase.NOMINATED)
BLOCKS_NOW = (*PLACED_OR_RESERVED, Phase.TERMINATING, Phase.OVERDUE)
BLOCKS_LATER = (*PLACED_OR_RESERVED, Phase.NOMINATED, Phase.OVERDUE)


@dataclass
class TwinWorld:
    nodes: dict[str, Node]
    namespaces: dict[str, Labels]
    placed: list[tuple[Pod, str, Phase]] = field(default_factory=list)

    def on_known_nodes(self, phases: Sequence[Phase]) -> list[tuple[Pod, Node]]:
        return [(pod, self.nodes[node]) for pod, node, phase in self.placed if phase in phases and node in self.nodes]


def twin_of(case: Case) -> TwinWorld:
    return TwinWorld(
        nodes={node.name: node for node in case.nodes},
        namespaces={space.name: space.labels for space in case.namespaces},
        placed=list(case.placed),
    )


def place(case: Case) -> dict[str, str]:
    """Each pod in turn on the best node that every check allows, ties by name; those who find none are left out."""
    world, found = twin_of(case), {}
    for pod in sorted(case.pending_pods, key=lambda each: (needs_others(world, each), *flexibility(case, each))):
        allowed = [
            name for name in sorted(world.nodes) if (case.only is None or name in case.only) and fits(world, pod, name, case.phase)
        ]
        if not allowed:
            continue
        best = max(allowed, key=lambda name: (score(world, pod, allowed)[name], _reversed(name)))
        world.placed.append((pod, best, case.phase))
        found[pod.uid] = best
    return found


def needs_others(world: TwinWorld, pod: Pod) -> bool:
    """Those who need company that they are not themselves come last."""
    return not all(term_selects(world, term, pod, pod) for term in pod.signature.affinity.required)


def flexibility(case: Case, pod: Pod) -> tuple[int, float, int]:
    """The most constrained come first: fewest nodes match, then the largest request; pods of one signature together."""
    matching = [node for node in case.nodes if (case.only is None or node.name in case.only) and matches(pod, node)]
    shares = [
        amount / max(sum(cpu_of(node.allocatable.items, resource) for node in case.nodes), 1)
        for resource, amount in pod.signature.request.items
    ]
    first = next(at for at, other in enumerate(case.pending_pods) if other.signature == pod.signature)
    return len(matching), -max(shares, default=0.0), first


def _reversed(name: str) -> tuple[int, ...]:
    """Orders names backwards, so that the first name wins among equals."""
    return tuple(-ord(letter) for letter in name)


def fits(world: TwinWorld, pod: Pod, name: str, phase: Phase) -> bool:
    node = world.nodes[name]
    if not matches(pod, node):
        return False
    if not fits_resources(world, pod, node, phase) or not ports(world, pod, node, phase):
        return False
    return pod_affinity(world, pod, node, phase) and spread(world, pod, node, phase)


def matches(pod: Pod, node: Node) -> bool:
    """What no eviction changes: labels and taints."""
    if node.unschedulable and not tolerated(Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE), pod):
        return False
    if any(taint.effect.value != "PreferNoSchedule" and not tolerated(taint, pod) for taint in node.taints):
        return False
    return node_affinity(pod, node)


def score(world: TwinWorld, pod: Pod, allowed: Sequence[str]) -> dict[str, float]:
    soft, preferred = soft_spread(world, pod, allowed), preference(world, pod, allowed)
    return {name: fullness(world, pod, world.nodes[name]) + 2.0 * soft[name] + 3.0 * preferred[name] for name in allowed}


# -- capacity and labels of nodes --------------------------------------------------------------------------------------------------


def cpu_of(amounts: tuple[tuple[str, int], ...], name: str = "cpu") -> int:
    return sum(amount for resource, amount in amounts if resource == name)


def fits_resources(world: TwinWorld, pod: Pod, node: Node, phase: Phase) -> bool:
    need, have = cpu_of(pod.signature.request.items), cpu_of(node.allocatable.items)
    views = [BLOCKS_LATER] if phase is Phase.NOMINATED else [BLOCKS_NOW, BLOCKS_LATER]
    return all(used(world, node, view) + need <= have for view in views)


def used(world: TwinWorld, node: Node, phases: Sequence[Phase]) -> int:
    return sum(cpu_of(pod.signature.request.items) for pod, there, phase in world.placed if there == node.name and phase in phases)


def fullness(world: TwinWorld, pod: Pod, node: Node) -> float:
    need, have = cpu_of(pod.signature.request.items), cpu_of(node.allocatable.items)
    return min((used(world, node, BLOCKS_LATER) + need) / max(have, 1), 1.0)


def node_affinity(pod: Pod, node: Node) -> bool:
    if any(node.labels.get(key) != value for key, value in pod.signature.node_selector):
        return False
    required = pod.signature.node_affinity.required
    return required is None or any(node_term(term, node) for term in required)


def node_term(term: NodeTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(requirement_holds(one, node.labels) for one in term.expressions) and all(
        requirement_holds(one, {"metadata.name": node.name}) for one in term.fields
    )


def tolerated(taint: Taint, pod: Pod) -> bool:
    return any(tolerates(one, taint) for one in pod.signature.tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and toleration.effect.value != taint.effect.value:
        return False
    if toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


# -- labels of pods ------------------------------------------------------------------------------------------------------------


def requirement_holds(one: Requirement, labels: Labels) -> bool:
    operator = one.operator.value
    if operator == "In":
        return one.key in labels and labels[one.key] in one.values
    if operator == "NotIn":
        return one.key not in labels or labels[one.key] not in one.values
    if operator == "Exists":
        return one.key in labels
    if operator == "DoesNotExist":
        return one.key not in labels
    raise AssertionError(f"labels know no {operator}")


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    return selector is not None and all(requirement_holds(one, labels) for one in selector.requirements)


def term_selects(world: TwinWorld, term: PodTerm, owner: Pod, other: Pod) -> bool:
    """Does this term of the owner mean the other pod, wherever it is?"""
    if not selects(term.selector, other.labels):
        return False
    for key in term.match_label_keys:
        if key in owner.labels and other.labels.get(key) != owner.labels[key]:
            return False
    for key in term.mismatch_label_keys:
        if key in owner.labels and other.labels.get(key) == owner.labels[key]:
            return False
    if not term.namespaces and term.namespace_selector is None:
        return other.namespace == owner.namespace
    of_space = {**world.namespaces.get(other.namespace, {}), "kubernetes.io/metadata.name": other.namespace}
    return other.namespace in term.namespaces or selects(term.namespace_selector, of_space)


def same_domain(key: str, one: Node, other: Node) -> bool:
    return key in one.labels and key in other.labels and one.labels[key] == other.labels[key]


# -- the checks ----------------------------------------------------------------------------------------------------------------


def ports(world: TwinWorld, pod: Pod, node: Node, phase: Phase) -> bool:
    in_the_way = set(BLOCKS_LATER) if phase is Phase.NOMINATED else {*BLOCKS_NOW, *BLOCKS_LATER}
    everywhere = ("0.0.0.0", "::")
    for other, there, placed in world.placed:
        if there != node.name or placed not in in_the_way:
            continue
        for a in pod.signature.ports:
            for b in other.signature.ports:
                same = a.ip == b.ip or a.ip in everywhere or b.ip in everywhere
                if (a.port, a.protocol) == (b.port, b.protocol) and same:
                    return False
    return True


def pod_affinity(world: TwinWorld, pod: Pod, node: Node, phase: Phase) -> bool:
    if phase is Phase.NOMINATED:
        return _affinity(world, pod, node, company=MATCHES_LATER, in_the_way=BLOCKS_LATER)
    return _affinity(world, pod, node, company=MATCHES_NOW, in_the_way=BLOCKS_NOW) and _affinity(
        world, pod, node, company=MATCHES_LATER, in_the_way=BLOCKS_LATER
    )


def _affinity(world: TwinWorld, pod: Pod, node: Node, *, company: Sequence[Phase], in_the_way: Sequence[Phase]) -> bool:
    for other, there in world.on_known_nodes(in_the_way):
        for term in pod.signature.anti_affinity.required:
            if term_selects(world, term, pod, other) and same_domain(term.topology_key, node, there):
                return False
        for term in other.signature.anti_affinity.required:
            if term_selects(world, term, other, pod) and same_domain(term.topology_key, node, there):
                return False
    terms = pod.signature.affinity.required
    if not terms:
        return True
    if any(term.topology_key not in node.labels for term in terms):
        return False
    mates = [
        there for other, there in world.on_known_nodes(company) if all(term_selects(world, term, pod, other) for term in terms)
    ]
    if all(any(same_domain(term.topology_key, node, there) for there in mates) for term in terms):
        return True
    nobody = not any(term.topology_key in there.labels for term in terms for there in mates)
    return nobody and all(term_selects(world, term, pod, pod) for term in terms)


def spread(world: TwinWorld, pod: Pod, node: Node, phase: Phase) -> bool:
    views = [MATCHES_LATER] if phase is Phase.NOMINATED else [MATCHES_NOW, MATCHES_LATER]
    hard = [constraint for constraint in pod.signature.spread if constraint.hard]
    return all(_skew_is_small(world, pod, node, constraint, hard, view) for constraint in hard for view in views)


def _skew_is_small(
    world: TwinWorld,
    pod: Pod,
    node: Node,
    constraint: SpreadConstraint,
    all_hard: Sequence[SpreadConstraint],
    view: Sequence[Phase],
) -> bool:
    if constraint.topology_key not in node.labels:
        return False
    counts = domain_counts(world, pod, constraint, all_hard, view)
    fewest = min(counts.values()) if counts and len(counts) >= (constraint.min_domains or 1) else 0
    itself = 1 if constraint_selects(constraint, pod, pod) else 0
    return counts.get(node.labels[constraint.topology_key], 0) + itself - fewest <= constraint.max_skew


def domain_counts(
    world: TwinWorld, pod: Pod, constraint: SpreadConstraint, siblings: Sequence[SpreadConstraint], view: Sequence[Phase]
) -> dict[str, int]:
    """How many pods that the constraint counts are in each domain that has an eligible node."""
    counts: dict[str, int] = {}
    for node in world.nodes.values():
        if is_eligible(pod, node, constraint, siblings):
            there = [other for other, at in world.on_known_nodes(view) if at.name == node.name]
            value = node.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + sum(constraint_selects(constraint, pod, other) for other in there)
    return counts


def is_eligible(pod: Pod, node: Node, constraint: SpreadConstraint, siblings: Sequence[SpreadConstraint]) -> bool:
    if any(sibling.topology_key not in node.labels for sibling in siblings):
        return False
    if constraint.honor_affinity and not node_affinity(pod, node):
        return False
    if constraint.honor_taints:
        taints = list(node.taints)
        if node.unschedulable:
            taints.append(Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE))
        return all(taint.effect.value == "PreferNoSchedule" or tolerated(taint, pod) for taint in taints)
    return True


def constraint_selects(constraint: SpreadConstraint, owner: Pod, other: Pod) -> bool:
    if owner.namespace != other.namespace or not selects(constraint.selector, other.labels):
        return False
    return all(key not in owner.labels or other.labels.get(key) == owner.labels[key] for key in constraint.match_label_keys)


def soft_spread(world: TwinWorld, pod: Pod, allowed: Sequence[str]) -> dict[str, float]:
    soft = [constraint for constraint in pod.signature.spread if not constraint.hard]
    if not soft:
        return dict.fromkeys(allowed, 0.0)
    labelled = [name for name in allowed if all(one.topology_key in world.nodes[name].labels for one in soft)]
    crowd = dict.fromkeys(labelled, 0.0)
    for constraint in soft:
        values = {world.nodes[name].labels[constraint.topology_key] for name in labelled}
        counts = domain_counts(world, pod, constraint, soft, MATCHES_LATER)
        for name in labelled:
            here = counts.get(world.nodes[name].labels[constraint.topology_key], 0)
            crowd[name] += here * math.log(len(values) + 2) + (constraint.max_skew - 1)
    if not crowd:
        return dict.fromkeys(allowed, 0.0)
    most, least = max(crowd.values()), min(crowd.values())
    normal = {name: (most + least - each) / most if most > 0 else 1.0 for name, each in crowd.items()}
    return {name: normal.get(name, 0.0) for name in allowed}


def preference(world: TwinWorld, pod: Pod, allowed: Sequence[str]) -> dict[str, float]:
    total = dict.fromkeys(allowed, 0)
    for other, there in world.on_known_nodes(MATCHES_LATER):
        for name in allowed:
            node = world.nodes[name]
            total[name] += _attraction(world, pod, other, node, there) + _attraction_of_the_other(world, pod, other, node, there)
    most, least = max(total.values()), min(total.values())
    return {name: (each - least) / (most - least) if most > least else 0.0 for name, each in total.items()}


def _attraction(world: TwinWorld, pod: Pod, other: Pod, node: Node, there: Node) -> int:
    found = 0
    for sign, terms in ((1, pod.signature.affinity.preferred), (-1, pod.signature.anti_affinity.preferred)):
        for weighted in terms:
            if term_selects(world, weighted.term, pod, other) and same_domain(weighted.term.topology_key, node, there):
                found += sign * weighted.weight
    return found


def _attraction_of_the_other(world: TwinWorld, pod: Pod, other: Pod, node: Node, there: Node) -> int:
    found = _attraction(world, other, pod, there, node)
    for term in other.signature.affinity.required:
        if term_selects(world, term, other, pod) and same_domain(term.topology_key, node, there):
            found += 1
    return found
