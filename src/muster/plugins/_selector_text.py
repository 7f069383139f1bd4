"""Selectors as text."""

from __future__ import annotations

from muster.model.pod_constraints import LabelSelector, Operator, Requirement

_TEXTS = {
    Operator.IN: "{key} in [{values}]",
    Operator.NOT_IN: "{key} not in [{values}]",
    Operator.EXISTS: "{key} exists",
    Operator.DOES_NOT_EXIST: "{key} does not exist",
    Operator.GT: "{key} > {values}",
    Operator.LT: "{key} < {values}",
}


def show_selector(selector: LabelSelector | None) -> str:
    if selector is None:
        return "a selector that selects nobody"
    return " and ".join(show_requirement(one) for one in selector.requirements) or "any labels"


def show_requirement(wanted: Requirement) -> str:
    text = "{key}={values}" if wanted.operator is Operator.IN and len(wanted.values) == 1 else _TEXTS[wanted.operator]
    return text.format(key=wanted.key, values=", ".join(wanted.values))
