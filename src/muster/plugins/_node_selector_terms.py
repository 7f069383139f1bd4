"""Node selector terms over all nodes at once: what `selectors` and `node-affinity-preference` both use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from muster.model.pod_constraints import NodeTerm, Operator, Requirement, whole_number
from muster.state.node_table import BoolColumn, NodeTable

NAME_FIELD = "metadata.name"


def matches_any_term(table: NodeTable, terms: Sequence[NodeTerm]) -> BoolColumn:
    """Nodes that at least one of the terms matches: none, if there are no terms."""
    column = np.zeros(len(table), dtype=np.bool_)
    for term in terms:
        column |= matches_term(table, term)
    return column


def matches_term(table: NodeTable, term: NodeTerm) -> BoolColumn:
    """Nodes for which all of the term holds. An empty term matches no node."""
    if not term.expressions and not term.fields:
        return np.zeros(len(table), dtype=np.bool_)
    column = np.ones(len(table), dtype=np.bool_)
    for requirement in term.expressions:
        column &= matches_label(table, requirement)
    for requirement in term.fields:
        column &= matches_field(table, requirement)
    return column


def matches_label(table: NodeTable, wanted: Requirement) -> BoolColumn:
    """Nodes whose label satisfies the requirement. Each distinct value is compared once."""
    codes, numbers = table.label_codes(wanted.key)
    # One entry for each value, and a last one for nodes without the label, whose code is -1.
    holds = np.zeros(len(numbers) + 1, dtype=np.bool_)
    match wanted.operator:
        case Operator.IN:
            holds[_known_codes(wanted.values, numbers)] = True
        case Operator.NOT_IN:
            holds[:] = True
            holds[_known_codes(wanted.values, numbers)] = False
        case Operator.EXISTS:
            holds[:-1] = True
        case Operator.DOES_NOT_EXIST:
            holds[-1] = True
        case Operator.GT | Operator.LT:
            holds[:-1] = _compare_numbers(list(numbers), wanted)
    return _by_code(holds, codes)


def matches_field(table: NodeTable, wanted: Requirement) -> BoolColumn:
    """Nodes whose own field satisfies the requirement. The name is the only field that can be selected by."""
    named = [table.row[name] for name in wanted.values if name in table.row] if wanted.key == NAME_FIELD else []
    column = np.full(len(table), wanted.operator is Operator.NOT_IN)
    if wanted.operator in (Operator.IN, Operator.NOT_IN):
        column[named] = wanted.operator is Operator.IN
    return column


def _known_codes(values: Sequence[str], numbers: dict[str, int]) -> list[int]:
    return [numbers[value] for value in values if value in numbers]


def _compare_numbers(values: Sequence[str], wanted: Requirement) -> list[bool]:
    bound = whole_number(wanted.values[0]) if len(wanted.values) == 1 else None
    found = [whole_number(value) for value in values]
    if bound is None:
        return [False] * len(values)
    if wanted.operator is Operator.GT:
        return [number is not None and number > bound for number in found]
    return [number is not None and number < bound for number in found]


def _by_code(holds: BoolColumn, codes: npt.NDArray[np.int32]) -> BoolColumn:
    column: BoolColumn = holds[codes]
    return column
