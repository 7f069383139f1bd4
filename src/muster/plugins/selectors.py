"""Labels: a pod goes only where its node selector and its required node affinity match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Kind, Pod
from muster.model.selectors import NodeTerm, Operator, Requirement
from muster.plugins._rows import of_rows
from muster.plugins._terms import any_term, term_column
from muster.plugins._words import show_requirement
from muster.state.table import BoolColumn, NodeTable, Rows


@dataclass(frozen=True)
class Selectors:
    """A pod goes only where its node selector and its required node affinity match.

    The terms of an affinity are a choice: one of them must match in full. A term without requirements matches no node.
    """

    name: str = "selectors"

    def match(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        column = np.ones(len(rows), dtype=np.bool_)
        if pod.kind.node_selector:
            column &= of_rows(rows, _selected(rows.table, pod.kind))
        if pod.kind.node_affinity.required is not None:
            column &= of_rows(rows, any_term(rows.table, pod.kind.node_affinity.required))
        return column

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        kind = pod.kind
        selected = of_rows(rows, _selected(rows.table, kind))
        by_selector, by_affinity = int((~selected).sum()), int(selected.sum())
        wanted = ", ".join(f"{key}={value}" for key, value in kind.node_selector)
        said = [f"{_do_not_match(by_selector)} the node selector ({wanted})"] if by_selector else []
        if by_affinity:
            said.append(f"{_do_not_match(by_affinity)} the node affinity ({_show_terms(kind.node_affinity.required or ())})")
        return ", ".join(said)


def _selected(table: NodeTable, kind: Kind) -> BoolColumn:
    wanted = tuple(Requirement(key, Operator.IN, (value,)) for key, value in kind.node_selector)
    return term_column(table, NodeTerm(wanted)) if wanted else np.ones(len(table), dtype=np.bool_)


def _do_not_match(count: int) -> str:
    return f"{nodes(count)} {'does' if count == 1 else 'do'} not match"


def _show_terms(terms: tuple[NodeTerm, ...]) -> str:
    return " or ".join(_show_term(term) for term in terms) or "it has no terms"


def _show_term(term: NodeTerm) -> str:
    return " and ".join(show_requirement(requirement) for requirement in (*term.expressions, *term.fields)) or "an empty term"
