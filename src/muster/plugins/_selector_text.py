"""Selectors as text."""

from __future__ import annotations

from muster.model.pod_constraints import LabelSelector, Operator, Requirement


def show_selector(selector: LabelSelector | None) -> str:
    if selector is None:
        return "a selector that selects nobody"
    return " and ".join(show_requirement(one) for one in selector.requirements) or "any labels"


def show_requirement(wanted: Requirement) -> str:
    values = ", ".join(wanted.values)
    match wanted.operator:
        case Operator.IN if len(wanted.values) == 1:
            return f"{wanted.key}={values}"
        case Operator.IN:
            return f"{wanted.key} in [{values}]"
        case Operator.NOT_IN:
            return f"{wanted.key} not in [{values}]"
        case Operator.EXISTS:
            return f"{wanted.key} exists"
        case Operator.DOES_NOT_EXIST:
            return f"{wanted.key} does not exist"
        case Operator.GT:
            return f"{wanted.key} > {values}"
        case Operator.LT:
            return f"{wanted.key} < {values}"
