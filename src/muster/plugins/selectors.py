"""Labels: a pod is placed only where its node selector and its required node affinity match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod, PodSignature
from muster.model.pod_constraints import NodeTerm, Operator, Requirement
from muster.plugins._selector_text import show_requirement
from muster.state.derived.node_term_matches import matches_any_term, matches_term
from muster.state.node_table import BoolColumn, NodeRows, NodeTable


@dataclass(frozen=True)
class Selectors:
    """A pod is placed only where its node selector and its required node affinity match.

    One of the terms of an affinity must match in full. A term without requirements matches no node.
    """

    name: str = "selectors"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        column = np.ones(len(rows), dtype=np.bool_)
        if pod.signature.node_selector:
            column &= rows.pick(_matches_node_selector(rows.table, pod.signature))
        if pod.signature.node_affinity.required is not None:
            column &= rows.pick(matches_any_term(rows.table, pod.signature.node_affinity.required))
        return column

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        signature = pod.signature
        selected = rows.pick(_matches_node_selector(rows.table, signature))
        by_selector, by_affinity = int((~selected).sum()), int(selected.sum())
        selector = ", ".join(f"{key}={value}" for key, value in signature.node_selector)
        reasons = [f"{_do_not_match(by_selector)} the node selector ({selector})"] if by_selector else []
        if by_affinity:
            reasons.append(
                f"{_do_not_match(by_affinity)} the node affinity ({_show_terms(signature.node_affinity.required or ())})"
            )
        return ", ".join(reasons)


def _matches_node_selector(table: NodeTable, signature: PodSignature) -> BoolColumn:
    selector = tuple(Requirement(key, Operator.IN, (value,)) for key, value in signature.node_selector)
    return matches_term(table, NodeTerm(selector)) if selector else np.ones(len(table), dtype=np.bool_)


def _do_not_match(count: int) -> str:
    return f"{nodes(count)} {'does' if count == 1 else 'do'} not match"


def _show_terms(terms: tuple[NodeTerm, ...]) -> str:
    return " or ".join(_show_term(term) for term in terms) or "it has no terms"


def _show_term(term: NodeTerm) -> str:
    return " and ".join(show_requirement(requirement) for requirement in (*term.expressions, *term.fields)) or "an empty term"
