"""Who stands where, as the terms of pods see it: how many pods of a selection stand in each domain, and who holds which terms.

Pods that no term can tell apart, because their namespaces and labels are equal, have one *look*. A *tally* counts pods by domain,
where a domain is a value of one node label. All of this is derived: it follows the moves of the world and owns no fact.
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
    STANDINGS,
    TERMINATING,
    PlacementCounter,
    standing_of,
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
    wants,
)
from muster.state.world import World

Codes = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int32]


# All tallies of one sort may have this many figures; past that all are forgotten, and those still needed come back.
_MOST_FIGURES = 8_000_000


class Scope(Protocol):
    """Which nodes count: a value to find a tally by, and the column that follows from it."""

    def __hash__(self) -> int: ...

    def column(self, table: NodeTable) -> BoolColumn: ...


# What is counted of a domain: who is there, who will be there, and who is or will be in the way of others.
THERE, TO_BE_THERE, IN_THE_WAY_SOON, IN_THE_WAY = range(4)
_FIGURES = 4
# A standing counts in its own figure and in all that follow.
_FIRST_FIGURE = {PLACED: THERE, NOMINATED: TO_BE_THERE, OVERDUE: IN_THE_WAY_SOON, TERMINATING: IN_THE_WAY}


class TopologyCount:
    """How many pods of one sort stand in each domain of one label. The last column is no domain: a node without the label has code
    -1, so it finds that column, and nobody is ever counted there."""

    __slots__ = ("codes", "counts", "has_node")

    def __init__(self, codes: Codes, domains: int) -> None:
        self.codes = codes
        """The domain of each row that counts, -1 for the others."""
        self.counts: Counts = np.zeros((_FIGURES, domains + 1), dtype=np.int32)
        self.has_node: BoolColumn = np.zeros(domains + 1, dtype=np.bool_)
        """The domains that have a node which counts."""
        self.has_node[codes] = True
        self.has_node[-1] = False

    def add(self, row: int, standing: int, by: int) -> None:
        code = self.codes[row]
        if code >= 0:
            self.counts[_FIRST_FIGURE[standing] :, code] += by

    def worlds(self, *, after_releases: bool) -> list[Counts]:
        """Who counts in each domain, in every world in which a check must pass: a claim looks at what will be, once those who leave
        have left and those who were promised a node have come; a bind looks at what is, too."""
        will_be = self.counts[TO_BE_THERE].copy()
        return [will_be] if after_releases else [self.counts[THERE].copy(), will_be]

    def in_the_way(self, *, after_releases: bool) -> BoolColumn:
        """The domains in which one of them stands, in any of these worlds, as somebody whom others keep away from."""
        found: BoolColumn = self.counts[IN_THE_WAY_SOON if after_releases else IN_THE_WAY] > 0
        return found


class CountedPods:
    """Pods that count together: how many of them stand on which node, by standing, and the tallies that count them."""

    __slots__ = ("generation", "tallies", "where")

    def __init__(self) -> None:
        self.where: dict[str, list[int]] = {}
        self.tallies: list[TopologyCount] = []
        self.generation = -1

    def shift(self, node: str, standing: int, by: int, rows: Mapping[str, int]) -> None:
        here = self.where.get(node)
        if here is None:
            here = self.where[node] = [0] * STANDINGS
        here[standing] += by
        if not any(here):
            del self.where[node]
        row = rows.get(node)
        if row is not None:
            for topology_count in self.tallies:
                topology_count.add(row, standing, by)

    def fill(self, topology_count: TopologyCount, rows: Mapping[str, int]) -> None:
        """Count all of them in a tally that does not know them yet."""
        for node, here in self.where.items():
            row = rows.get(node)
            if row is not None:
                for standing, count in enumerate(here):
                    if count:
                        topology_count.add(row, standing, count)


K = TypeVar("K")

_COUNTED_BY = (Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.NODE_TAINTS, Topic.NAMESPACES)
"""A change of one of these makes every tally count by something that is no longer so."""


class _Tallies(Generic[K]):
    """The tallies made so far, over one layout of the table and one state of the namespaces."""

    def __init__(self) -> None:
        self.generation = 0
        self.made: dict[K, TopologyCount] = {}
        self._stamp: tuple[int, ...] = ()
        self._figures = 0

    def renew(self, world: World) -> bool:
        """Forget them when they count by something that is no longer so. True when that happened."""
        stamp = world.changes.stamp(_COUNTED_BY)
        if stamp == self._stamp and self._figures <= _MOST_FIGURES:
            return False
        self._stamp = stamp
        self.forget()
        return True

    def forget(self) -> None:
        self.generation += 1
        self.made.clear()
        self._figures = 0

    def add(self, key: K, table: NodeTable, label: str, scope: Scope | None) -> TopologyCount:
        codes, values = table.label_codes(label)
        if scope is not None:
            codes = np.where(scope.column(table), codes, np.int32(-1))
        topology_count = self.made[key] = TopologyCount(codes, len(values))
        self._figures += topology_count.counts.size
        return topology_count


_Look = tuple[str, tuple[Pair, ...]]
"""Namespace and labels."""
_Sought = tuple[TermTarget, Scope | None]
"""Who is counted, by which label, and on which nodes."""


@dataclass(frozen=True, slots=True)
class _Stand:
    look: _Look
    node: str
    standing: int


class SelectorView(PlacementCounter[_Stand]):
    """Every placed pod, by its look."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[_Look, CountedPods] = {}
        self._by_pair: dict[Pair, dict[_Look, CountedPods]] = {}
        self._tallies: _Tallies[_Sought] = _Tallies()
        self._tally_keys: BySelection[_Sought] = BySelection()
        self._rows: Mapping[str, int] = {}
        self._namespaces: Namespaces = {}

    def topology_count(self, world: World, aim: TermTarget, scope: Scope | None = None) -> TopologyCount:
        """How many pods of this aim's selection stand in each of its domains, counting only the nodes of a scope."""
        key = (aim, scope)
        found = self._tallies.made.get(key)
        if found is None:
            found = self._tallies.add(key, world.table, aim.key, scope)
            self._tally_keys.add(key, aim.selection)
            for group in self._meant_by(aim.selection):
                group.fill(found, self._rows)
                if group.generation == self._tallies.generation:
                    group.tallies.append(found)
        return found

    def follow(self, world: World) -> None:
        self._rows, self._namespaces = world.table.row, world.facts.namespaces
        if self._tallies.renew(world):
            self._tally_keys.clear()
        super().follow(world)

    def entry(self, pod: Pod, node: str, placement: Placement) -> _Stand:
        return _Stand((pod.namespace, tuple(sorted(pod.labels.items()))), node, standing_of(placement))

    def count(self, entry: _Stand, *, by: int) -> None:
        group = self._groups.get(entry.look)
        if group is None:
            group = self._add(entry.look)
        if group.generation != self._tallies.generation:
            found = self._tally_keys.meaning(self._namespaces, entry.look[0], dict(entry.look[1]))
            group.tallies = [self._tallies.made[key] for key in found]
            group.generation = self._tallies.generation
        group.shift(entry.node, entry.standing, by, self._rows)
        if not group.where:
            self._drop(entry.look)

    def clear(self) -> None:
        self._groups.clear()
        self._by_pair.clear()
        self._tallies.forget()
        self._tally_keys.clear()

    def figures(self) -> dict[object, object]:
        return {look: group.where for look, group in self._groups.items()}

    def _meant_by(self, selection: Selection) -> list[CountedPods]:
        pairs = selection.pairs()
        found: dict[_Look, CountedPods] = {}
        for bucket in [self._groups] if pairs is None else [self._by_pair.get(pair, {}) for pair in pairs]:
            found.update(bucket)
        return [group for look, group in found.items() if selection.means(self._namespaces, look[0], dict(look[1]))]

    def _add(self, look: _Look) -> CountedPods:
        group = self._groups[look] = CountedPods()
        for pair in look[1]:
            self._by_pair.setdefault(pair, {})[look] = group
        return group

    def _drop(self, look: _Look) -> None:
        del self._groups[look]
        for pair in look[1]:
            del self._by_pair[pair][look]
            if not self._by_pair[pair]:
                del self._by_pair[pair]


@dataclass(frozen=True, slots=True)
class _Hold:
    wants: PodTerms
    node: str
    standing: int


Term = TermTarget | WeightedTarget


class TermHolders(PlacementCounter[_Hold]):
    """The terms that placed pods hold: those who come later have to look at them. Pods without terms cost next to nothing here."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: BySelection[TermTarget] = BySelection()
        """What placed pods keep away from."""
        self.pulls: BySelection[WeightedTarget] = BySelection()
        """What placed pods would rather have near or far, or required to be near."""
        self._groups: dict[Term, CountedPods] = {}
        self._tallies: _Tallies[Term] = _Tallies()
        self._rows: Mapping[str, int] = {}
        self._wants = PerTermsCache(wants)

    def wants(self, pod: Pod) -> PodTerms:
        return self._wants.of(pod)

    def topology_count(self, world: World, term: Term) -> TopologyCount:
        """How many pods that hold this term stand in each of its domains."""
        found = self._tallies.made.get(term)
        if found is None:
            key = term.key if isinstance(term, TermTarget) else term.aim.key
            found = self._tallies.add(term, world.table, key, None)
            group = self._groups[term]
            group.fill(found, self._rows)
            group.tallies, group.generation = [found], self._tallies.generation
        return found

    def follow(self, world: World) -> None:
        self._rows = world.table.row
        self._tallies.renew(world)
        super().follow(world)

    def entry(self, pod: Pod, node: str, placement: Placement) -> _Hold | None:
        return _Hold(self._wants.of(pod), node, standing_of(placement)) if has_terms(pod.signature) else None

    def count(self, entry: _Hold, *, by: int) -> None:
        for aim in entry.wants.apart:
            if self._shift(aim, entry, by):
                self.apart.add(aim, aim.selection) if by > 0 else self.apart.remove(aim, aim.selection)
        for pull in entry.wants.gives:
            if self._shift(pull, entry, by):
                self.pulls.add(pull, pull.aim.selection) if by > 0 else self.pulls.remove(pull, pull.aim.selection)

    def clear(self) -> None:
        self.apart.clear()
        self.pulls.clear()
        self._groups.clear()
        self._tallies.forget()

    def figures(self) -> dict[object, object]:
        return {term: group.where for term, group in self._groups.items()}

    def _shift(self, term: Term, entry: _Hold, by: int) -> bool:
        """Count the holder in or out. True for the first one that comes and the last one that goes."""
        group = self._groups.get(term)
        is_first = group is None
        if group is None:
            group = self._groups[term] = CountedPods()
        if group.generation != self._tallies.generation:
            group.tallies = []
        group.shift(entry.node, entry.standing, by, self._rows)
        if group.where:
            return is_first
        del self._groups[term]
        self._tallies.made.pop(term, None)
        return True
