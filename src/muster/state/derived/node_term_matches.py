"""Which nodes a choice of node terms matches, found once for each layout of the table: volumes of one place have equal terms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from muster.model.pod_constraints import NodeTerm, Operator
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, NodeTable
from muster.state.world import World

Terms = tuple[NodeTerm, ...]

_ROWS: Derived[frozenset[int]] = Derived("rows of node terms", Topic.NODE_LAYOUT, Topic.NODE_LABELS, most=65536)


def matching_rows(world: World, terms: Terms) -> frozenset[int]:
    """The rows that one of the terms matches."""
    return _ROWS.of(world, lambda: frozenset(row for term in terms for row in _rows(world.table, term)), key=terms)


def matching_column(world: World, terms: Terms | None) -> BoolColumn:
    """The same for all rows, as a column. None matches every node."""
    if terms is None:
        return np.ones(len(world.table), dtype=np.bool_)
    column = np.zeros(len(world.table), dtype=np.bool_)
    column[list(matching_rows(world, terms))] = True
    return column


def _rows(table: NodeTable, term: NodeTerm) -> Iterable[int]:
    for row in _worth_a_look(table, term):
        node = table.nodes[row]
        if term.matches(node.labels, name=node.name):
            yield row


def _worth_a_look(table: NodeTable, term: NodeTerm) -> Iterable[int]:
    """Rows outside of which the term matches nothing: few where it names values."""
    for wanted in term.fields:
        if wanted.operator is Operator.IN:
            return [table.row[name] for name in wanted.values if name in table.row]
    for wanted in term.expressions:
        if wanted.operator is Operator.IN:
            codes, numbers = table.label_codes(wanted.key)
            known = [numbers[value] for value in wanted.values if value in numbers]
            rows: list[int] = np.flatnonzero(np.isin(codes, known)).tolist()
            return rows
    return range(len(table))
