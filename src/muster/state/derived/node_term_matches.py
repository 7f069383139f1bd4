"""Node selector terms over all nodes at once: of pods, volumes and storage classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from muster.model.pod_constraints import NodeTerm, Operator, Requirement
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, NodeTable
from muster.state.world import World

NAME_FIELD = "metadata.name"

Terms = tuple[NodeTerm, ...]

_ROWS: Derived[frozenset[int]] = Derived("rows of node terms", Topic.NODE_LAYOUT, Topic.NODE_LABELS, most=65536)


def matching_rows(world: World, terms: Terms) -> frozenset[int]:
    """The rows that one of the terms matches. Kept, because volumes of one place have equal terms."""
    return _ROWS.of(world, lambda: frozenset(np.flatnonzero(matches_any_term(world.table, terms)).tolist()), key=terms)


def matching_column(world: World, terms: Terms | None) -> BoolColumn:
    """The same for all rows, as a column. None matches every node."""
    if terms is None:
        return np.ones(len(world.table), dtype=np.bool_)
    column = np.zeros(len(world.table), dtype=np.bool_)
    column[list(matching_rows(world, terms))] = True
    return column


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
        column &= _matches_field(table, requirement)
    return column


def matches_label(table: NodeTable, wanted: Requirement) -> BoolColumn:
    """Nodes whose label satisfies the requirement."""
    return _matches_code(wanted, *table.label_codes(wanted.key))


def _matches_field(table: NodeTable, wanted: Requirement) -> BoolColumn:
    """Nodes whose own field satisfies the requirement. The name is the only field that can be selected by."""
    if wanted.key == NAME_FIELD:
        return _matches_code(wanted, np.arange(len(table)), table.row)
    return _matches_code(wanted, np.full(len(table), -1), {})


def _matches_code(wanted: Requirement, codes: npt.NDArray[np.signedinteger], numbers: Mapping[str, int]) -> BoolColumn:
    """Where the requirement holds, for values that are given by number, -1 for none. Each distinct value is compared once."""
    # One entry for each value, and a last one for nodes without any.
    holds = np.zeros(len(numbers) + 1, dtype=np.bool_)
    match wanted.operator:
        case Operator.IN | Operator.NOT_IN:
            holds[:] = wanted.operator is Operator.NOT_IN
            holds[[numbers[value] for value in wanted.values if value in numbers]] = wanted.operator is Operator.IN
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            holds[:] = wanted.operator is Operator.EXISTS
            holds[-1] = wanted.operator is Operator.DOES_NOT_EXIST
        case Operator.GT | Operator.LT:
            holds[:-1] = [wanted.holds({wanted.key: value}) for value in numbers]
    column: BoolColumn = holds[codes]
    return column
