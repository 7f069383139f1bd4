"""Decodes selectors, affinities, tolerations and spread constraints.

Where part of a constraint is invalid, the constraint matches nothing: a pod that is pending with a reason is better than one on a
wrong node.
"""

from __future__ import annotations

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.model.pod_constraints import (
    NO_NODE_AFFINITY,
    NO_POD_AFFINITY,
    LabelSelector,
    NodeAffinity,
    NodeTerm,
    Operator,
    PodAffinity,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    WeightedNodeTerm,
    WeightedPodTerm,
    whole_number,
)

MAX_POD_TERMS = 32
MAX_NODE_TERMS = 64
MAX_REQUIREMENTS = 64
MAX_VALUES = 1024
"""Entries of one list. Beyond that the pod gets no node."""

_SET_OPERATORS = (Operator.IN, Operator.NOT_IN)
_PRESENCE_OPERATORS = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_LABEL_OPERATORS = (*_SET_OPERATORS, *_PRESENCE_OPERATORS)
_NODE_OPERATORS = (*_LABEL_OPERATORS, Operator.GT, Operator.LT)
_OPERATOR = {operator.value: operator for operator in Operator}
_EFFECT = {effect.value: effect for effect in TaintEffect}
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")


def label_selector(written: wire.WireLabelSelector | None, *, problems: Problems, field: str) -> LabelSelector | None:
    """None selects nothing: where the selector is absent or invalid."""
    if written is None:
        return None
    field = f"{field}.matchExpressions"
    expressions = _requirements(written.match_expressions, operators=_LABEL_OPERATORS, problems=problems, field=field)
    if expressions is None:
        return None
    equal = (Requirement(key, Operator.IN, (value,)) for key, value in sorted(written.match_labels.items()))
    return LabelSelector((*equal, *expressions))


def node_affinity(written: wire.WireNodeAffinity, *, problems: Problems) -> NodeAffinity:
    required = written.required
    if required is None and not written.preferred:
        return NO_NODE_AFFINITY
    preferred = problems.at(wire.PREFERRED).at_most(MAX_NODE_TERMS, written.preferred)
    return NodeAffinity(
        required=None if required is None else node_terms(required, problems=problems.at(wire.REQUIRED)),
        preferred=tuple(
            WeightedNodeTerm(term.weight, _node_term(term.preference, problems=place))
            for term, place in problems.each(wire.PREFERRED, preferred)
            if _is_valid_weight(term.weight, problems=place)
        ),
    )


def node_terms(written: wire.NodeSelector, *, problems: Problems) -> tuple[NodeTerm, ...]:
    bounded = problems.at("nodeSelectorTerms").at_most(MAX_NODE_TERMS, written.node_selector_terms)
    terms = problems.each("nodeSelectorTerms", bounded)
    return tuple(_node_term(term, problems=place) for term, place in terms)


def pod_affinity(written: wire.WirePodAffinity, *, problems: Problems) -> PodAffinity:
    if not written.required and not written.preferred:
        return NO_POD_AFFINITY
    required = problems.at(wire.REQUIRED).at_most(MAX_POD_TERMS, written.required)
    preferred = problems.at(wire.PREFERRED).at_most(MAX_POD_TERMS, written.preferred)
    return PodAffinity(
        required=tuple(_pod_term(term, problems=place) for term, place in problems.each(wire.REQUIRED, required)),
        preferred=tuple(
            WeightedPodTerm(term.weight, _pod_term(term.pod_affinity_term, problems=place))
            for term, place in problems.each(wire.PREFERRED, preferred)
            if _is_valid_weight(term.weight, problems=place)
        ),
    )


def spread_constraint(written: wire.WireSpreadConstraint, *, problems: Problems) -> SpreadConstraint:
    if written.max_skew < 1:
        problems.at("maxSkew").add(written.max_skew, advice="is below 1; 1 is used")
    if written.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        advice = "is unknown; write DoNotSchedule, which is used, or ScheduleAnyway"
        problems.at("whenUnsatisfiable").add(written.when_unsatisfiable, advice=advice)
    return SpreadConstraint(
        max_skew=max(1, written.max_skew),
        topology_key=written.topology_key,
        hard=written.when_unsatisfiable != "ScheduleAnyway",
        selector=label_selector(written.label_selector, problems=problems, field="labelSelector"),
        min_domains=written.min_domains if written.min_domains is None or written.min_domains > 0 else None,
        honor_affinity=written.node_affinity_policy != "Ignore",
        honor_taints=written.node_taints_policy == "Honor",
        match_label_keys=written.match_label_keys,
    )


def tolerations(written: tuple[wire.WireToleration, ...], *, problems: Problems) -> tuple[Toleration, ...]:
    """An invalid one tolerates nothing and is left out."""
    found = (_toleration(one, problems=place) for one, place in problems.each("spec.tolerations", written))
    return tuple(one for one in found if one is not None)


def taints(written: tuple[wire.WireTaint, ...], *, problems: Problems) -> tuple[Taint, ...]:
    kept: list[Taint] = []
    for taint, place in problems.each("spec.taints", written):
        effect = _effect(taint.effect, problems=place)
        if effect is not None:
            kept.append(Taint(taint.key, effect, taint.value))
    return tuple(kept)


def _node_term(written: wire.NodeSelectorTerm, *, problems: Problems) -> NodeTerm:
    """An empty term matches no node, and so does an invalid one."""
    expressions = _requirements(written.match_expressions, operators=_NODE_OPERATORS, problems=problems, field="matchExpressions")
    fields = _requirements(written.match_fields, operators=_SET_OPERATORS, problems=problems, field="matchFields")
    for one in fields or ():
        if one.key != "metadata.name":
            problems.at("matchFields").add(one.key, advice="is no field of a node; write metadata.name")
            fields = None
    return NodeTerm() if expressions is None or fields is None else NodeTerm(expressions, fields)


def _pod_term(written: wire.PodAffinityTerm, *, problems: Problems) -> PodTerm:
    return PodTerm(
        topology_key=written.topology_key,
        selector=label_selector(written.label_selector, problems=problems, field="labelSelector"),
        namespaces=written.namespaces,
        namespace_selector=label_selector(written.namespace_selector, problems=problems, field="namespaceSelector"),
        match_label_keys=written.match_label_keys,
        mismatch_label_keys=written.mismatch_label_keys,
    )


def _requirements(
    written: tuple[wire.SelectorRequirement, ...], *, operators: tuple[Operator, ...], problems: Problems, field: str
) -> tuple[Requirement, ...] | None:
    """All of them, or None if one is invalid."""
    written = problems.at(field).at_most(MAX_REQUIREMENTS, written)
    found = (_requirement(one, operators=operators, problems=place) for one, place in problems.each(field, written))
    valid = tuple(one for one in found if one is not None)
    return valid if len(valid) == len(written) else None


def _requirement(written: wire.SelectorRequirement, *, operators: tuple[Operator, ...], problems: Problems) -> Requirement | None:
    operator = _OPERATOR.get(written.operator)
    if operator not in operators or operator is None:
        known = ", ".join(one.value for one in operators)
        problems.at("operator").add(written.operator, advice=f"is unknown here; write one of {known}")
        return None
    fault = _why_invalid(operator, written)
    if fault:
        problems.at("values").add(list(written.values), advice=fault)
        return None
    return Requirement(written.key, operator, problems.at("values").at_most(MAX_VALUES, written.values))


def _why_invalid(operator: Operator, written: wire.SelectorRequirement) -> str:
    if not written.key:
        return "belong to no key; write for example key: zone"
    if operator in _SET_OPERATORS:
        return "" if written.values else f"are empty; {operator.value} needs at least one"
    if operator in _PRESENCE_OPERATORS:
        return f"are too many; {operator.value} takes none" if written.values else ""
    fits = len(written.values) == 1 and whole_number(written.values[0]) is not None
    return "" if fits else f'do not fit; {operator.value} takes one whole number such as ["8"]'


def _is_valid_weight(weight: int, *, problems: Problems) -> bool:
    if not 1 <= weight <= 100:
        problems.at("weight").add(weight, advice="is not from 1 to 100; the preference was ignored")
    return 1 <= weight <= 100


def _toleration(written: wire.WireToleration, *, problems: Problems) -> Toleration | None:
    if written.operator not in _TOLERATION_OPERATORS:
        problems.at("operator").add(written.operator, advice="is unknown; write Equal, Exists, Gt or Lt")
        return None
    if not written.effect:
        return Toleration(written.key, written.operator or "Equal", written.value)
    effect = _effect(written.effect, problems=problems)
    return None if effect is None else Toleration(written.key, written.operator or "Equal", written.value, effect)


def _effect(written: str, *, problems: Problems) -> TaintEffect | None:
    effect = _EFFECT.get(written)
    if effect is None:
        problems.at("effect").add(written, advice=f"was ignored; write one of {', '.join(_EFFECT)}")
    return effect
