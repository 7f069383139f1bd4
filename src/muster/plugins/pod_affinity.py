"""Other pods that a pod must be near, or must be kept away from: required inter-pod affinity and anti-affinity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.inter_pod_state import InterPodState
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._select_rows import select_rows
from muster.plugins._selector_text import show_selector
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import Codes, SelectorView, TermHolders
from muster.state.node_table import BoolColumn, NodeRows, NodeTable
from muster.state.pod_terms import PodTerms, TermTarget


@dataclass(frozen=True)
class InterPodAffinity:
    """A pod goes only where its required pod affinity and anti-affinity hold, and those of the pods that are there already.

    A bind must pass among the pods that are there and among those that will be there; a claim only among those that will be. Pods
    that are leaving may still be in the way, and are company for nobody. A pod that matches its own affinity may be the first.
    """

    name: str = "pod-affinity"

    def pod_key(self, s: Session, pod: Pod) -> int:
        """Members that need the company of others come after those who do not: the company may be of their own gang."""
        if not pod.signature.affinity.required:
            return 0
        near = counter_of(s.world, TermHolders).terms_of(pod).required_affinity
        return int(not near[0].selection.matches_pod(s.world.facts.namespaces, pod))

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        signature = pod.signature
        return bool(signature.affinity.required or signature.anti_affinity.required) or bool(_existing_anti_affinity(s, pod))

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return select_rows(rows, self.inter_pod_state(s, pod, rows).feasible_rows())

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> _RequiredAffinity:
        return _RequiredAffinity(s, pod, rows.table, after_releases=rows.after_releases)

    def inter_pod_key(self, s: Session, pod: Pod) -> object:
        """Pods of one kind with equal stamps are the same to this check."""
        wants = counter_of(s.world, TermHolders).terms_of(pod)
        return (
            wants,
            _matches_itself(s, wants.required_affinity[:1], pod),
            _matches_itself(s, wants.required_anti_affinity, pod),
            _existing_anti_affinity(s, pod),
        )

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        left = np.arange(len(rows.table)) if rows.index is None else rows.index
        said: list[str] = []
        for closed, words in _reasons(s, pod, rows):
            count = int(closed[left].sum())
            left = left[~closed[left]]
            if count:
                said.append(f"{nodes(count)} {words}")
        return ", ".join(said)


def _existing_anti_affinity(s: Session, pod: Pod) -> list[TermTarget]:
    """What pods that are placed keep away from, where that is this pod."""
    apart = counter_of(s.world, TermHolders).anti_affinity
    return apart.matching(s.world.facts.namespaces, pod.namespace, pod.labels) if apart else []


def _matches_itself(s: Session, aims: tuple[TermTarget, ...], pod: Pod) -> tuple[bool, ...]:
    return tuple([aim.selection.matches_pod(s.world.facts.namespaces, pod) for aim in aims])


def _domain_codes(table: NodeTable, aim: TermTarget) -> Codes:
    return table.label_codes(aim.key)[0]


class _RequiredAffinity(InterPodState):
    def __init__(self, s: Session, pod: Pod, table: NodeTable, *, after_releases: bool) -> None:
        world, holders = s.world, counter_of(s.world, TermHolders)
        wants = holders.terms_of(pod)
        closed = np.zeros(len(table), dtype=np.bool_)
        for aim in _existing_anti_affinity(s, pod):
            closed |= holders.topology_count(world, aim).blocked_domains(after_releases=after_releases)[_domain_codes(table, aim)]
        if wants.required_anti_affinity:
            looks = counter_of(world, SelectorView)
            for aim in wants.required_anti_affinity:
                closed |= looks.topology_count(world, aim).blocked_domains(after_releases=after_releases)[_domain_codes(table, aim)]
        self._feasible: BoolColumn = ~closed
        means_itself = _matches_itself(s, wants.required_anti_affinity, pod)
        self._anti_affinity_codes = [
            _domain_codes(table, aim) for aim, itself in zip(wants.required_anti_affinity, means_itself, strict=True) if itself
        ]
        self._affinity = _AffinityTerms(s, pod, wants, table, after_releases=after_releases) if wants.required_affinity else None

    def feasible_rows(self) -> BoolColumn:
        return self._feasible if self._affinity is None else self._feasible & self._affinity.feasible_rows

    def add_pod(self, row: int) -> None:
        for codes in self._anti_affinity_codes:
            if codes[row] >= 0:
                self._feasible &= codes != codes[row]
        if self._affinity is not None:
            self._affinity.add_pod(row)


class _AffinityTerms:
    """The company that a pod requires. Where nobody of that sort is anywhere, one that is of that sort itself may be the first."""

    def __init__(self, s: Session, pod: Pod, wants: PodTerms, table: NodeTable, *, after_releases: bool) -> None:
        looks = counter_of(s.world, SelectorView)
        self._domain_codes = [_domain_codes(table, aim) for aim in wants.required_affinity]
        tallies = [looks.topology_count(s.world, aim).views(after_releases=after_releases) for aim in wants.required_affinity]
        # For each world, for each term: in which domains there is company.
        self._has_match: list[list[BoolColumn]] = [[counts > 0 for counts in world] for world in zip(*tallies, strict=True)]
        self._matches_itself = wants.required_affinity[0].selection.matches_pod(s.world.facts.namespaces, pod)
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
    """Rows that are closed, all told, and why, in the order in which reasons are given."""
    world, table, after_releases = s.world, rows.table, rows.after_releases
    holders = counter_of(world, TermHolders)
    wants = holders.terms_of(pod)
    for aim in wants.required_affinity:
        yield _domain_codes(table, aim) < 0, f"without the label {aim.key}, by which it looks for company"
    for term, aim in zip(pod.signature.anti_affinity.required, wants.required_anti_affinity, strict=True):
        topology_count = counter_of(world, SelectorView).topology_count(world, aim)
        words = f"with a pod in their {aim.key} that it keeps away from ({show_selector(term.selector)})"
        yield topology_count.blocked_domains(after_releases=after_releases)[_domain_codes(table, aim)], words
    for aim in _existing_anti_affinity(s, pod):
        topology_count = holders.topology_count(world, aim)
        yield (
            topology_count.blocked_domains(after_releases=after_releases)[_domain_codes(table, aim)],
            f"with a pod in their {aim.key} that keeps away from it",
        )
    if wants.required_affinity:
        sought = " and ".join(
            f"{show_selector(term.selector)} in their {term.topology_key}" for term in pod.signature.affinity.required
        )
        yield np.ones(len(table), dtype=np.bool_), f"without a pod that it must be near ({sought})"
