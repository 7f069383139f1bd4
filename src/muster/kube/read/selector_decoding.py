"""Decodes selectors, affinities, tolerations and spread constraints.

Where part of a constraint is invalid, the constraint matches nothing: a pod that is pending with a reason is better than one on a
wrong node.
"""

from __future__ import annotations

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.model.pod_constraints import (
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

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_SET_OPERATORS = (Operator.IN, Operator.NOT_IN)
_PRESENCE_OPERATORS = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_LABEL_OPERATORS = (*_SET_OPERATORS, *_PRESENCE_OPERATORS)
_NODE_OPERATORS = (*_LABEL_OPERATORS, Operator.GT, Operator.LT)
_OPERATOR = {operator.value: operator for operator in Operator}
_EFFECT = {effect.value: effect for effect in TaintEffect}
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")


def label_selector(written: wire.WireLabelSelector | None, *, field: str, problems: Problems) -> LabelSelector | None:
    """None selects nothing: where the selector is absent or invalid."""
    if written is None:
        return None
    expressions = _requirements(
        written.match_expressions, field=f"{field}.matchExpressions", operators=_LABEL_OPERATORS, problems=problems
    )
    if expressions is None:
        return None
    equal = (Requirement(key, Operator.IN, (value,)) for key, value in sorted(written.match_labels.items()))
    return LabelSelector((*equal, *expressions))


def node_affinity(written: wire.WireNodeAffinity, *, field: str, problems: Problems) -> NodeAffinity:
    required = written.required_during_scheduling_ignored_during_execution
    return NodeAffinity(
        required=None if required is None else _required_terms(required, field=f"{field}.{REQUIRED}", problems=problems),
        preferred=tuple(
            WeightedNodeTerm(term.weight, _node_term(term.preference, field=place, problems=problems))
            for i, term in enumerate(written.preferred_during_scheduling_ignored_during_execution)
            if _is_valid_weight(term.weight, field=(place := f"{field}.{PREFERRED}[{i}]"), problems=problems)
        ),
    )


def pod_affinity(written: wire.WirePodAffinity, *, field: str, problems: Problems) -> PodAffinity:
    return PodAffinity(
        required=tuple(
            _pod_term(term, field=f"{field}.{REQUIRED}[{i}]", problems=problems)
            for i, term in enumerate(written.required_during_scheduling_ignored_during_execution)
        ),
        preferred=tuple(
            WeightedPodTerm(term.weight, _pod_term(term.pod_affinity_term, field=place, problems=problems))
            for i, term in enumerate(written.preferred_during_scheduling_ignored_during_execution)
            if _is_valid_weight(term.weight, field=(place := f"{field}.{PREFERRED}[{i}]"), problems=problems)
        ),
    )


def spread_constraint(written: wire.WireSpreadConstraint, *, field: str, problems: Problems) -> SpreadConstraint:
    if written.max_skew < 1:
        problems.add(f"{field}.maxSkew", value=written.max_skew, advice="is below 1; 1 is used")
    if written.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        advice = "is unknown; write DoNotSchedule, which is used, or ScheduleAnyway"
        problems.add(f"{field}.whenUnsatisfiable", value=written.when_unsatisfiable, advice=advice)
    return SpreadConstraint(
        max_skew=max(1, written.max_skew),
        topology_key=written.topology_key,
        hard=written.when_unsatisfiable != "ScheduleAnyway",
        selector=label_selector(written.label_selector, field=f"{field}.labelSelector", problems=problems),
        min_domains=written.min_domains if written.min_domains is None or written.min_domains > 0 else None,
        honor_affinity=written.node_affinity_policy != "Ignore",
        honor_taints=written.node_taints_policy == "Honor",
        match_label_keys=written.match_label_keys,
    )


def tolerations(written: tuple[wire.WireToleration, ...], *, problems: Problems) -> tuple[Toleration, ...]:
    """An invalid one tolerates nothing and is left out."""
    found = (_toleration(one, field=f"spec.tolerations[{i}]", problems=problems) for i, one in enumerate(written))
    return tuple(one for one in found if one is not None)


def taints(written: tuple[wire.WireTaint, ...], *, problems: Problems) -> tuple[Taint, ...]:
    kept: list[Taint] = []
    for i, taint in enumerate(written):
        effect = _effect(taint.effect, field=f"spec.taints[{i}].effect", problems=problems)
        if effect is not None:
            kept.append(Taint(taint.key, effect, taint.value))
    return tuple(kept)


def _required_terms(written: wire.NodeSelector, *, field: str, problems: Problems) -> tuple[NodeTerm, ...]:
    return tuple(
        _node_term(term, field=f"{field}.nodeSelectorTerms[{i}]", problems=problems)
        for i, term in enumerate(written.node_selector_terms)
    )


def _node_term(written: wire.NodeSelectorTerm, *, field: str, problems: Problems) -> NodeTerm:
    """An empty term matches no node, and so does an invalid one."""
    expressions = _requirements(
        written.match_expressions, field=f"{field}.matchExpressions", operators=_NODE_OPERATORS, problems=problems
    )
    fields = _requirements(written.match_fields, field=f"{field}.matchFields", operators=_SET_OPERATORS, problems=problems)
    for one in fields or ():
        if one.key != "metadata.name":
            problems.add(f"{field}.matchFields", value=one.key, advice="is no field of a node; write metadata.name")
            fields = None
    return NodeTerm() if expressions is None or fields is None else NodeTerm(expressions, fields)


def _pod_term(written: wire.PodAffinityTerm, *, field: str, problems: Problems) -> PodTerm:
    spaces = f"{field}.namespaceSelector"
    return PodTerm(
        topology_key=written.topology_key,
        selector=label_selector(written.label_selector, field=f"{field}.labelSelector", problems=problems),
        namespaces=written.namespaces,
        namespace_selector=label_selector(written.namespace_selector, field=spaces, problems=problems),
        match_label_keys=written.match_label_keys,
        mismatch_label_keys=written.mismatch_label_keys,
    )


def _requirements(
    written: tuple[wire.SelectorRequirement, ...], *, field: str, operators: tuple[Operator, ...], problems: Problems
) -> tuple[Requirement, ...] | None:
    """All of them, or None if one is invalid."""
    found = [_requirement(one, field=f"{field}[{i}]", operators=operators, problems=problems) for i, one in enumerate(written)]
    valid = tuple(one for one in found if one is not None)
    return valid if len(valid) == len(written) else None


def _requirement(
    written: wire.SelectorRequirement, *, field: str, operators: tuple[Operator, ...], problems: Problems
) -> Requirement | None:
    operator = _OPERATOR.get(written.operator)
    if operator not in operators or operator is None:
        known = ", ".join(one.value for one in operators)
        problems.add(f"{field}.operator", value=written.operator, advice=f"is unknown here; write one of {known}")
        return None
    fault = _why_invalid(operator, written)
    if fault:
        problems.add(f"{field}.values", value=list(written.values), advice=fault)
        return None
    return Requirement(written.key, operator, written.values)


def _why_invalid(operator: Operator, written: wire.SelectorRequirement) -> str:
    if not written.key:
        return "belong to no key; write for example key: zone"
    if operator in _SET_OPERATORS:
        return "" if written.values else f"are empty; {operator.value} needs at least one"
    if operator in _PRESENCE_OPERATORS:
        return f"are too many; {operator.value} takes none" if written.values else ""
    fits = len(written.values) == 1 and whole_number(written.values[0]) is not None
    return "" if fits else f'do not fit; {operator.value} takes one whole number such as ["8"]'


def _is_valid_weight(weight: int, *, field: str, problems: Problems) -> bool:
    if not 1 <= weight <= 100:
        problems.add(f"{field}.weight", value=weight, advice="is not from 1 to 100; the preference was ignored")
    return 1 <= weight <= 100


def _toleration(written: wire.WireToleration, *, field: str, problems: Problems) -> Toleration | None:
    if written.operator not in _TOLERATION_OPERATORS:
        problems.add(f"{field}.operator", value=written.operator, advice="is unknown; write Equal, Exists, Gt or Lt")
        return None
    if not written.effect:
        return Toleration(written.key, written.operator or "Equal", written.value)
    effect = _effect(written.effect, field=f"{field}.effect", problems=problems)
    return None if effect is None else Toleration(written.key, written.operator or "Equal", written.value, effect)


def _effect(written: str, *, field: str, problems: Problems) -> TaintEffect | None:
    effect = _EFFECT.get(written)
    if effect is None:
        problems.add(field, value=written, advice=f"was ignored; write one of {', '.join(_EFFECT)}")
    return effect
