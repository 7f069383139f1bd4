"""Counts for inter-pod constraints: how many pods of a selection are in each topology domain, and which terms placed pods have.

Pods with equal namespaces and labels are counted together, because no term can tell them apart. A `TopologyCount` counts by domain,
where a domain is a value of one node label. All of this is derived from placements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.derived.placement_counters import (
    NOMINATED,
    OVERDUE,
    PLACED,
    PRESENCES,
    TERMINATING,
    PlacementCounter,
    presence_of,
)
from muster.state.node_table import BoolColumn, NodeTable
from muster.state.pod_terms import (
    BySelection,
    Namespaces,
    Pair,
    PerTermsCache,
    PodTerms,
    Selection,
    TermTarget,
    WeightedTarget,
    has_terms,
    terms_of,
)
from muster.state.world import World

Codes = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int32]


# All topology counts together may have this many numbers; past that all are dropped, and those still needed are built again.
_MAX_COUNTS = 8_000_000


class Scope(Protocol):
    """Which nodes count: a key, and the column that follows from it."""

    def __hash__(self) -> int: ...

    def column(self, table: NodeTable) -> BoolColumn: ...


# What is counted of a domain: pods that count now, that will count after the releases under way, and that block others then or now.
COUNTS, WILL_COUNT, WILL_BLOCK, BLOCKS = range(4)
_COUNT_COLUMNS = 4
# A presence counts in its own column and in all that follow.
_FIRST_COLUMN = {PLACED: COUNTS, NOMINATED: WILL_COUNT, OVERDUE: WILL_BLOCK, TERMINATING: BLOCKS}


class TopologyCount:
    """How many matching pods are in each domain of one label. The last column is no domain: a node without the label has code
    -1, so it finds that column, and nobody is ever counted there."""

    __slots__ = ("codes", "counts", "has_node")

    def __init__(self, codes: Codes, domains: int) -> None:
        self.codes = codes
        """The domain of each row that counts, -1 for the others."""
        self.counts: Counts = np.zeros((_COUNT_COLUMNS, domains + 1), dtype=np.int32)
        self.has_node: BoolColumn = np.zeros(domains + 1, dtype=np.bool_)
        """The domains that have a node which counts."""
        self.has_node[codes] = True
        self.has_node[-1] = False

    def add(self, row: int, presence: int, by: int) -> None:
        code = self.codes[row]
        if code >= 0:
            self.counts[_FIRST_COLUMN[presence] :, code] += by

    def views(self, *, after_releases: bool) -> list[Counts]:
        """Counts by domain, for every view in which a check must pass: a nomination is checked after the releases under way, a bind
        as things are now, too."""
        will_be = self.counts[WILL_COUNT].copy()
        return [will_be] if after_releases else [self.counts[COUNTS].copy(), will_be]

    def blocked_domains(self, *, after_releases: bool) -> BoolColumn:
        """The domains with a pod that anti-affinity must avoid, in any of these views."""
        found: BoolColumn = self.counts[WILL_BLOCK if after_releases else BLOCKS] > 0
        return found


class CountedPods:
    """Pods that are counted together: how many on which node, by presence, and the topology counts that they are in."""

    __slots__ = ("by_node", "generation", "topology_counts")

    def __init__(self) -> None:
        self.by_node: dict[str, list[int]] = {}
        self.topology_counts: list[TopologyCount] = []
        self.generation = -1

    def change(self, node: str, presence: int, by: int, rows: Mapping[str, int]) -> None:
        here = self.by_node.get(node)
        if here is None:
            here = self.by_node[node] = [0] * PRESENCES
        here[presence] += by
        if not any(here):
            del self.by_node[node]
        row = rows.get(node)
        if row is not None:
            for topology_count in self.topology_counts:
                topology_count.add(row, presence, by)

    def count_into(self, topology_count: TopologyCount, rows: Mapping[str, int]) -> None:
        """Count all of them in a new topology count."""
        for node, here in self.by_node.items():
            row = rows.get(node)
            if row is not None:
                for presence, count in enumerate(here):
                    if count:
                        topology_count.add(row, presence, count)


K = TypeVar("K")

_COUNTED_BY = (Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.NODE_TAINTS, Topic.NAMESPACES)
"""A change of one of these makes every topology count stale."""


class _CountsByKey(Generic[K]):
    """The topology counts built so far, for one layout of the node table and one state of the namespaces."""

    def __init__(self) -> None:
        self.generation = 0
        self.made: dict[K, TopologyCount] = {}
        self._stamp: tuple[int, ...] = ()
        self._bumps = -1
        self._figures = 0

    def renew(self, world: World) -> bool:
        """Drop them when labels, nodes or namespaces changed. True when that happened."""
        is_small = self._figures <= _MAX_COUNTS
        if self._bumps == world.changes.bumps and is_small:
            return False
        stamp = world.changes.stamp(_COUNTED_BY)
        self._bumps = world.changes.bumps
        if stamp == self._stamp and is_small:
            return False
        self._stamp = stamp
        self.generation += 1
        self.made.clear()
        self._figures = 0
        return True

    def add(self, key: K, table: NodeTable, label: str, scope: Scope | None) -> TopologyCount:
        codes, values = table.label_codes(label)
        if scope is not None:
            codes = np.where(scope.column(table), codes, np.int32(-1))
        topology_count = self.made[key] = TopologyCount(codes, len(values))
        self._figures += topology_count.counts.size
        return topology_count


_NamespaceAndLabels = tuple[str, tuple[Pair, ...]]
"""Namespace and labels."""
_CountKey = tuple[TermTarget, Scope | None]
"""Which pods are counted, by which label, and on which nodes."""


@dataclass(frozen=True, slots=True)
class _PlacedPod:
    labels_key: _NamespaceAndLabels
    node: str
    presence: int


class SelectorView(PlacementCounter[_PlacedPod]):
    """Every placed pod, by namespace and labels."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[_NamespaceAndLabels, CountedPods] = {}
        self._by_pair: dict[Pair, dict[_NamespaceAndLabels, CountedPods]] = {}
        self._counts_by_key: _CountsByKey[_CountKey] = _CountsByKey()
        self._count_keys: BySelection[_CountKey] = BySelection()
        self._rows: Mapping[str, int] = {}
        self._namespaces: Namespaces = {}

    def topology_count(self, world: World, aim: TermTarget, scope: Scope | None = None) -> TopologyCount:
        """How many pods of this target's selection are in each of its domains, counting only the nodes of a scope."""
        key = (aim, scope)
        found = self._counts_by_key.made.get(key)
        if found is None:
            found = self._counts_by_key.add(key, world.table, aim.key, scope)
            self._count_keys.add(key, aim.selection)
            for group in self._matched_by(aim.selection):
                group.count_into(found, self._rows)
                if group.generation == self._counts_by_key.generation:
                    group.topology_counts.append(found)
        return found

    def renew(self, world: World) -> None:
        self._rows, self._namespaces = world.table.row, world.facts.namespaces
        if self._counts_by_key.renew(world):
            self._count_keys.clear()

    def entry(self, pod: Pod, node: str, placement: Placement) -> _PlacedPod:
        return _PlacedPod((pod.namespace, tuple(sorted(pod.labels.items()))), node, presence_of(placement))

    def count(self, entry: _PlacedPod, *, by: int) -> None:
        group = self._groups.get(entry.labels_key)
        if group is None:
            group = self._add(entry.labels_key)
        if group.generation != self._counts_by_key.generation:
            found = self._count_keys.matching(self._namespaces, entry.labels_key[0], dict(entry.labels_key[1]))
            group.topology_counts = [self._counts_by_key.made[key] for key in found]
            group.generation = self._counts_by_key.generation
        group.change(entry.node, entry.presence, by, self._rows)
        if not group.by_node:
            self._drop(entry.labels_key)

    def figures(self) -> dict[object, object]:
        return {labels_key: group.by_node for labels_key, group in self._groups.items()}

    def _matched_by(self, selection: Selection) -> list[CountedPods]:
        pairs = selection.pairs()
        found: dict[_NamespaceAndLabels, CountedPods] = {}
        for bucket in [self._groups] if pairs is None else [self._by_pair.get(pair, {}) for pair in pairs]:
            found.update(bucket)
        return [
            group for labels_key, group in found.items() if selection.matches(self._namespaces, labels_key[0], dict(labels_key[1]))
        ]

    def _add(self, labels_key: _NamespaceAndLabels) -> CountedPods:
        group = self._groups[labels_key] = CountedPods()
        for pair in labels_key[1]:
            self._by_pair.setdefault(pair, {})[labels_key] = group
        return group

    def _drop(self, labels_key: _NamespaceAndLabels) -> None:
        del self._groups[labels_key]
        for pair in labels_key[1]:
            del self._by_pair[pair][labels_key]
            if not self._by_pair[pair]:
                del self._by_pair[pair]


@dataclass(frozen=True, slots=True)
class _PlacedTerms:
    terms_of: PodTerms
    node: str
    presence: int


Term = TermTarget | WeightedTarget


class TermHolders(PlacementCounter[_PlacedTerms]):
    """The inter-pod terms of placed pods, which later pods must respect. Pods without terms cost next to nothing here."""

    def __init__(self) -> None:
        super().__init__()
        self.anti_affinity: BySelection[TermTarget] = BySelection()
        """Targets of placed pods' required anti-affinity."""
        self.weighted: BySelection[WeightedTarget] = BySelection()
        """Targets of placed pods' preferences and required affinity."""
        self._groups: dict[Term, CountedPods] = {}
        self._counts_by_key: _CountsByKey[Term] = _CountsByKey()
        self._rows: Mapping[str, int] = {}
        self._wants = PerTermsCache(terms_of)

    def terms_of(self, pod: Pod) -> PodTerms:
        return self._wants.of(pod)

    def topology_count(self, world: World, term: Term) -> TopologyCount:
        """How many pods with this term are in each of its domains."""
        found = self._counts_by_key.made.get(term)
        if found is None:
            key = term.key if isinstance(term, TermTarget) else term.target.key
            found = self._counts_by_key.add(term, world.table, key, None)
            group = self._groups[term]
            group.count_into(found, self._rows)
            group.topology_counts, group.generation = [found], self._counts_by_key.generation
        return found

    def renew(self, world: World) -> None:
        self._rows = world.table.row
        self._counts_by_key.renew(world)

    def entry(self, pod: Pod, node: str, placement: Placement) -> _PlacedTerms | None:
        return _PlacedTerms(self._wants.of(pod), node, presence_of(placement)) if has_terms(pod.signature) else None

    def count(self, entry: _PlacedTerms, *, by: int) -> None:
        for aim in entry.terms_of.required_anti_affinity:
            if self._shift(aim, entry, by):
                self.anti_affinity.add(aim, aim.selection) if by > 0 else self.anti_affinity.remove(aim, aim.selection)
        for pull in entry.terms_of.existing_pod_terms:
            if self._shift(pull, entry, by):
                self.weighted.add(pull, pull.target.selection) if by > 0 else self.weighted.remove(pull, pull.target.selection)

    def figures(self) -> dict[object, object]:
        return {term: group.by_node for term, group in self._groups.items()}

    def _shift(self, term: Term, entry: _PlacedTerms, by: int) -> bool:
        """Count a pod with this term in or out. True for the first one and the last one."""
        group = self._groups.get(term)
        is_first = group is None
        if group is None:
            group = self._groups[term] = CountedPods()
        if group.generation != self._counts_by_key.generation:
            group.topology_counts = []
        group.change(entry.node, entry.presence, by, self._rows)
        if group.by_node:
            return is_first
        del self._groups[term]
        self._counts_by_key.made.pop(term, None)
        return True
