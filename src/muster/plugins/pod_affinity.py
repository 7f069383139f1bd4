"""Other pods that a pod must be near, or must be kept away from: required inter-pod affinity and anti-affinity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.gates import Gate
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.plugins._rows import of_rows
from muster.plugins._words import show_selector
from muster.state.census import Codes, Holders, Looks
from muster.state.follow import following
from muster.state.table import BoolColumn, NodeTable, Rows
from muster.state.terms import Aim, Wants


@dataclass(frozen=True)
class PodAffinity:
    """A pod goes only where its required pod affinity and anti-affinity hold, and those of the pods that are there already.

    A bind must pass among the pods that are there and among those that will be there; a claim only among those that will be. Pods
    that are leaving may still be in the way, and are company for nobody. A pod that matches its own affinity may be the first.
    """

    name: str = "pod_affinity"

    def pod_key(self, s: Session, pod: Pod) -> int:
        """Members that need the company of others come after those who do not: the company may be of their own gang."""
        if not pod.kind.affinity.required:
            return 0
        near = following(s.world, Holders).wants(pod).near
        return int(not near[0].selection.means_pod(s.world.facts.namespaces, pod))

    def entangled(self, s: Session, pod: Pod) -> bool:
        kind = pod.kind
        return bool(kind.affinity.required or kind.anti_affinity.required) or bool(_kept_off_by(s, pod))

    def fit_among(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        return of_rows(rows, self.gate(s, pod, rows).open())

    def gate(self, s: Session, pod: Pod, rows: Rows) -> _Gate:
        return _Gate(s, pod, rows.table, soon=rows.soon)

    def stamp(self, s: Session, pod: Pod) -> object:
        """Pods of one kind with equal stamps are the same to this check."""
        wants = following(s.world, Holders).wants(pod)
        return (wants, _means_itself(s, wants.near[:1], pod), _means_itself(s, wants.apart, pod), _kept_off_by(s, pod))

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        left = np.arange(len(rows.table)) if rows.index is None else rows.index
        said: list[str] = []
        for closed, words in _reasons(s, pod, rows):
            count = int(closed[left].sum())
            left = left[~closed[left]]
            if count:
                said.append(f"{nodes(count)} {words}")
        return ", ".join(said)


def _kept_off_by(s: Session, pod: Pod) -> list[Aim]:
    """What pods that are placed keep away from, where that is this pod."""
    apart = following(s.world, Holders).apart
    return apart.meaning(s.world.facts.namespaces, pod.namespace, pod.labels) if apart else []


def _means_itself(s: Session, aims: tuple[Aim, ...], pod: Pod) -> tuple[bool, ...]:
    return tuple([aim.selection.means_pod(s.world.facts.namespaces, pod) for aim in aims])


def _codes(table: NodeTable, aim: Aim) -> Codes:
    return table.label_codes(aim.key)[0]


class _Gate(Gate):
    def __init__(self, s: Session, pod: Pod, table: NodeTable, *, soon: bool) -> None:
        world, holders = s.world, following(s.world, Holders)
        wants = holders.wants(pod)
        closed = np.zeros(len(table), dtype=np.bool_)
        for aim in _kept_off_by(s, pod):
            closed |= holders.tally(world, aim).in_the_way(soon=soon)[_codes(table, aim)]
        if wants.apart:
            looks = following(world, Looks)
            for aim in wants.apart:
                closed |= looks.tally(world, aim).in_the_way(soon=soon)[_codes(table, aim)]
        self._free: BoolColumn = ~closed
        means_itself = _means_itself(s, wants.apart, pod)
        self._apart = [_codes(table, aim) for aim, itself in zip(wants.apart, means_itself, strict=True) if itself]
        self._near = _Near(s, pod, wants, table, soon=soon) if wants.near else None

    def open(self) -> BoolColumn:
        return self._free if self._near is None else self._free & self._near.open

    def take(self, row: int) -> None:
        for codes in self._apart:
            if codes[row] >= 0:
                self._free &= codes != codes[row]
        if self._near is not None:
            self._near.take(row)


class _Near:
    """The company that a pod requires. Where nobody of that sort is anywhere, one that is of that sort itself may be the first."""

    def __init__(self, s: Session, pod: Pod, wants: Wants, table: NodeTable, *, soon: bool) -> None:
        looks = following(s.world, Looks)
        self._codes = [_codes(table, aim) for aim in wants.near]
        tallies = [looks.tally(s.world, aim).worlds(soon=soon) for aim in wants.near]
        # For each world, for each term: in which domains there is company.
        self._company: list[list[BoolColumn]] = [[counts > 0 for counts in world] for world in zip(*tallies, strict=True)]
        self._means_itself = wants.near[0].selection.means_pod(s.world.facts.namespaces, pod)
        self.open: BoolColumn = self._find()

    def take(self, row: int) -> None:
        if not self._means_itself:
            return
        at = [codes[row] for codes in self._codes]
        if all(domains[code] for world in self._company for domains, code in zip(world, at, strict=True)):
            return
        for world in self._company:
            for domains, code in zip(world, at, strict=True):
                domains[code] = True
        self.open = self._find()

    def _find(self) -> BoolColumn:
        found = np.ones(len(self._codes[0]), dtype=np.bool_)
        for world in self._company:
            is_first = self._means_itself and not any(domains.any() for domains in world)
            for domains, codes in zip(world, self._codes, strict=True):
                found &= codes >= 0 if is_first else domains[codes]
        return found


def _reasons(s: Session, pod: Pod, rows: Rows) -> Iterator[tuple[BoolColumn, str]]:
    """Rows that are closed, all told, and why, in the order in which reasons are given."""
    world, table, soon = s.world, rows.table, rows.soon
    holders = following(world, Holders)
    wants = holders.wants(pod)
    for aim in wants.near:
        yield _codes(table, aim) < 0, f"without the label {aim.key}, by which it looks for company"
    for term, aim in zip(pod.kind.anti_affinity.required, wants.apart, strict=True):
        tally = following(world, Looks).tally(world, aim)
        words = f"with a pod in their {aim.key} that it keeps away from ({show_selector(term.selector)})"
        yield tally.in_the_way(soon=soon)[_codes(table, aim)], words
    for aim in _kept_off_by(s, pod):
        tally = holders.tally(world, aim)
        yield tally.in_the_way(soon=soon)[_codes(table, aim)], f"with a pod in their {aim.key} that keeps away from it"
    if wants.near:
        sought = " and ".join(f"{show_selector(term.selector)} in their {term.topology_key}" for term in pod.kind.affinity.required)
        yield np.ones(len(table), dtype=np.bool_), f"without a pod that it must be near ({sought})"
