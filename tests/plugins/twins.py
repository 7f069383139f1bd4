"""Slow twins: what the documentation says, node by node and pod by pod, in plain Python.

They share no code with Muster: they read the fields of pods and nodes and nothing else, and where Kubernetes defines a rule they
follow its documentation to the letter. They are here to be compared with, so they are obvious before they are anything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.model.node import Node
from muster.model.pod import Phase, Pod, PodSignature
from muster.model.pod_constraints import NodeTerm, Requirement, Taint, Toleration
from muster.state.world import World

# -- labels ------------------------------------------------------------------------------------------------------------------------


def label_matches(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """One expression of a node selector term. `value` None: the node does not have the label."""
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    # Gt and Lt: exactly one value, and both sides must be integers.
    if value is None or len(values) != 1 or not is_integer(value) or not is_integer(values[0]):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def is_integer(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None and -(2**63) <= int(text) <= 2**63 - 1


def term_matches(node: Node, term: NodeTerm) -> bool:
    """An empty term matches nothing; otherwise all expressions and all fields must hold."""
    if len(term.expressions) == 0 and len(term.fields) == 0:
        return False
    for expression in term.expressions:
        if not label_matches(node.labels.get(expression.key), expression.operator.value, expression.values):
            return False
    return all(field_matches(node, wanted) for wanted in term.fields)


def field_matches(node: Node, wanted: Requirement) -> bool:
    return label_matches(node.name if wanted.key == "metadata.name" else None, wanted.operator.value, wanted.values)


def selectors_match(kind: PodSignature, node: Node) -> bool:
    for key, value in kind.node_selector:
        if key not in node.labels or node.labels[key] != value:
            return False
    required = kind.node_affinity.required
    if required is None:
        return True
    return any(term_matches(node, term) for term in required)


def affinity_preference(kind: PodSignature, node: Node) -> float:
    """An empty preferred term matches all objects with implicit weight 0: it is a no-op."""
    matched, every = 0, 0
    for preferred in kind.node_affinity.preferred:
        if len(preferred.term.expressions) + len(preferred.term.fields) == 0:
            continue
        every += preferred.weight
        if term_matches(node, preferred.term):
            matched += preferred.weight
    return matched / every if every > 0 else 0.0


# -- taints ------------------------------------------------------------------------------------------------------------------------


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """The keys are the same and the effects are the same, and the operator agrees. An empty key with Exists tolerates everything;
    an empty effect means every effect."""
    for toleration in tolerations:
        same_effect = toleration.effect is None or toleration.effect == taint.effect
        same_key = toleration.key == taint.key
        if toleration.operator == "Exists":
            accepts = same_key or toleration.key == ""
        elif toleration.operator in ("Gt", "Lt"):
            both = is_integer(taint.value) and is_integer(toleration.value)
            larger = both and int(taint.value) > int(toleration.value)
            smaller = both and int(taint.value) < int(toleration.value)
            accepts = (same_key or toleration.key == "") and (larger if toleration.operator == "Gt" else smaller)
        else:
            accepts = same_key and toleration.value == taint.value
        if same_effect and accepts:
            return True
    return False


def taints_match(kind: PodSignature, node: Node) -> bool:
    for taint in node.taints:
        if taint.effect.value in ("NoSchedule", "NoExecute") and not tolerated(taint, kind.tolerations):
            return False
    return True


def taint_preference(kind: PodSignature, node: Node) -> float:
    count = 0
    for taint in node.taints:
        if taint.effect.value == "PreferNoSchedule" and not tolerated(taint, kind.tolerations):
            count += 1
    return 1.0 / (1 + count)


def is_schedulable(kind: PodSignature, node: Node) -> bool:
    if not node.unschedulable:
        return True
    for toleration in kind.tolerations:
        any_effect = toleration.effect is None or toleration.effect.value == "NoSchedule"
        if toleration.operator == "Exists" and toleration.key in ("", "node.kubernetes.io/unschedulable") and any_effect:
            return True
        if toleration.operator == "Equal" and toleration.key == "node.kubernetes.io/unschedulable" and any_effect:
            if toleration.value == "":
                return True
    return False


# -- capacity ----------------------------------------------------------------------------------------------------------------------

USED_PHASES = (Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING, Phase.OVERDUE)
PLANNED_PHASES = (Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.OVERDUE)


@dataclass
class PlacedRequests:
    """Who stands on each node, in which phase: requests and nothing more."""

    pods: dict[str, list[tuple[Mapping[str, int], Phase]]] = field(default_factory=dict)

    def put(self, kind: PodSignature, node: str, phase: Phase) -> None:
        self.pods.setdefault(node, []).append((dict(kind.request.items), phase))

    def amount(self, node: str, resource: str, phases: Sequence[Phase]) -> int:
        return sum(request.get(resource, 0) for request, phase in self.pods.get(node, []) if phase in phases)


def placed_requests(world: World) -> PlacedRequests:
    found = PlacedRequests()
    for uid, placement in world.placements.by_uid.items():
        if placement.node is not None:
            found.put(world.facts.pods[uid].signature, placement.node, placement.phase)
    return found


def fits_resources(kind: PodSignature, node: Node, there: PlacedRequests, *, after_releases: bool) -> bool:
    """A bind needs capacity beside all who stand there now and beside all who will; a nomination only beside those who will."""
    allocatable = dict(node.allocatable.items)
    for resource, asked in kind.request.items:
        if asked == 0:
            continue
        later = there.amount(node.name, resource, PLANNED_PHASES)
        now = there.amount(node.name, resource, USED_PHASES)
        if later + asked > allocatable.get(resource, 0):
            return False
        if not after_releases and now + asked > allocatable.get(resource, 0):
            return False
    return True


def fullness(kind: PodSignature, node: Node, there: PlacedRequests, weights: Mapping[str, float]) -> float | None:
    """The weighted mean of (taken + asked) / allocatable, each at most 1, over the resources that the pod asks for."""
    request, allocatable = dict(kind.request.items), dict(node.allocatable.items)
    total, weight_of_all = 0.0, 0.0
    for resource, weight in weights.items():
        asked = request.get(resource, 0)
        if weight == 0 or asked == 0:
            continue
        share = (there.amount(node.name, resource, PLANNED_PHASES) + asked) / max(1, allocatable.get(resource, 0))
        total += min(share, 1.0) * weight
        weight_of_all += weight
    return total / weight_of_all if weight_of_all > 0 else None


# -- placement ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """The numbers of a policy. `packing` is a list of (binpack or spread, weight, weight by resource)."""

    packing: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...] = ()
    affinity: float = 1.0
    taint: float = 1.0
    nominated: float = 100.0


def fits(pod: Pod, node: Node, there: PlacedRequests, *, after_releases: bool) -> bool:
    return matches(pod.signature, node) and fits_resources(pod.signature, node, there, after_releases=after_releases)


def matches(kind: PodSignature, node: Node) -> bool:
    return selectors_match(kind, node) and taints_match(kind, node) and is_schedulable(kind, node)


def most_constrained_first(pods: Sequence[Pod], nodes: Sequence[Node], everywhere: Sequence[Node]) -> list[int]:
    """Positions of the pods: fewest nodes match, then the largest part of the cluster, then the first of its kind."""
    total: dict[str, int] = {}
    for node in everywhere:
        for resource, amount in node.allocatable.items:
            total[resource] = total.get(resource, 0) + amount
    kinds = list(dict.fromkeys(pod.signature for pod in pods))

    def key(at: int) -> tuple[int, float, int]:
        kind = pods[at].signature
        share = max((asked / max(1, total.get(resource, 0)) for resource, asked in kind.request.items), default=0.0)
        return sum(matches(kind, node) for node in nodes), -share, kinds.index(kind)

    return sorted(range(len(pods)), key=key)


def score(pod: Pod, node: Node, there: PlacedRequests, weights: Weights) -> float:
    """Preferences, then the other scores in the policy's order, each times its weight; the nominated node last."""
    total = 0.0
    total += weights.affinity * affinity_preference(pod.signature, node)
    total += weights.taint * taint_preference(pod.signature, node)
    for strategy, weight, resources in weights.packing:
        full = fullness(pod.signature, node, there, dict(resources))
        if full is not None:
            total += weight * (full if strategy == "binpack" else 1.0 - full)
    if pod.nominated_node == node.name:
        total += weights.nominated
    return total


def place_one_by_one(
    world: World, pods: Sequence[Pod], weights: Weights, *, phase: Phase, within: Sequence[str] | None = None
) -> list[str | None]:
    """Each pod in turn goes to the node with the highest score among those that take it; of equals, to the first by name. The most
    constrained pod comes first."""
    there = placed_requests(world)
    chosen: dict[int, str | None] = {}
    inside = [world.facts.nodes[name] for name in sorted(world.facts.nodes if within is None else within)]
    for at in most_constrained_first(pods, inside, list(world.facts.nodes.values())):
        pod = pods[at]
        best: str | None = None
        best_score = 0.0
        for node in inside:
            if not fits(pod, node, there, after_releases=phase is Phase.NOMINATED):
                continue
            points = score(pod, node, there, weights)
            if best is None or points > best_score:
                best, best_score = node.name, points
        if best is not None:
            there.put(pod.signature, best, phase)
        chosen[at] = best
    return [chosen[at] for at in range(len(pods))]
