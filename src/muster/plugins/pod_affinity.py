"""Required inter-pod affinity and anti-affinity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import reasons_in_order
from muster.engine.inter_pod_state import InterPodState
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._selector_text import show_selector
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import Codes, SelectorView, TermHolders, TopologyCount
from muster.state.node_table import BoolColumn, NodeRows, NodeTable
from muster.state.pod_terms import PodTerms, TermTarget


@dataclass(frozen=True)
class InterPodAffinity:
    """A pod is placed only where its required pod affinity and anti-affinity hold, and the anti-affinity of the pods there.

    A bind must pass with the pods that are there and with those that will be after releases; a nomination only with the latter.
    Terminating pods still count for anti-affinity and never for affinity. A pod that matches its own affinity may be the first.
    """

    name: str = "pod-affinity"

    def pod_key(self, s: Session, pod: Pod) -> int:
        """Members with a required affinity come after those without: the pods that it requires may be of their own gang."""
        if not pod.signature.affinity.required:
            return 0
        required = counter_of(s.world, TermHolders).terms_of(pod).required_affinity
        return int(not required[0].selection.matches_pod(s.world.facts.namespaces, pod))

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        signature = pod.signature
        return bool(signature.affinity.required or signature.anti_affinity.required) or bool(_existing_anti_affinity(s, pod))

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return rows.pick(self.inter_pod_state(s, pod, rows).feasible_rows())

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> _RequiredAffinity:
        return _RequiredAffinity(s, pod, rows.table, after_releases=rows.after_releases)

    def inter_pod_key(self, s: Session, pod: Pod) -> object:
        """Pods of one signature with equal keys are the same to this plugin."""
        terms = counter_of(s.world, TermHolders).terms_of(pod)
        return (
            terms,
            _matches_itself(s, terms.required_affinity[:1], pod),
            _matches_itself(s, terms.required_anti_affinity, pod),
            _existing_anti_affinity(s, pod),
        )

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        return reasons_in_order(rows, _reasons(s, pod, rows))


def _existing_anti_affinity(s: Session, pod: Pod) -> list[TermTarget]:
    """The anti-affinity terms of placed pods that select this pod."""
    anti_affinity = counter_of(s.world, TermHolders).anti_affinity
    return anti_affinity.matching(s.world.facts.namespaces, pod.namespace, pod.labels) if anti_affinity else []


def _matches_itself(s: Session, targets: tuple[TermTarget, ...], pod: Pod) -> tuple[bool, ...]:
    return tuple([target.selection.matches_pod(s.world.facts.namespaces, pod) for target in targets])


def _domain_codes(table: NodeTable, target: TermTarget) -> Codes:
    return table.label_codes(target.key)[0]


def _blocked(topology_count: TopologyCount, table: NodeTable, target: TermTarget, *, after_releases: bool) -> BoolColumn:
    """Nodes in a domain with one of the pods that are counted."""
    column: BoolColumn = topology_count.blocked_domains(after_releases=after_releases)[_domain_codes(table, target)]
    return column


class _RequiredAffinity(InterPodState):
    def __init__(self, s: Session, pod: Pod, table: NodeTable, *, after_releases: bool) -> None:
        holders = counter_of(s.world, TermHolders)
        terms = holders.terms_of(pod)
        refused = np.zeros(len(table), dtype=np.bool_)
        for target in _existing_anti_affinity(s, pod):
            refused |= _blocked(holders.topology_count(s.world, target), table, target, after_releases=after_releases)
        for target in terms.required_anti_affinity:
            topology_count = counter_of(s.world, SelectorView).topology_count(s.world, target)
            refused |= _blocked(topology_count, table, target, after_releases=after_releases)
        self._feasible: BoolColumn = ~refused
        matches_itself = _matches_itself(s, terms.required_anti_affinity, pod)
        self._anti_affinity_codes = [
            _domain_codes(table, target)
            for target, itself in zip(terms.required_anti_affinity, matches_itself, strict=True)
            if itself
        ]
        self._affinity = _AffinityTerms(s, pod, terms, table, after_releases=after_releases) if terms.required_affinity else None

    def feasible_rows(self) -> BoolColumn:
        return self._feasible if self._affinity is None else self._feasible & self._affinity.feasible_rows

    def add_pod(self, row: int) -> None:
        for codes in self._anti_affinity_codes:
            if codes[row] >= 0:
                self._feasible &= codes != codes[row]
        if self._affinity is not None:
            self._affinity.add_pod(row)


class _AffinityTerms:
    """The required affinity terms of a pod. Where no pod matches them anywhere, a pod that matches them itself may be the first."""

    def __init__(self, s: Session, pod: Pod, terms: PodTerms, table: NodeTable, *, after_releases: bool) -> None:
        selector_view = counter_of(s.world, SelectorView)
        self._domain_codes = [_domain_codes(table, target) for target in terms.required_affinity]
        counts_by_term = [
            selector_view.topology_count(s.world, target).views(after_releases=after_releases) for target in terms.required_affinity
        ]
        # For each view of the placements, for each term: which domains have a matching pod.
        self._has_match: list[list[BoolColumn]] = [[counts > 0 for counts in world] for world in zip(*counts_by_term, strict=True)]
        self._matches_itself = terms.required_affinity[0].selection.matches_pod(s.world.facts.namespaces, pod)
        self.feasible_rows: BoolColumn = self._feasible_nodes()

    def add_pod(self, row: int) -> None:
        if not self._matches_itself:
            return
        at = [codes[row] for codes in self._domain_codes]
        if all(domains[code] for world in self._has_match for domains, code in zip(world, at, strict=True)):
            return
        for world in self._has_match:
            for domains, code in zip(world, at, strict=True):
                domains[code] = True
        self.feasible_rows = self._feasible_nodes()

    def _feasible_nodes(self) -> BoolColumn:
        found = np.ones(len(self._domain_codes[0]), dtype=np.bool_)
        for world in self._has_match:
            is_first = self._matches_itself and not any(domains.any() for domains in world)
            for domains, codes in zip(world, self._domain_codes, strict=True):
                found &= codes >= 0 if is_first else domains[codes]
        return found


def _reasons(s: Session, pod: Pod, rows: NodeRows) -> Iterator[tuple[BoolColumn, str]]:
    """Rows that are refused and why, in the order in which reasons are given."""
    world, table, after_releases = s.world, rows.table, rows.after_releases
    holders = counter_of(world, TermHolders)
    terms = holders.terms_of(pod)
    for target in terms.required_affinity:
        yield _domain_codes(table, target) < 0, f"without the label {target.key}, the topologyKey of its affinity"
    for term, target in zip(pod.signature.anti_affinity.required, terms.required_anti_affinity, strict=True):
        topology_count = counter_of(world, SelectorView).topology_count(world, target)
        text = f"with a pod in their {target.key} that its anti-affinity excludes ({show_selector(term.selector)})"
        yield _blocked(topology_count, table, target, after_releases=after_releases), text
    for target in _existing_anti_affinity(s, pod):
        text = f"with a pod in their {target.key} whose anti-affinity excludes it"
        yield _blocked(holders.topology_count(world, target), table, target, after_releases=after_releases), text
    if terms.required_affinity:
        required = " and ".join(
            f"{show_selector(term.selector)} in their {term.topology_key}" for term in pod.signature.affinity.required
        )
        yield np.ones(len(table), dtype=np.bool_), f"without a pod that its affinity requires ({required})"
